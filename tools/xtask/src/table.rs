//! The table of `docs/redis.md`: which version ran what, filled by the runs.

use std::fs;

use testbed::{Family, Release};

use crate::ran::{Record, known};
use crate::shell::{Result, root};

const FILE: &str = "docs/redis.md";
const BEGIN: &str = "<!-- filled by cargo xtask servers table -->\n";
const END: &str = "<!-- end -->\n";

/// The columns: what a target's name ends with behind that of its release, and a title.
const COLUMNS: [(&str, &str); 7] = [
    ("", "one server"),
    ("_sentinel", "Sentinel, TLS"),
    ("_cluster", "Cluster, TLS"),
    ("_redlock3", "Redlock of 3"),
    ("_redlock5", "of 5"),
    ("_redlock5_two_dead", "two of 5 dead"),
    ("_redlock5_black_hole", "one of 5 silent"),
];

/// What stands in a cell before there was a run.
const NONE: &str = "not run";

/// Writes the table anew: what was run last, and what it says already.
pub(crate) fn write() -> Result<()> {
    let path = root().join(FILE);
    let problem = |error| format!("{FILE}: {error}");
    let text = fs::read_to_string(&path).map_err(problem)?;
    let (before, block, after) = split(&text)?;
    let written = format!("{before}{}{after}", render(&fill(&parse(block), &known()?)));
    fs::write(&path, written).map_err(problem)
}

fn split(text: &str) -> Result<(&str, &str, &str)> {
    let begin = text.find(BEGIN).ok_or_else(|| format!("{FILE} has no line {BEGIN}"))? + BEGIN.len();
    let end = text[begin..].find(END).ok_or_else(|| format!("{FILE} has no line {END}"))? + begin;
    Ok((&text[..begin], &text[begin..end], &text[end..]))
}

/// A row for each release: its title, the version that ran, and a cell for each column.
type Row = Vec<String>;

fn releases() -> Vec<&'static Release> {
    let mut found: Vec<_> = Release::all().iter().filter(|it| it.family() == Family::Redis).collect();
    found.sort_by_key(|release| release.title());
    found
}

fn parse(block: &str) -> Vec<Row> {
    let lines = block.lines().skip(2).map(|line| line.trim().trim_matches('|').split('|'));
    lines.map(|cells| cells.map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn fill(old: &[Row], records: &[Record]) -> Vec<Row> {
    let row = |release: &Release| {
        let title = release.title();
        let mut row = old.iter().find(|row| row.len() == COLUMNS.len() + 2 && row[0] == title).cloned();
        let row = row.get_or_insert_with(|| [vec![title], vec![NONE.to_owned(); COLUMNS.len() + 1]].concat());
        for (at, (suffix, _)) in COLUMNS.iter().enumerate() {
            let name = target(release, suffix);
            if let Some(record) = records.iter().find(|record| record.target == name) {
                row[1] = record.version.clone().unwrap_or_default();
                row[at + 2] = match record.cases - record.passed {
                    0 => record.passed.to_string(),
                    _ => format!("{} of {}", record.passed, record.cases),
                };
            }
        }
        row.clone()
    };
    releases().into_iter().map(row).collect()
}

/// Targets on the machine's own Redis are named after what they are.
fn target(release: &Release, suffix: &str) -> String {
    match (release.is_fetched(), suffix) {
        (true, _) => format!("{}{suffix}", release.name()),
        (false, redlock) if redlock.starts_with("_redlock") => redlock[1..].to_owned(),
        (false, _) => format!("redis{suffix}"),
    }
}

fn render(rows: &[Row]) -> String {
    let mut head = vec!["release".to_owned(), "version".to_owned()];
    head.extend(COLUMNS.map(|(_, title)| title.to_owned()));
    let rule = vec!["---".to_owned(); head.len()];
    let line = |row: &Row| format!("| {} |\n", row.join(" | "));
    [&head, &rule].into_iter().chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ran::tests::record;

    #[test]
    fn the_documentation_has_the_table_in_its_generated_form() {
        let text = fs::read_to_string(root().join(FILE)).expect("the documentation");
        let (_, block, _) = split(&text).expect("the table");
        let rows = parse(block);
        assert_eq!(render(&fill(&rows, &[])), block, "cargo xtask servers table writes it");
        for (release, row) in releases().into_iter().zip(rows) {
            assert_eq!(row[0], release.title());
            assert!(row[1] == NONE || release.surprise(&row[1]).is_none(), "{row:?}");
        }
    }

    #[test]
    fn what_was_run_is_filled_in_and_the_rest_stays() {
        let records =
            [record("redis_cluster", "redis7", "7.0.15", 10), record("redlock3", "redis7", "7.0.15", 10)];
        let rows = fill(&[], &records);
        assert_eq!(rows[1][..6], ["Redis 7.0", "7.0.15", NONE, NONE, "10", "10"]);
        let rows = fill(&parse(&render(&rows)), &[record("redis8_redlock3", "redis8", "8.0.2", 9)]);
        assert_eq!((&*rows[0][0], &*rows[1][4]), ("Redis 6.0", "10"));
        assert_eq!(rows[2][..6], ["Redis 8.0", "8.0.2", NONE, NONE, NONE, "9 of 10"]);
    }
}
