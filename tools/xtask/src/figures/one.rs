//! One figure in the text: `RUN BACKEND WORKLOAD METRIC`.

use serde_json::Value;

use super::runs::{Run, digits, list, median, named, rate, ratio, time};
use crate::shell::Result;

/// What a metric is in a result.
type Metric = fn(&Value) -> Option<String>;

const METRICS: [(&str, Metric); 8] = [
    ("time", |result| median(result).map(time)),
    ("p99", |result| result["latency_us"]["p99"].as_f64().map(time)),
    ("ratio", |result| ratio(&result["ratio"])),
    ("rate", |result| median(result).map(rate)),
    ("requests", |result| result["requests_each"].as_f64().map(digits)),
    ("trips", |result| ratio(&result["trips"])),
    ("handovers", |result| result["handing"]["handovers_per_second"].as_f64().map(rate)),
    // Of another library: how lockwell compares with it.
    ("to", |peer| ratio(&peer["ours_to_theirs"])),
];

/// Of the case with the most parties, and without a hold. `METRIC:LIBRARY` is the figure of another library.
pub(super) fn figure(what: &str, runs: &[Run]) -> Result<String> {
    let words: Vec<_> = what.split(' ').collect();
    let [run, backend, workload, metric] = words[..] else {
        return Err(format!("{what:?} is not RUN BACKEND WORKLOAD METRIC"));
    };
    let (metric, library) = metric.split_once(':').map_or((metric, None), |(one, of)| (one, Some(of)));
    let Some((_, metric)) = METRICS.iter().find(|(name, _)| *name == metric) else {
        let names = METRICS.map(|(name, _)| name).join(", ");
        return Err(format!("there is no metric {metric:?}, but {names}, each also with :LIBRARY"));
    };
    let result = named(runs, run)?.last(backend, workload, 0);
    let subject = match library {
        Some(name) => result.and_then(|result| list(&result["peers"]).find(|peer| peer["name"] == name)),
        None => result,
    };
    subject.and_then(metric).ok_or_else(|| format!("no result of the run has {what:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::runs::tests::run;

    #[test]
    fn metrics_are_found() {
        let runs = [run("tmpfs")];
        for missing in
            ["disk redis handoff ratio", "tmpfs postgres handoff ratio", "tmpfs redis handoff to:kazoo"]
        {
            assert!(figure(missing, &runs).is_err(), "{missing}");
        }
        let figure = |what: &str| figure(what, &runs).unwrap();
        assert_eq!(figure("tmpfs redis uncontended time"), "45.0 us");
        assert_eq!(figure("tmpfs redis uncontended time:rslock"), "37.0 us");
        assert_eq!(figure("tmpfs redis uncontended p99"), "90.0 us");
        assert_eq!(figure("tmpfs redis crowd rate"), "22.7 k/s");
        assert_eq!(figure("tmpfs redis crowd requests"), "2.50");
        assert_eq!(figure("tmpfs redis handoff ratio"), "1.25 [1.20 .. 1.30]");
        assert_eq!(figure("tmpfs redis handoff trips"), "1.02 [1.00 .. 1.10]");
        assert_eq!(figure("tmpfs redis handoff handovers"), "3988/s");
        assert_eq!(figure("tmpfs redis uncontended to:rslock"), "1.11 [1.05 .. 1.20]");
    }
}
