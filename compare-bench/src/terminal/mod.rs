//! The results for people at a terminal: the verdict, then one block for each question, at most 100 columns
//! wide.

mod table;
pub(crate) mod wrap;

use std::io::IsTerminal;

use self::table::table;
use crate::record::Report;
use crate::terminal::wrap::{WIDTH, wrapped, wrapped_to};
use crate::view::advice::{BILLING, TERMS, advice};
use crate::view::overview::overviews;
use crate::view::{Question, missing, questions, show, trust, words};

/// The loud warning.
pub(crate) const DEBUG: &str = "WARNING: this is a debug build. Its figures mean nothing. Build with --release, or use `cargo xtask compare`.";

/// What the columns of all tables are.
const COLUMNS: &str = "The number before a name is its rank; locks whose intervals overlap that of the best of a rank share it. Above, what \
     differs by less than the machine's noise cannot be told apart either. Behind each median stands its interval of 95 % (bootstrap over the \
     rounds). p99: 99 of 100 took at most so long. To raw: the ratio to raw statements, which are the fewest that any lock on this server needs, \
     and are measured in turns with the locks; 1.10 of a latency is 10 % slower, 2.00 of a rate is twice that of one raw connection (Redis, \
     ZooKeeper, etcd: of as many tasks on it, or processes with one each).";

/// Of what stands below the line that it belongs to.
const INDENT: usize = 4;

/// Prints the report on the standard output.
pub(crate) fn print(report: &Report) {
    let is_bold =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    println!("{}", render(report, is_bold));
}

fn render(report: &Report, is_bold: bool) -> String {
    let runs = std::slice::from_ref(report);
    let questions = questions(runs);
    let mut lines = verdict(report, &questions);
    lines.extend(wrapped(&machine(report)));
    for backend in &report.backends {
        let mut text = format!("{}: {}, data on {}", backend.name, backend.version, backend.storage);
        for (name, value) in &backend.settings {
            text.extend([", ", name, "=", value]);
        }
        lines.extend(wrapped(&text));
    }
    if questions.is_empty() {
        lines.push("\nNothing was measured.".to_owned());
    } else {
        lines.push(String::new());
        lines.extend(wrapped(COLUMNS));
    }
    for question in &questions {
        lines.push(format!("\n{}", question.title.to_uppercase()));
        lines.extend(wrapped(question.what));
        lines.extend(words::told(question).flat_map(wrapped));
        for group in &question.groups {
            lines.push(format!("\n  {}", group.title));
            lines.extend(table(group, is_bold));
        }
    }
    lines.push(String::new());
    for line in missing::not_measured(runs) {
        lines.extend(wrapped(&format!("not measured: {line}")));
    }
    for failure in &report.failures {
        let (workload, case) = (&failure.workload, &failure.case);
        let text = format!("FAILED: {workload}, {case}, on {}: {}", failure.backend, failure.reason);
        lines.extend(wrapped(&text));
    }
    if let Some(violation) = &report.violation {
        let text = format!("{} on {}: {}", violation.workload, violation.backend, violation.reason);
        lines.extend(wrapped(&format!("THE LOCK DID NOT EXCLUDE. {text}")));
    }
    if report.build.profile == "debug" {
        lines.extend(wrapped(DEBUG));
    }
    lines.join("\n")
}

/// What to choose, before everything else, and whether the figures are to be used at all.
fn verdict(report: &Report, questions: &[Question]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(doubt) = trust::doubt(report) {
        let text = format!("THESE FIGURES ARE NOT TO BE USED: {doubt}.");
        lines.extend(wrapped(&text));
        lines.push(String::new());
    }
    for overview in overviews(std::slice::from_ref(report), questions) {
        lines.push("WHICH LOCK".to_owned());
        for advice in advice(&overview) {
            lines.extend(wrapped(&format!("If {}: {}.", advice.condition, advice.choice)));
            let below = wrapped_to(&format!("Because {}.", advice.because), WIDTH - INDENT);
            lines.extend(below.iter().map(|line| format!("{:INDENT$}{line}", "")));
        }
        lines.extend(wrapped(&BILLING.join(" ")));
        lines.extend(wrapped(TERMS));
        lines.push(String::new());
    }
    lines
}

