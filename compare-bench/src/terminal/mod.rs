//! The results for people at a terminal: one block for each question, at most 100 columns wide.

mod table;
pub(crate) mod wrap;

use std::io::IsTerminal;

use self::table::table;
use crate::record::Report;
use crate::terminal::wrap::wrapped;
use crate::view::{missing, questions, show};

/// The loud warning.
pub(crate) const DEBUG: &str = "WARNING: this is a debug build. Its figures mean nothing. Build with --release, or use `cargo xtask compare`.";

const HOW: &str = "Each figure has its interval of 95 % (bootstrap over the rounds) behind it. Ranks are by the median; those whose \
     intervals overlap that of the best of a rank share it. p99: of the same latency, or of the wait. To raw: the ratio to \
     raw statements on the same server, whose rounds alternate with ours; for a latency, 1.10 is 10 % slower, for a rate, 2.00 is twice \
     that of one raw connection (Redis, ZooKeeper: as many tasks on it). Jain: 1 is fair, 1/n is one taking everything.";

const NOISY: &str = "noisy: the interval of the ratio was still wider than 5 % to either side when the time of the case was up. Unsteady: \
     the raw statements themselves changed by half or more between the rounds (the disk, or other work on this machine).";

/// Prints the report on the standard output.
pub(crate) fn print(report: &Report) {
    let is_bold =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    println!("{}", render(report, is_bold));
}

fn render(report: &Report, is_bold: bool) -> String {
    let mut lines = wrapped(&machine(report));
    for backend in &report.backends {
        let mut text = format!("{}: {}, data on {}", backend.name, backend.version, backend.storage);
        for (name, value) in &backend.settings {
            text.extend([", ", name, "=", value]);
        }
        lines.extend(wrapped(&text));
    }
    let questions = questions(std::slice::from_ref(report));
    for question in &questions {
        lines.push(format!("\n{}", question.title.to_uppercase()));
        lines.extend(wrapped(question.what));
        for group in &question.groups {
            lines.push(format!("\n  {}", group.title));
            lines.extend(table(group, is_bold));
        }
    }
    if questions.is_empty() {
        lines.push("\nNothing was measured.".to_owned());
    } else {
        lines.push(String::new());
        lines.extend(wrapped(HOW));
        lines.extend(wrapped(NOISY));
    }
    lines.push(String::new());
    for line in missing::not_measured(std::slice::from_ref(report)) {
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
    if report.build.profile != "release" {
        lines.extend(wrapped(DEBUG));
    }
    lines.join("\n")
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
    use crate::terminal::wrap::WIDTH;

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
