//! `compare-bench diff`: what changed between two runs, as far as their intervals show.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use crate::args::DiffArgs;
use crate::document::wrap::wrapped;
use crate::error::{Error, Result};
use crate::record::file::read;
use crate::record::{Measurement, Quantity, Report};
use crate::stats::interval::Interval;
use crate::view::rank::overlap;
use crate::view::trust::doubt;

const HOW: &str = "Ratios to the raw statements of the same run; of holding, microseconds. Worse and better: the intervals \
     do not overlap. Same: they do, and both are within 5 %. Cannot tell: they do, and one is wider, or there were too few rounds.";

/// The comparison of two intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Better,
    /// They overlap, and both are narrow.
    Same,
    Worse,
    /// They overlap, and one is wide; or there is none.
    CannotTell,
}

/// One case of both runs.
struct Change {
    named: String,
    /// Ratios to the raw statements of the same run, which a quicker or slower machine does not change; the
    /// figures themselves where there are none.
    before: Option<Interval>,
    after: Option<Interval>,
    /// How much worse it became: 1.1 is 10 % slower, or 10 % fewer.
    worse_by: Option<f64>,
    comparison: Comparison,
}

/// Prints the changes. Returns whether none is worse by more than is allowed.
pub(crate) fn run(args: &DiffArgs) -> Result<bool> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    if let Some(reason) = differs(&before, &after)
        && !args.force
    {
        return Err(Error::failed(format!("{reason}; --force compares them nevertheless")));
    }
    let changes: Vec<Change> =
        before.results.iter().filter_map(|old| Some(change(old, same(&after, old)?))).collect();
    if changes.is_empty() {
        return Err(Error::failed("the two runs have no case in common"));
    }
    println!("{}", table(&changes));
    for (run, file) in [(&before, &args.before), (&after, &args.after)] {
        if let Some(doubt) = doubt(run) {
            println!("the figures of {} are not to be used: {doubt}", file.display());
        }
    }
    println!("{}", wrapped(HOW).join("\n"));
    let Some(limit) = args.fail_above else { return Ok(true) };
    let failed: Vec<_> = changes.iter().filter(|change| change.fails(limit)).collect();
    for change in &failed {
        println!("worse by more than {:.1} %: {}", limit * 100.0, change.named);
    }
    let lost = lost(&before, &after);
    for case in &lost {
        println!("failed: {case}");
    }
    Ok(failed.is_empty() && lost.is_empty() && after.violation.is_none())
}

/// The cases of the first run that the second one tried in vain, or whose backend it could not start. A case
/// that cannot be measured any more is no better than a slow one.
fn lost(before: &Report, after: &Report) -> Vec<String> {
    let failed: Vec<_> = after.failures.iter().map(|it| named(&it.workload, &it.case, &it.backend)).collect();
    let is_absent = |backend: &str| {
        after.missing.iter().any(|it| it.backend == backend)
            && !after.results.iter().any(|it| it.backend == backend)
    };
    let gone = before.results.iter().filter(|result| same(after, result).is_none());
    let name = |it: &Measurement| (named(&it.workload, &it.case, &it.backend), is_absent(&it.backend));
    gone.map(name).filter(|(name, is_absent)| *is_absent || failed.contains(name)).map(|it| it.0).collect()
}

fn named(workload: &str, case: &str, backend: &str) -> String {
    format!("{workload}, {case}, on {backend}")
}

/// The same case of another run.
fn same<'a>(run: &'a Report, one: &Measurement) -> Option<&'a Measurement> {
    let case = |it: &Measurement| (it.backend.clone(), it.workload.clone(), it.case.clone());
    run.results.iter().find(|other| case(other) == case(one))
}

/// Why the two should not be compared, if they should not.
fn differs(before: &Report, after: &Report) -> Option<&'static str> {
    let hardware = |run: &Report| (run.machine.cpu.clone(), run.machine.cores, run.machine.memory_mib);
    if hardware(before) != hardware(after) || before.machine.host != after.machine.host {
        Some("the two were taken on different machines")
    } else if before.conditions != after.conditions {
        Some("the two were taken under different conditions (disk, durability, delay)")
    } else if before.build.profile != after.build.profile {
        Some("the two were built with different profiles (debug, quick or release)")
    } else {
        None
    }
}

fn change(old: &Measurement, new: &Measurement) -> Change {
    let (before, after) = (figure(old), figure(new));
    // A ratio is not compared with a figure.
    let both = before.zip(after).filter(|_| is_alone(old) == is_alone(new));
    Change {
        named: named(&old.workload, &old.case, &old.backend),
        before,
        after,
        worse_by: both.and_then(|(before, after)| worse_by(old.quantity, before, after)),
        comparison: both
            .map_or(Comparison::CannotTell, |(before, after)| comparison(old.quantity, before, after)),
    }
}

/// The ratio to the raw statements; where nothing raw can be compared, the figure itself.
fn figure(result: &Measurement) -> Option<Interval> {
    if is_alone(result) { Interval::of(result.rounds.iter().map(|round| round.ours)) } else { result.ratio }
}

