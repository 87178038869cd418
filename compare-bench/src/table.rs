//! The results for people.

use comfy_table::{Cell, CellAlignment, Table};

use crate::measure::history::Handing;
use crate::measure::interval::Interval;
use crate::record::{HOW_TO_READ, Measurement, PeerResult, Quantity, Report};

const HEADER: [&str; 9] =
    ["backend", "workload", "case", "p50", "p99", "per second", "floor", "ratio", "sharing"];

/// Prints the report on the standard output.
pub(crate) fn print(report: &Report) {
    println!("{}", render(report));
}

fn render(report: &Report) -> String {
    let mut lines = vec![machine(report)];
    for backend in &report.backends {
        let settings = backend.settings.iter().map(|(name, value)| format!(", {name}={value}"));
        let settings: String = settings.collect();
        lines.push(format!("{}: {}, data on {}{settings}", backend.name, backend.version, backend.storage));
    }
    if !report.results.is_empty() {
        lines.push(table(&report.results).to_string());
        lines.push(HOW_TO_READ.to_owned());
        lines.push(COLUMNS.to_owned());
    }
    if report.results.iter().any(|result| !result.peers.is_empty()) {
        lines.push(PEERS.to_owned());
    }
    let mut setups: Vec<_> =
        report.results.iter().flat_map(|result| &result.peers).filter_map(setup).collect();
    setups.sort();
    setups.dedup();
    lines.extend(setups);
    if report.results.iter().any(|result| result.unsteady) {
        lines.push(UNSTEADY.to_owned());
    }
    if report.results.iter().any(|result| result.noisy && result.ratio.is_some()) {
        lines.push(NOISY.to_owned());
    }
    if report.results.iter().any(lacks_a_ratio) {
        lines.push(TOO_FEW.to_owned());
    }
    for missing in &report.missing {
        lines.push(format!("not measured: {}: {}", missing.backend, missing.reason));
    }
    for failure in &report.failures {
        lines.push(format!("FAILED: {} on {}: {}", failure.workload, failure.backend, failure.reason));
    }
    if let Some(violation) = &report.violation {
        lines.push(format!(
            "THE LOCK DID NOT EXCLUDE. {} on {}: {}",
            violation.workload, violation.backend, violation.reason
        ));
    }
    if report.build.profile != "release" {
        lines.push(DEBUG.to_owned());
    }
    lines.join("\n")
}

const COLUMNS: &str = "p50 and p99: of acquire + release; for handoff, from one release to the next acquire; for crowd, of the \
     wait. Per second: acquisitions. Floor: a raw cycle (take a row, clear it; make a node, delete it); for memory a tokio Mutex. Trips: p50 of a \
     hand-over, in round trips of a request that writes nothing; with --delay. Jain: 1 is \
     fair, 1/n is one taking everything. Requests: what the server received for each acquisition, by its own count.";

const PEERS: &str = "Other libraries do the same work in the same rounds, and their ratio is to the same floor. For handoff, theirs is \
     from a release until whoever had waited longest has the lock: without a queue, others barge in.";

/// How a peer was set up.
fn setup(peer: &PeerResult) -> Option<String> {
    let (version, setup) = (peer.version.as_deref()?, peer.setup.as_deref()?);
    Some(format!("{} {version}: {setup}", peer.name))
}

const UNSTEADY: &str = "?: the floor itself changed by half or more between the rounds (the disk, or other work on this \
     machine), so this ratio says little. --tmpfs takes the disk out.";

const NOISY: &str =
    "noisy: the interval was still wider than 5 % to either side when the time of the case was up.";

fn lacks_a_ratio(result: &Measurement) -> bool {
    let lacks = |peer: &PeerResult| peer.error.is_none() && peer.ratio.is_none();
    result.ratio.is_none() || result.peers.iter().any(lacks)
}

const TOO_FEW: &str = "-: too few rounds for an interval, and so no ratio.";