fn machine(report: &Report) -> String {
    let (machine, build) = (&report.machine, &report.build);
    let commit = build.git_commit.as_deref().map_or(String::new(), |commit| {
        let changed = if build.git_dirty == Some(true) { " with changes" } else { "" };
        format!(", commit {}{changed}", commit.get(..10).unwrap_or(commit))
    });
    let sync = report.disk.as_ref().map_or(String::new(), |disk| {
        format!(", a sync of {} takes {}", disk.file_system, show::time(disk.sync_us.p50))
    });
    format!(
        "{} ({} cores, {} MiB, {}), load before {:.2}{sync}, {} run of {} s, {}{commit}, {}",
        machine.cpu,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        report.load_before,
        report.mode,
        report.seconds.round(),
        report.date,
        show::conditions(&report.conditions),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Missing;
    use crate::record::tests::{measured, report};
    use crate::view::family::tests::backend;

    #[test]
    fn no_line_is_wider_than_promised() {
        let mut report = report();
        report.results = vec![measured("redis", 6), measured("zookeeper3", 6), measured("memory", 6)];
        for result in &mut report.results {
            result.option = Some("hand_over=1000/20ms".to_owned());
            result.unsteady = true;
            result.trips = result.ratio;
        }
        let text = render(&report, false);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        }
    }

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
        let text = render(&quiet(), false);
        let begin: Vec<&str> = text.lines().take(3).collect();
        assert_eq!(
            begin[..2],
            ["WHICH LOCK", "If all holders run on one host: none of those measured."],
            "{text}"
        );
        let unbroken = text.replace('\n', " ");
        let never = "If a second grant does harm, as with mail (for charges see below): ZooKeeper (on three servers or more).";
        assert!(unbroken.contains(never) && unbroken.contains(&BILLING.join(" ")), "{text}");
        // The two have the same figures.
        assert!(unbroken.contains("and you run no database: cannot be told on this machine now."), "{text}");
        assert!(!text.contains("NOT TO BE USED"), "{text}");
    }

    #[test]
    fn a_loaded_machine_is_told_of_before_the_verdict() {
        let text = render(&Report { load_before: 8.0, ..quiet() }, false);
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("THESE FIGURES ARE NOT TO BE USED: the load of the machine was 8.00"),
            "{text}"
        );
        let unwrapped = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains("the speed is unknown"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn words_are_explained_where_they_stand() {
        let mut report = quiet();
        assert!(!render(&report, false).contains("Noisy: "));
        report.results[0].noisy = true;
        let text = render(&report, false);
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
        let text = render(&report, false);
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
        let text = render(&report, false);
        for expected in
            ["3.00 us [3.00 .. 3.00]", "1.50 [1.50 .. 1.50]", "quick 1.0 on redis", "2.50 us [2.50 .. 2.50]"]
        {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        report.results = vec![measured("redis", 2)];
        let text = render(&report, false);
        assert!(text.contains("too few rounds") && !text.contains("3.00 us ["), "{text}");
    }

    #[test]
    fn only_the_best_is_bold_and_only_if_wanted() {
        let mut report = report();
        report.results.push(measured("redis", 6));
        assert!(!render(&report, false).contains('\u{1b}'));
        let bold = render(&report, true);
        let lines: Vec<_> = bold.lines().filter(|line| line.contains('\u{1b}')).collect();
        assert!(lines.iter().any(|line| line.contains("quick")), "{bold}");
        assert!(!lines.iter().any(|line| line.contains("slow")), "{bold}");
    }

    #[test]
    fn an_empty_report_still_says_what_is_missing() {
        let mut report = report();
        report.missing.push(Missing { backend: "postgres".into(), reason: "not there".into() });
        let text = render(&report, false);
        assert!(text.contains("not measured: postgres: not there"), "{text}");
    }
}
