//! The figures for other programs: a table in Markdown, and CSV in long form, one figure a line.

use std::fmt::Write;

use crate::record::{Cost, Handing, Measurement, Report};
use crate::stats::interval::Interval;
use crate::stats::{Spread, as_float};
use crate::view::line::Line;
use crate::view::unit::Unit;
use crate::view::{Group, questions, show};

/// The columns of the CSV.
const COLUMNS: &str = "date,host,commit,durability,storage,delay_us,backend,server,library,library_version,workload,case,parties,\
     hold_us,metric,value";

/// One figure a line. Times are in microseconds.
pub(crate) fn csv(runs: &[Report]) -> String {
    let mut lines = vec![COLUMNS.to_owned()];
    for run in runs {
        for result in &run.results {
            let server = run.backends.iter().find(|backend| backend.name == result.backend);
            let server = server.map_or("", |backend| &*backend.version);
            let mut add = |library: &str, version: &str, figures: Vec<(&str, f64)>| {
                for (metric, value) in figures {
                    let (parties, hold) = (result.parties.to_string(), result.hold_us.to_string());
                    let (delay, value) = (run.conditions.delay_us.to_string(), value.to_string());
                    let cells = [
                        &*run.date,
                        &run.machine.host,
                        run.build.git_commit.as_deref().unwrap_or_default(),
                        &run.conditions.durability,
                        &run.conditions.storage,
                        &delay,
                        &result.backend,
                        server,
                        library,
                        version,
                        &result.workload,
                        &result.case,
                        &parties,
                        &hold,
                        metric,
                        &value,
                    ];
                    lines.push(cells.map(quoted).join(","));
                }
            };
            add("lockwell", &run.build.version, ours(result));
            add("raw statements", "", floor(result));
            for peer in &result.peers {
                let value = Interval::of(peer.rounds.iter().map(|round| round.theirs));
                let mut figures = interval(["median", "low", "high"], value);
                figures.extend(interval(["ratio", "ratio_low", "ratio_high"], peer.ratio));
                let ours_to_theirs = ["ours_to_theirs", "ours_to_theirs_low", "ours_to_theirs_high"];
                figures.extend(interval(ours_to_theirs, peer.ours_to_theirs));
                figures.extend(spread(&peer.latency_us));
                figures.push(("per_second", peer.per_second));
                figures.extend(peer.handing.iter().flat_map(handing));
                figures.extend(peer.requests_each.map(|each| ("requests_each", each)));
                figures.extend(peer.wakeups_each.map(|each| ("wakeups_each", each)));
                figures.push(("failed", f64::from(u8::from(peer.error.is_some()))));
                add(&peer.name, peer.version.as_deref().unwrap_or_default(), figures);
            }
        }
    }
    lines.join("\n") + "\n"
}

fn ours(result: &Measurement) -> Vec<(&'static str, f64)> {
    let value = Interval::of(result.rounds.iter().map(|round| round.ours));
    let mut figures = interval(["median", "low", "high"], value);
    figures.extend(interval(["ratio", "ratio_low", "ratio_high"], result.ratio));
    figures.extend(interval(["trips", "trips_low", "trips_high"], result.trips));
    figures.extend(spread(&result.latency_us));
    figures.push(("per_second", result.per_second));
    figures.extend(result.handing.iter().flat_map(handing));
    figures.extend(result.requests_each.map(|each| ("requests_each", each)));
    figures.extend(result.wakeups_each.map(|each| ("wakeups_each", each)));
    if let Some(recovery) = &result.recovery {
        figures.extend(recovery.times_us.iter().map(|time| ("recovery", *time)));
        figures.extend(recovery.told_us.iter().map(|time| ("holder_told", *time)));
        figures.extend(recovery.bound_us.map(|bound| ("recovery_bound", bound)));
    }
    if let Some(holding) = &result.holding {
        let mut cost = |names: [&'static str; 2], cost: Cost| {
            figures.extend(names.into_iter().zip([cost.cpu_us, as_float(cost.memory_kib)]));
        };
        cost(["client_cpu", "client_memory_kib"], holding.client);
        if let Some(server) = holding.server {
            cost(["server_cpu", "server_memory_kib"], server);
        }
        figures.extend(holding.requests_per_second.map(|rate| ("requests_per_second", rate)));
        figures.push(("connections", as_float(holding.connections)));
    }
    figures
}

fn floor(result: &Measurement) -> Vec<(&'static str, f64)> {
    let value = Interval::of(result.rounds.iter().map(|round| round.floor));
    let mut figures = interval(["median", "low", "high"], value);
    figures.extend(spread(&result.floor_latency_us));
    figures.push(("per_second", result.floor_per_second));
    figures
}

fn interval(names: [&'static str; 3], value: Option<Interval>) -> Vec<(&'static str, f64)> {
    let Some(Interval { median, low, high }) = value else { return Vec::new() };
    names.into_iter().zip([median, low, high]).collect()
}

fn spread(it: &Spread) -> [(&'static str, f64); 5] {
    [("p50", it.p50), ("p90", it.p90), ("p99", it.p99), ("p999", it.p999), ("max", it.max)]
}

fn handing(it: &Handing) -> [(&'static str, f64); 5] {
    [
        ("jain", it.jain),
        ("handovers_per_second", it.handovers_per_second),
        ("longest_wait", it.wait_us.max),
        ("repeats", as_float(it.repeats)),
        ("overlaps", as_float(it.overlaps)),
    ]
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// A table for each group of figures.
pub(crate) fn markdown(runs: &[Report]) -> String {
    let mut text = String::new();
    for question in questions(runs) {
        push(&mut text, &format!("## {}\n\n{}\n", question.title, question.what));
        for group in &question.groups {
            push(&mut text, &format!("\n### {}\n\n", group.title));
            push(&mut text, "| rank | lock | median [95 %] | p99 | to raw statements | remarks |\n");
            push(&mut text, "|---:|---|---:|---:|---:|---|\n");
            push(&mut text, &rows(group));
        }
        text.push('\n');
    }
    text
}

fn rows(group: &Group) -> String {
    let mut text = String::new();
    for line in &group.lines {
        push(
            &mut text,
            &format!("| {} |\n", cells(group, line).map(|cell| cell.replace('|', "\\|")).join(" | ")),
        );
    }
    text
}

/// The cells of a line: rank, who, figure, p99, to raw statements, remarks.
pub(crate) fn cells(group: &Group, line: &Line) -> [String; 6] {
    [
        line.rank.map_or_else(String::new, |rank| rank.to_string()),
        line.who.clone(),
        figure(group.unit, line.median, line.value),
        percentile(line.tail.p99),
        line.to_floor.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string()),
        line.remarks.join(", "),
    ]
}

/// Of what has latencies.
pub(crate) fn percentile(micros: f64) -> String {
    if micros > 0.0 { show::time(micros) } else { "-".to_owned() }
}

/// With its interval, or with the reason why there is none.
pub(crate) fn figure(unit: Unit, median: f64, value: Option<Interval>) -> String {
    match value {
        Some(value) => show::value(unit, value),
        None if median > 0.0 => "too few rounds".to_owned(),
        None => "-".to_owned(),
    }
}

fn push(text: &mut String, more: &str) {
    text.write_str(more).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("4 tasks"), "4 tasks");
        assert_eq!(quoted("2 processes, hold 0 ms"), "\"2 processes, hold 0 ms\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
    }
}