/// The loud warning.
pub(crate) const DEBUG: &str = "WARNING: this is a debug build. Its figures mean nothing. Build with --release, or use `cargo xtask compare`.";

fn machine(report: &Report) -> String {
    let (machine, build) = (&report.machine, &report.build);
    let commit = build.git_commit.as_deref().map_or(String::new(), |commit| {
        let changed = if build.git_dirty == Some(true) { " with changes" } else { "" };
        format!(", commit {}{changed}", commit.get(..10).unwrap_or(commit))
    });
    format!(
        "{} ({} cores, {} MiB, {}), {} run of {} s, {}{commit}",
        machine.cpu,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        report.mode,
        report.seconds.round(),
        report.date,
    )
}

fn table(results: &[Measurement]) -> Table {
    let mut table = Table::new();
    table.set_header(HEADER);
    for result in results {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let floor = match result.quantity {
            Quantity::LatencyUs => time(result.floor),
            Quantity::PerSecond => format!("{}/s", number(result.floor)),
        };
        table.add_row(vec![
            Cell::new(&result.backend),
            Cell::new(&result.workload),
            Cell::new(&result.case),
            right(time(result.latency_us.p50)),
            right(time(result.latency_us.p99)),
            right(number(result.per_second)),
            right(floor),
            right(ratio(result)),
            Cell::new(result.handing.as_ref().map_or(String::new(), |it| sharing(it, result.requests_each))),
        ]);
        for peer in &result.peers {
            table.add_row(peer_row(result, peer));
        }
    }
    table
}

/// Another library, below ours.
fn peer_row(result: &Measurement, peer: &PeerResult) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let name = format!("  {} {}", peer.name, peer.version.as_deref().unwrap_or_default());
    let mut row = vec![Cell::new(name.trim_end()), Cell::new(&result.workload), Cell::new(&result.case)];
    let figures = match &peer.error {
        Some(_) => vec![String::new(); 5],
        None => vec![
            time(peer.latency_us.p50),
            time(peer.latency_us.p99),
            number(peer.per_second),
            String::new(),
            shown(peer.ratio),
        ],
    };
    row.extend(figures.into_iter().map(right));
    // A second line: one would make the table wider than the figures need.
    let against = match (peer.ours_to_theirs, peer.ours_to_theirs.and_then(Interval::inverse)) {
        (Some(small), Some(inverse)) if small.median < 0.1 => format!("{} / lockwell: {inverse}", peer.name),
        (usual, _) => format!("lockwell / {}: {}", peer.name, shown(usual)),
    };
    row.push(Cell::new(match (&peer.error, &peer.handing) {
        (Some(error), _) => error.clone(),
        (None, None) => against,
        (None, Some(handing)) => format!("{}\n{against}", sharing(handing, peer.requests_each)),
    }));
    row
}

fn sharing(handing: &Handing, requests_each: Option<f64>) -> String {
    let requests = requests_each.map_or(String::new(), |each| format!(", {} requests each", number(each)));
    handing.line() + &requests
}

/// Three significant digits are enough for people.
fn time(micros: f64) -> String {
    match micros {
        small if small < 10.0 => format!("{small:.2} us"),
        small if small < 100.0 => format!("{small:.1} us"),
        small if small < 1000.0 => format!("{small:.0} us"),
        middle if middle < 10_000.0 => format!("{:.2} ms", middle / 1000.0),
        middle if middle < 1e6 => format!("{:.1} ms", middle / 1000.0),
        large => format!("{:.2} s", large / 1e6),
    }
}

/// Below the ratio, in a line of its own: how many trips that is.
fn ratio(result: &Measurement) -> String {
    let mark = if result.unsteady { " ?" } else { "" };
    let noisy = if result.noisy && result.ratio.is_some() { " noisy" } else { "" };
    let trips = result.trips.map_or(String::new(), |trips| format!("\n= {trips} trips"));
    format!("{}{mark}{noisy}{trips}", shown(result.ratio))
}

