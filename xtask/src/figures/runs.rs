//! The runs that are committed, and figures of them in the form that people read.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::shell::Result;

/// One result file.
#[derive(Debug)]
pub(crate) struct Run {
    report: Value,
}

/// All runs of a folder, the newest first. There may be none.
pub(crate) fn runs(folder: &Path) -> Result<Vec<Run>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|it| it == "json") {
            let problem = |error: String| format!("{}: {error}", path.display());
            let text = fs::read_to_string(&path).map_err(|error| problem(error.to_string()))?;
            let report: Value = serde_json::from_str(&text).map_err(|error| problem(error.to_string()))?;
            fit(&report).map_err(|reason| problem(reason.to_owned()))?;
            all.push(Run { report });
        }
    }
    all.sort_by(|one, other| other.text("date").cmp(one.text("date")));
    Ok(all)
}

/// What is shown to others was measured to the end, by a release build of a commit.
fn fit(report: &Value) -> std::result::Result<(), &'static str> {
    if report["schema"] != "lockwell-compare" {
        Err("this is no result of compare-bench")
    } else if report["finished"] != true || report["mode"] == "smoke" {
        Err("this run is not complete, or was made for a test")
    } else if report["build"]["profile"] != "release" || report["build"]["git_dirty"] != false {
        Err("this run is of a debug build, or of a checkout with changes")
    } else {
        Ok(())
    }
}

impl Run {
    fn text(&self, field: &str) -> &str {
        self.report[field].as_str().unwrap_or_default()
    }

    /// Whether it is the run on a disk or on tmpfs, without a delay.
    pub(crate) fn is_on(&self, storage: &str) -> bool {
        let conditions = &self.report["conditions"];
        let is_tmpfs = conditions["storage"] == "tmpfs";
        conditions["delay_us"] == 0 && is_tmpfs == (storage == "tmpfs")
    }

    pub(crate) fn backends(&self) -> Vec<&str> {
        list(&self.report["backends"]).filter_map(|backend| backend["name"].as_str()).collect()
    }

    /// Results of a workload, those of our lock without options.
    pub(crate) fn results(&self, workload: &str) -> impl Iterator<Item = &Value> {
        let workload = workload.to_owned();
        list(&self.report["results"])
            .filter(move |result| result["workload"] == *workload && result["option"].is_null())
    }

    /// The one with the most parties of all that fit, which is the last of its kind.
    pub(crate) fn last(&self, backend: &str, workload: &str, hold_us: u64) -> Option<&Value> {
        self.results(workload)
            .filter(|result| result["backend"] == backend && result["hold_us"] == hold_us)
            .max_by_key(|result| result["parties"].as_u64())
    }

    /// The same work with this option of our client.
    pub(crate) fn variant(&self, plain: &Value, option: Option<&str>) -> Option<&Value> {
        let same = |field: &str, other: &Value| other[field] == plain[field];
        list(&self.report["results"]).find(|other| {
            ["backend", "workload", "parties", "hold_us"].into_iter().all(|field| same(field, other))
                && other["option"].as_str() == option
        })
    }

