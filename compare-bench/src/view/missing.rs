//! What a report has no figures for.

use crate::measure::workload;
use crate::record::{PeerResult, Report};
use crate::target::kind::Kind;

/// What was asked for and not measured, and what would measure the rest.
pub(crate) fn not_measured(runs: &[Report]) -> Vec<String> {
    let results = || runs.iter().flat_map(|run| &run.results);
    let missing = || runs.iter().flat_map(|run| &run.missing);
    let mut lines: Vec<String> =
        missing().map(|missing| format!("{}: {}", missing.backend, missing.reason)).collect();
    let unfinished = runs.iter().filter(|run| !run.finished);
    lines.extend(unfinished.map(|run| format!("the run of {} was not complete", run.date)));
    let workloads = workload::ALL.iter().filter(|it| !results().any(|result| result.workload == it.name()));
    let said =
        workloads.map(|workload| workload.about()).map(|about| format!("{}: {}", about.name, about.text));
    lines.extend(said);
    let is_known = |name: &str| {
        let measured = runs.iter().flat_map(|run| &run.backends).any(|backend| backend.name == name);
        measured || missing().any(|missing| missing.backend == name)
    };
    let others: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).filter(|name| !is_known(name)).collect();
    if !others.is_empty() {
        lines.push(format!("{}: use --backend, or --full", others.join(", ")));
    }
    let has_peer = |wanted: fn(&PeerResult) -> bool| results().flat_map(|result| &result.peers).any(wanted);
    let all = |wanted: fn(&Report) -> bool| runs.iter().all(wanted);
    let remaining = [
        (all(|run| run.conditions.delay_us == 0), "a slow network: use --delay"),
        (all(|run| run.conditions.storage == "tmpfs"), "servers with their data on a disk"),
        (all(|run| run.conditions.storage != "tmpfs"), "servers with their data in memory: use --tmpfs"),
        (!has_peer(|peer| peer.unsafe_because.is_none()), "other libraries: use --peers"),
        (!has_peer(|peer| peer.unsafe_because.is_some()), "common but faulty recipes: use --contrast"),
    ];
    lines.extend(remaining.iter().filter(|(is_missing, _)| *is_missing).map(|(_, text)| (*text).to_owned()));
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::report;

    #[test]
    fn what_is_missing_is_told() {
        let lines = not_measured(&[report()]);
        assert!(lines.iter().any(|line| line.contains("was not complete")), "{lines:?}");
        for expected in ["--delay", "--tmpfs", "--peers", "--contrast", "--full", "holding: ", "semaphore: "]
        {
            assert!(lines.iter().any(|line| line.contains(expected)), "{expected} in {lines:?}");
        }
    }
}
