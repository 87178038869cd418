//! The page: one file that needs no network, and has no script.

use faults::Results;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::document::grid::grid;
use crate::document::table::{HEADER, cells};
use crate::document::{
    Block, COLUMNS, Section, absent, faults as of_faults, figures, machine, warnings, which,
};
use crate::record::Report;
use crate::view::family::Candidate;
use crate::view::overview::{Overview, overviews};
use crate::view::{Group, questions, show};

const STYLE: &str = include_str!("style.css");

/// Not even a mistake in this file makes a browser fetch or run anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole page: of comparisons, and of runs of faults.
pub(crate) fn page(runs: &[Report], faults: &[Results]) -> String {
    let (questions, title) = (questions(runs), "Which distributed lock");
    let overviews = overviews(runs, &questions);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (blocks(&warnings(runs)))
                @if overviews.is_empty() { p { "Not measured: no backend that several processes can share took part." } }
                @for (number, overview) in overviews.iter().enumerate() {
                    @let Section { title, blocks: advice } = which(overview, &format!(": {}", overview.holds));
                    (folded(&title, number == 0, &html! { (families(overview)) (blocks(&advice)) }))
                }
                @for section in figures(&questions) { (folded(&section.title, false, &blocks(&section.blocks))) }
                @for results in faults { (folded("Faults", false, &of_faults::section(results))) }
                (folded("Not measured", false, &blocks(&absent(runs))))
                (folded("Method", false, &html! {
                    p { (COLUMNS) }
                    @for run in runs {
                        p { code { "compare-bench " (run.arguments.join(" ")) } }
                        @for line in machine(run) { p { (line) } }
                    }
                }))
            }
        }
    };
    page.into_string()
}

/// What a reader opens who wants to know.
fn folded(title: &str, is_open: bool, body: &Markup) -> Markup {
    html! { details open[is_open] { summary { (title) } (body) } }
}

fn blocks(blocks: &[Block<'_>]) -> Markup {
    html! {
        @for block in blocks {
            @match block {
                Block::Text(text) => { p { (text) } }
                Block::Warning(text) => { p.warning { (text) } }
                Block::Advice(it) => { p { "If " (it.condition) ": " b { (it.choice) } ". Because " (it.because) "." } }
                Block::Group(group) => { (of_group(group)) }
            }
        }
    }
}

/// The figures of one group.
fn of_group(group: &Group) -> Markup {
    html! {
        h3 { (group.title) }
        div { table {
            thead { tr { @for cell in HEADER { th { (cell) } } th { "remarks" } } }
            tbody { @for line in &group.lines { tr.best[line.rank == Some(1)] {
                @for cell in cells(group, line) { td { (cell) } }
                td { (line.remarks.join(", ")) }
            } } }
        } }
    }
}

/// A row for each family: what decides about it, and what it survives.
fn families(overview: &Overview) -> Markup {
    let mut head = vec!["lock on"];
    head.extend(overview.columns.iter().map(|column| &*column.title));
    head.push("what it survives");
    let row = |family: &Candidate| {
        let figures = overview.columns.iter().map(|column| {
            let line = column.of(&family.backend);
            line.map_or_else(|| "-".to_owned(), |line| show::figure(column.unit, line.median, line.value))
        });
        let name = std::iter::once(format!("{} ({})", family.family, family.backend));
        name.chain(figures).chain([survives(family)]).collect()
    };
    grid(&head, &overview.families.iter().map(row).collect::<Vec<_>>())
}

/// By its promises.
fn survives(family: &Candidate) -> String {
    let restart = if family.durable { "a restart keeps its locks" } else { "A RESTART FORGETS ITS LOCKS" };
    let failover = match (family.across_hosts, family.failover_safe) {
        (false, _) => "one machine, so no failover",
        (true, true) => "no failover grants twice",
        (true, false) if family.verifies() => "A FAILOVER MAY GRANT TWICE (verify_in refuses one of the two)",
        (true, false) => "A FAILOVER MAY GRANT TWICE",
    };
    let old = family.old.as_ref().map_or_else(String::new, |old| format!(" ({old})"));
    format!("{restart}; {failover}{old}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};

    /// A run of all workloads.
    fn near() -> Report {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/near.json");
        crate::record::file::read(std::path::Path::new(data)).unwrap()
    }

    #[test]
    fn nothing_of_others_runs_or_is_fetched() {
        let mut report = report();
        report.results.push(measured("<script>alert(1)</script>", 6));
        let page = page(&[report], &[]);
        for bad in ["<script", "src=", "url(", "@import", "http://", "https://"] {
            assert!(!page.contains(bad), "{bad}");
        }
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn each_figure_of_each_run_is_there_once() {
        let (disk, mut tmpfs, mut later) = (near(), near(), near());
        tmpfs.conditions.storage = "tmpfs".to_owned();
        later.date = "2031-01-01T00:00:00Z".to_owned();
        let runs = [disk, tmpfs, later];
        let page = page(&runs, &[]);
        let questions = questions(&runs);
        let groups = || questions.iter().flat_map(|question| &question.groups);
        assert_eq!(page.matches("<h3>").count(), groups().count());
        for group in groups() {
            assert!(page.contains(&format!("<h3>{}</h3>", group.title)), "{}", group.title);
            let mut names: Vec<_> = group.lines.iter().map(|line| &line.who).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{}: {names:?}", group.title);
        }
        // These runs were made for a test.
        let (above, below) = page.split_once("<details open>").unwrap();
        assert_eq!(above.matches("THESE FIGURES ARE NOT TO BE USED (run of ").count(), 3, "{above}");
        assert!(below.contains("If a second grant does harm"), "{below}");
        assert_eq!(page.matches("<details open>").count(), 1);
    }

    #[test]
    fn what_was_seen_under_faults_stands_beside_the_figures() {
        let text = include_str!("../../tests/data/faults.json");
        let results: Results = serde_json::from_str(text).unwrap();
        let both = page(&[near()], std::slice::from_ref(&results));
        for expected in ["If all holders run on one host", "holder-killed", "told of the end of their lease"]
        {
            assert!(both.contains(expected), "{expected}");
        }
        // A file of faults alone makes a page, too.
        assert!(page(&[], &[results]).contains("holder-killed"));
    }

    #[test]
    fn what_an_operator_must_know_is_loud() {
        let candidate = |durable, failover_safe| {
            let name = crate::view::overview::tests::candidate("postgres");
            Candidate { across_hosts: true, durable, failover_safe, ..name }
        };
        assert_eq!(survives(&candidate(true, true)), "a restart keeps its locks; no failover grants twice");
        let bad = survives(&Candidate { old: Some("an old release".to_owned()), ..candidate(false, false) });
        assert_eq!(
            bad,
            "A RESTART FORGETS ITS LOCKS; A FAILOVER MAY GRANT TWICE (verify_in refuses one of the two) (an old release)"
        );
    }
}