/// Whether nothing raw was measured beside it.
fn is_alone(result: &Measurement) -> bool {
    result.rounds.iter().all(|round| round.floor <= 0.0)
}

fn worse_by(quantity: Quantity, before: Interval, after: Interval) -> Option<f64> {
    let (bad, good) = match quantity {
        Quantity::LatencyUs | Quantity::CpuUs => (after.median, before.median),
        Quantity::PerSecond => (before.median, after.median),
    };
    (good > 0.0).then(|| bad / good)
}

fn comparison(quantity: Quantity, before: Interval, after: Interval) -> Comparison {
    let is_less = after.median < before.median;
    match (overlap(before, after), quantity) {
        (true, _) if before.is_precise() && after.is_precise() => Comparison::Same,
        (true, _) => Comparison::CannotTell,
        (false, Quantity::LatencyUs | Quantity::CpuUs) if is_less => Comparison::Better,
        (false, Quantity::PerSecond) if !is_less => Comparison::Better,
        (false, _) => Comparison::Worse,
    }
}

impl Change {
    fn fails(&self, limit: f64) -> bool {
        self.comparison == Comparison::Worse && self.worse_by.is_some_and(|times| times > 1.0 + limit)
    }
}

fn table(changes: &[Change]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(100);
    table.force_no_tty().set_header(["", "case", "before", "after", "worse by"]);
    for change in changes {
        let word = match change.comparison {
            Comparison::Better => "better",
            Comparison::Same => "same",
            Comparison::Worse => "WORSE",
            Comparison::CannotTell => "cannot tell",
        };
        let shown = |ratio: Option<Interval>| ratio.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let worse = change.worse_by.map(|times| format!("{:+.1} %", (times - 1.0) * 100.0));
        let (before, after) = (shown(change.before), shown(change.after));
        table.add_row([word, &change.named, &before, &after, worse.as_deref().unwrap_or("-")]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{measured, report};

    fn between(low: f64, high: f64) -> Interval {
        Interval { median: f64::midpoint(low, high), low, high }
    }

    #[test]
    fn the_intervals_decide() {
        let latency = |before, after| comparison(Quantity::LatencyUs, before, after);
        assert_eq!(latency(between(1.0, 1.1), between(1.2, 1.3)), Comparison::Worse);
        assert_eq!(latency(between(1.2, 1.3), between(1.0, 1.1)), Comparison::Better);
        assert_eq!(latency(between(1.0, 1.1), between(1.05, 1.15)), Comparison::Same);
        assert_eq!(latency(between(1.0, 1.1), between(0.5, 1.5)), Comparison::CannotTell);
        let rate = |before, after| comparison(Quantity::PerSecond, before, after);
        assert_eq!(rate(between(1.0, 1.1), between(1.2, 1.3)), Comparison::Better);
        assert_eq!(rate(between(1.2, 1.3), between(1.0, 1.1)), Comparison::Worse);
    }

    #[test]
    fn only_what_is_surely_worse_fails() {
        let mut old = measured("redis", 6);
        let new = old.clone();
        assert!(!change(&old, &new).fails(0.0));
        old.ratio = Some(between(1.3, 1.4));
        assert_eq!(change(&old, &new).comparison, Comparison::Worse);
        assert!(change(&old, &new).fails(0.05) && !change(&old, &new).fails(0.2), "11 % worse");
        old.ratio = None;
        assert_eq!(change(&old, &new).comparison, Comparison::CannotTell);
        assert!(!change(&old, &new).fails(0.0));
    }

    #[test]
    fn what_cannot_be_measured_any_more_is_lost() {
        let (mut before, mut after) = (report(), report());
        before.results = vec![measured("redis", 6), measured("etcd", 6)];
        after.results = vec![measured("redis", 6)];
        assert!(lost(&before, &after).is_empty(), "it was left out");
        after.missing.push(crate::record::Missing { backend: "etcd".into(), reason: "refused".into() });
        assert_eq!(lost(&before, &after), ["handoff, 2 processes, hold 0 ms, on etcd"]);
    }

    #[test]
    fn a_ratio_and_a_figure_are_not_compared() {
        let (old, mut new) = (measured("redis", 6), measured("redis", 6));
        new.rounds.iter_mut().for_each(|round| (round.ours, round.floor) = (300.0, 0.0));
        assert_eq!(change(&old, &new).comparison, Comparison::CannotTell);
    }

    #[test]
    fn unlike_runs_are_refused() {
        let (before, mut after) = (report(), report());
        assert_eq!(differs(&before, &after), None);
        after.machine.kernel.push_str("-next");
        assert_eq!(differs(&before, &after), None, "a kernel is what one may want to compare");
        after.conditions.delay_us = 7;
        assert!(differs(&before, &after).is_some());
        let mut after = report();
        after.machine.cores += 1;
        assert!(differs(&before, &after).is_some());
    }
}
