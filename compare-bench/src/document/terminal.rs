//! The results for people at a terminal: the verdict, then one block for each question, at most 100 columns
//! wide.

use crate::document::table::table;
use crate::document::wrap::{WIDTH, wrapped, wrapped_to};
use crate::document::{Block, COLUMNS, DEBUG, Section, absent, figures, machine, warnings, which};
use crate::record::Report;
use crate::view::overview::overviews;
use crate::view::questions;

/// Of what stands below the line that it belongs to.
const INDENT: usize = 4;

/// Prints the report on the standard output.
pub(crate) fn print(report: &Report) {
    println!("{}", render(report));
}

fn render(report: &Report) -> String {
    let runs = std::slice::from_ref(report);
    let questions = questions(runs);
    let mut lines = blocks(&warnings(runs));
    let verdicts: Vec<_> = overviews(runs, &questions).iter().map(|it| which(it, "")).collect();
    lines.extend(sections(&verdicts));
    lines.push(String::new());
    lines.extend(machine(report).iter().flat_map(|line| wrapped(line)));
    lines.push(String::new());
    lines.extend(wrapped(if questions.is_empty() { "Nothing was measured." } else { COLUMNS }));
    lines.extend(sections(&figures(&questions)));
    lines.push(String::new());
    lines.extend(blocks(&absent(runs)));
    if report.build.profile == "debug" {
        lines.extend(wrapped(DEBUG));
    }
    lines.join("\n").trim_start().to_owned()
}

fn sections(sections: &[Section<'_>]) -> Vec<String> {
    let one = |section: &Section<'_>| {
        let title = format!("\n{}", section.title.to_uppercase());
        std::iter::once(title).chain(blocks(&section.blocks)).collect::<Vec<_>>()
    };
    sections.iter().flat_map(one).collect()
}

fn blocks(blocks: &[Block<'_>]) -> Vec<String> {
    let one = |block: &Block<'_>| match block {
        Block::Text(text) | Block::Warning(text) => wrapped(text),
        Block::Advice(advice) => {
            let mut lines = wrapped(&format!("If {}: {}.", advice.condition, advice.choice));
            let below = wrapped_to(&format!("Because {}.", advice.because), WIDTH - INDENT);
            lines.extend(below.iter().map(|line| format!("{:INDENT$}{line}", "")));
            lines
        }
        Block::Group(group) => {
            let title = format!("\n  {}", group.title);
            std::iter::once(title).chain(table(group)).collect()
        }
    };
    blocks.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};
    use crate::view::advice::BILLING;
    use crate::view::family::tests::backend;

    /// A run on a quiet machine.
    fn quiet() -> Report {
        let mut report = report();
        report.mode = "usual".to_owned();
        report.build.profile = "release".to_owned();
        (report.load_before, report.machine.cores) = (0.1, 2);
        report.backends = vec![
            backend("redis", &["across_hosts", "durable"]),
            backend("zookeeper3", &["across_hosts", "durable", "failover_safe"]),
        ];
        report.results = vec![measured("redis", 6), measured("zookeeper3", 6)];
        report
    }

    #[test]
    fn the_verdict_comes_first() {
        let text = render(&quiet());
        let begin: Vec<&str> = text.lines().take(3).collect();
        assert_eq!(
            begin[..2],
            ["WHICH LOCK", "If all holders run on one host: none of those measured."],
            "{text}"
        );
        let unbroken = text.replace('\n', " ");
        let never = "If a second grant does harm, as with mail (for charges see below): ZooKeeper (on three servers or more).";
        assert!(unbroken.contains(never) && unbroken.contains(&BILLING.join(" ")), "{text}");
        assert!(!text.contains("NOT TO BE USED"), "{text}");
    }

    #[test]
    fn a_loaded_machine_is_told_of_before_the_verdict() {
        let text = render(&Report { load_before: 8.0, ..quiet() });
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("THESE FIGURES ARE NOT TO BE USED: the load of the machine was 8.00"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn words_are_explained_where_they_stand() {
        let mut report = quiet();
        assert!(!render(&report).contains("Noisy: "));
        for round in &mut report.results[0].rounds[..3] {
            round.ours = 1.0;
        }
        let text = render(&report);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
        let word = at("Noisy: the interval");
        assert!(at("EVERYBODY WANTS ONE LOCK") < word && word < at("  2 processes, each holding"), "{text}");
    }

    #[test]
    fn long_remarks_take_lines_of_the_whole_width() {
        let mut report = report();
        report.results = vec![measured("redis", 6)];
        report.results[0].peers[0].unsafe_because = Some("letters ".repeat(60).trim().to_owned());
        report.results[0].peers[1].unsafe_because = Some("brief".to_owned());
        let text = render(&report);
        let of_remarks: Vec<_> = text.lines().filter(|line| line.contains("letters")).collect();
        assert_eq!(of_remarks.len(), 6, "{text}");
        assert!(of_remarks.iter().all(|line| line.starts_with("        letters ")), "{text}");
        let brief = text.lines().find(|line| line.ends_with("  brief"));
        assert!(brief.is_some_and(|line| line.contains("slow 1.0 on redis")), "{text}");
    }

    #[test]
    fn no_figure_is_shown_without_its_interval() {
        let mut report = report();
        report.results.push(measured("redis", 6));
        let text = render(&report);
        for expected in
            ["3.00 us [3.00 .. 3.00]", "1.50 [1.50 .. 1.50]", "quick 1.0 on redis", "2.50 us [2.50 .. 2.50]"]
        {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        report.results = vec![measured("redis", 2)];
        let text = render(&report);
        assert!(text.contains("too few rounds") && !text.contains("3.00 us ["), "{text}");
    }
}