    /// Machine, commit, date, servers: what a reader has to know.
    pub(crate) fn about(&self) -> String {
        let (machine, build, conditions) =
            (&self.report["machine"], &self.report["build"], &self.report["conditions"]);
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let servers: Vec<_> = list(&self.report["backends"])
            .map(|backend| format!("{} on {}", text(&backend["name"]), text(&backend["version"])))
            .collect();
        format!(
            "{}, {} cores, {}; data on {}, durability `{}`; commit {}, {}: {}.",
            text(&machine["cpu"]),
            machine["cores"],
            text(&machine["kernel"]),
            text(&conditions["storage"]),
            text(&conditions["durability"]),
            text(&build["git_commit"]).get(..10).unwrap_or("?"),
            self.text("date").get(..10).unwrap_or("?"),
            servers.join(", "),
        )
    }
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Three digits at most, as the terminal shows them.
pub(crate) fn time(micros: f64) -> String {
    let (value, unit) = match micros {
        small if small < 1e3 => (small, "us"),
        middle if middle < 1e6 => (middle / 1e3, "ms"),
        large => (large / 1e6, "s"),
    };
    format!("{} {unit}", digits(value))
}

pub(crate) fn rate(each_second: f64) -> String {
    match each_second {
        small if small < 10_000.0 => format!("{small:.0}/s"),
        middle if middle < 1e6 => format!("{} k/s", digits(middle / 1e3)),
        large => format!("{} M/s", digits(large / 1e6)),
    }
}

pub(crate) fn digits(value: f64) -> String {
    match value {
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

/// A ratio with its interval, which is never left out.
pub(crate) fn ratio(value: &Value) -> Option<String> {
    let number = |field: &str| value[field].as_f64();
    Some(format!("{:.2} [{:.2} .. {:.2}]", number("median")?, number("low")?, number("high")?))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn run(storage: &str) -> Run {
        let spread = |p50: f64| json!({ "p50": p50, "p99": 2.0 * p50 });
        let result = |workload: &str, parties: u64, p50: f64| {
            json!({
                "backend": "redis", "workload": workload, "case": "", "parties": parties, "hold_us": 0, "option": null,
                "ratio": { "median": 1.25, "low": 1.2, "high": 1.3 }, "latency_us": spread(p50), "per_second": 22_700.0,
                "requests_each": 2.5, "peers": [{
                    "name": "rslock", "version": "0.10", "latency_us": spread(37.0), "per_second": 1261.0,
                    "ratio": { "median": 1.0, "low": 0.9, "high": 1.1 }, "error": null,
                }],
            })
        };
        let mut recovery = result("recovery", 8, 3e6);
        recovery["case"] = "the holder is killed".into();
        recovery["ours"] = 3e6.into();
        recovery["recovery"] = json!({ "times_us": [2.5e6, 3e6, 4e6], "bound_us": 5.3e6 });
        let mut holding = result("holding", 1000, 0.0);
        holding["holding"] = json!({
            "locks": 1000, "requests_per_second": 2.25, "connections": 2,
            "client": { "cpu_us": 900.0, "memory_kib": 9000, "grown_kib": 512 }, "server": null,
        });
        let mut coalesce = result("crowd", 500, 900.0);
        coalesce["option"] = "coalesce=true".into();
        coalesce["per_second"] = 4500.0.into();
        let report = json!({
            "schema": "lockwell-compare", "date": "2026-01-31T12:00:00Z", "finished": true, "mode": "full",
            "conditions": { "storage": storage, "durability": "disk", "delay_us": 0 },
            "machine": { "cpu": "A CPU", "cores": 2, "kernel": "linux 6" },
            "build": { "profile": "release", "git_commit": "0123456789abcdef", "git_dirty": false },
            "backends": [{ "name": "redis", "version": "Redis 7.0.15" }],
            "results": [
                result("uncontended", 1, 45.0), result("independent", 64, 900.0), result("handoff", 4, 220.0),
                result("crowd", 500, 900.0), coalesce, recovery, holding,
            ],
        });
        assert_eq!(fit(&report), Ok(()));
        Run { report }
    }

    #[test]
    fn only_whole_runs_of_a_commit_are_taken() {
        for (field, value) in [
            ("finished", json!(false)),
            ("mode", json!("smoke")),
            ("schema", json!("x")),
            ("build", json!({})),
        ] {
            let mut report = run("ext4").report;
            report[field] = value;
            assert!(fit(&report).is_err(), "{field}");
        }
    }

    #[test]
    fn runs_are_told_apart_by_their_storage() {
        assert!(run("ext4").is_on("disk") && !run("ext4").is_on("tmpfs"));
        assert!(run("tmpfs").is_on("tmpfs") && !run("tmpfs").is_on("disk"));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!([time(45.2), time(2210.0), time(3.2e6)], ["45.2 us", "2.21 ms", "3.20 s"]);
        assert_eq!([rate(1261.0), rate(22_700.0), rate(2e6)], ["1261/s", "22.7 k/s", "2.00 M/s"]);
    }

    #[test]
    fn a_reader_learns_what_was_measured() {
        let about = run("ext4").about();
        for word in ["A CPU, 2 cores", "data on ext4", "0123456789", "2026-01-31", "redis on Redis 7.0.15"] {
            assert!(about.contains(word), "{about}");
        }
    }
}