/// With its interval, or not at all.
fn shown(ratio: Option<Interval>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string())
}

fn number(value: f64) -> String {
    match value {
        small if small < 100.0 => format!("{small:.1}"),
        small if small < 10_000.0 => format!("{small:.0}"),
        middle if middle < 1e6 => format!("{:.1} k", middle / 1000.0),
        large => format!("{:.2} M", large / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stats::Sample;
    use crate::record::{Round, compare};

    #[test]
    fn figures_are_short() {
        assert_eq!(time(0.031), "0.03 us");
        assert_eq!(time(123.4), "123 us");
        assert_eq!(time(12_345.0), "12.3 ms");
        assert_eq!(number(8_123.4), "8123");
        assert_eq!(number(81_234.0), "81.2 k");
        assert_eq!(number(8_123_456.0), "8.12 M");
    }

    fn measured(rounds: usize) -> Measurement {
        let rounds = vec![Round { ours: 3.0, floor: 2.0 }; rounds];
        let (ours, floor, ratio) = compare(&rounds);
        let spread = Sample::new().spread();
        let against = |name: &str, theirs| PeerResult {
            name: str::to_owned(name),
            version: Some("1.0".to_owned()),
            setup: None,
            theirs,
            ratio: ratio.map(|_| Interval { median: theirs / 2.0, low: theirs / 2.0, high: theirs / 2.0 }),
            ours_to_theirs: Interval::of(rounds.iter().map(|round| round.ours / theirs)),
            rounds: Vec::new(),
            latency_us: spread.clone(),
            per_second: 1.0,
            handing: None,
            requests_each: None,
            error: None,
        };
        Measurement {
            backend: "redis".to_owned(),
            workload: "handoff".to_owned(),
            case: "2 processes".to_owned(),
            parties: 2,
            parties_are: "processes".to_owned(),
            option: None,
            noisy: false,
            load: 0.0,
            busy: 0.0,
            hold_us: 0,
            quantity: Quantity::LatencyUs,
            ours,
            floor,
            ratio,
            unsteady: false,
            rounds: rounds.clone(),
            latency_us: spread.clone(),
            latency_of: String::new(),
            floor_latency_us: spread.clone(),
            per_second: 1.0,
            floor_per_second: 1.0,
            handing: None,
            requests_each: None,
            trip_us: Some(1.0),
            trips: Interval::of(rounds.iter().map(|round| round.ours)),
            peers: vec![against("quick", 2.5), against("slow", 300.0)],
        }
    }

    #[test]
    fn no_ratio_is_shown_without_its_interval() {
        let mut report = crate::record::tests::report();
        report.results.push(measured(6));
        let text = render(&report);
        for expected in [
            " 1.50 [1.50 .. 1.50] |",
            " = 3.00 [3.00 .. 3.00] trips |",
            " 1.25 [1.25 .. 1.25] |",
            " lockwell / quick: 1.20 [1.20 .. 1.20] ",
            " slow / lockwell: 100 [100 .. 100] ",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains(TOO_FEW), "{text}");

        report.results = vec![measured(2)];
        let text = render(&report);
        let rows: String = text.lines().filter(|line| line.starts_with('|')).collect();
        for ratio in ["1.50", "1.25", "1.20", "trips", "[", "/ lockwell"] {
            assert!(!rows.contains(ratio), "{ratio} in {text}");
        }
        assert!(rows.contains(" lockwell / slow: - ") && text.contains(TOO_FEW), "{text}");
    }

    #[test]
    fn an_empty_report_still_says_what_is_missing() {
        let mut report = crate::record::tests::report();
        report
            .missing
            .push(crate::record::Missing { backend: "postgres".into(), reason: "not there".into() });
        let text = render(&report);
        assert!(text.contains("not measured: postgres: not there"), "{text}");
    }
}
