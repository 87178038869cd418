//! One figure in the text: `STORAGE BACKEND WORKLOAD METRIC`.

use serde_json::Value;

use super::runs::{Run, digits, rate, ratio, time};
use crate::shell::Result;

/// What a metric is in a result.
type Metric = fn(&Value) -> Option<String>;

const METRICS: [(&str, Metric); 5] = [
    ("p50", |result| result["latency_us"]["p50"].as_f64().map(time)),
    ("p99", |result| result["latency_us"]["p99"].as_f64().map(time)),
    ("ratio", |result| ratio(&result["ratio"])),
    ("rate", |result| result["per_second"].as_f64().map(rate)),
    ("requests", |result| result["requests_each"].as_f64().map(digits)),
];

/// Of the case with the most parties, and without a hold. `None` if no run has it.
pub(super) fn figure(what: &str, runs: &[Run]) -> Result<Option<String>> {
    let words: Vec<_> = what.split(' ').collect();
    let [storage, backend, workload, metric] = words[..] else {
        return Err(format!("{what:?} is not STORAGE BACKEND WORKLOAD METRIC"));
    };
    let Some((_, metric)) = METRICS.iter().find(|(name, _)| *name == metric) else {
        return Err(format!(
            "there is no metric {metric:?}, but {}",
            METRICS.map(|(name, _)| name).join(", ")
        ));
    };
    let run = runs.iter().find(|run| run.is_on(storage));
    Ok(run.and_then(|run| run.last(backend, workload, 0)).and_then(metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::runs::tests::run;

    #[test]
    fn metrics_are_found() {
        let runs = [run("tmpfs")];
        let figure = |what: &str| figure(what, &runs).unwrap();
        assert_eq!(figure("tmpfs redis uncontended p99").as_deref(), Some("90.0 us"));
        assert_eq!(figure("tmpfs redis crowd rate").as_deref(), Some("22.7 k/s"));
        assert_eq!(figure("tmpfs redis crowd requests").as_deref(), Some("2.50"));
        assert_eq!(figure("tmpfs redis handoff ratio").as_deref(), Some("1.25 [1.20 .. 1.30]"));
        assert_eq!(figure("disk redis handoff ratio"), None);
        assert_eq!(figure("tmpfs postgres handoff ratio"), None);
    }
}
