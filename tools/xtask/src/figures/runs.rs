//! The runs that are committed, and figures of them in the form that people read.

use serde_json::Value;

use crate::shell::Result;

/// The most parties that the documentation quotes. A full run has more of them, which share the two cores of
/// the machine, and the other runs do not.
const MOST_PARTIES: [(&str, u64); 3] = [("independent", 64), ("handoff", 4), ("crowd", 500)];

/// One run, in one or several result files.
#[derive(Debug)]
pub(crate) struct Run {
    /// That of its files up to the first dot: `disk` of `disk.sql.json.gz` and `disk.redis.json.gz`.
    name: String,
    /// Each has other backends.
    reports: Vec<Value>,
}

/// The run of this name.
pub(crate) fn named<'a>(runs: &'a [Run], name: &str) -> Result<&'a Run> {
    runs.iter().find(|run| run.name == name).ok_or_else(|| {
        let names: Vec<&str> = runs.iter().map(|run| &*run.name).collect();
        format!("there is no run {name:?}, but {}", names.join(", "))
    })
}

/// What is shown to others was measured to the end, by a release build of a commit, and is what its name
/// says.
fn fit(name: &str, report: &Value) -> std::result::Result<(), &'static str> {
    let conditions = &report["conditions"];
    if report["schema"] != "lockwell-compare" {
        Err("this is no result of compare-bench")
    } else if report["finished"] != true || report["mode"] == "smoke" {
        Err("this run is not complete, or was made for a test")
    } else if list(&report["failures"]).next().is_some() {
        Err("cases of this run have failed")
    } else if report["build"]["profile"] != "release" || report["build"]["git_dirty"] != false {
        Err("this run is not of a release build, or of a checkout with changes")
    } else if name.starts_with("delay") != (conditions["delay_us"] != 0) {
        Err("only the names of runs with a delay begin with delay")
    } else if (name == "tmpfs") != (conditions["storage"] == "tmpfs" && conditions["delay_us"] == 0) {
        Err("only the run on tmpfs without a delay has this name")
    } else {
        Ok(())
    }
}

impl Run {
    pub(super) fn new(name: String, report: Value) -> Result<Self> {
        fit(&name, &report)?;
        Ok(Self { name, reports: vec![report] })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds what other backends did, on a machine like that of the others.
    pub(super) fn add(&mut self, report: Value) -> Result<()> {
        fit(&self.name, &report)?;
        let machine =
            |report: &Value| ["cpu", "cores", "memory_mib"].map(|field| report["machine"][field].clone());
        let first = &self.reports[0];
        if machine(first) != machine(&report) || first["conditions"] != report["conditions"] {
            return Err("this part was measured on another machine, or under other conditions".to_owned());
        }
        let names = |report: &Value| -> Vec<String> {
            list(&report["backends"]).filter_map(|it| Some(it["name"].as_str()?.to_owned())).collect()
        };
        if names(&report).iter().any(|name| self.backends().contains(&&**name)) {
            return Err("two parts of the run have the same backend".to_owned());
        }
        self.reports.push(report);
        Ok(())
    }

    /// How much later data arrives, each way.
    pub(crate) fn delay_us(&self) -> u32 {
        let micros = self.reports[0]["conditions"]["delay_us"].as_u64().unwrap_or_default();
        u32::try_from(micros).unwrap_or(u32::MAX)
    }

    pub(crate) fn backends(&self) -> Vec<&str> {
        self.each("backends").filter_map(|backend| backend["name"].as_str()).collect()
    }

    /// The parts of all its files.
    fn each(&self, field: &str) -> impl Iterator<Item = &Value> {
        self.reports.iter().flat_map(move |report| list(&report[field]))
    }

    /// Results of a workload that are quoted: those of our lock without options, and not with more parties
    /// than elsewhere.
    pub(crate) fn results(&self, workload: &str) -> impl Iterator<Item = &Value> {
        let workload = workload.to_owned();
        let most =
            MOST_PARTIES.iter().find(|(name, _)| *name == workload).map_or(u64::MAX, |(_, most)| *most);
        self.each("results").filter(move |result| {
            result["workload"] == *workload
                && result["option"].is_null()
                && result["parties"].as_u64().is_some_and(|parties| parties <= most)
        })
    }

    /// The one with the most parties of all that fit, which is the last of its kind.
    pub(crate) fn last(&self, backend: &str, workload: &str, hold_us: u64) -> Option<&Value> {
        self.results(workload)
            .filter(|result| result["backend"] == backend && result["hold_us"] == hold_us)
            .max_by_key(|result| result["parties"].as_u64())
    }

    /// So many processes on one name, which each holds for this time.
    pub(crate) fn contended(&self, backend: &str, parties: u64, hold_us: u64) -> Option<&Value> {
        self.each("results").find(|result| {
            result["workload"] == "handoff"
                && result["backend"] == backend
                && result["parties"] == parties
                && result["hold_us"] == hold_us
                && result["option"].is_null()
        })
    }

    /// The same work with this option of our client.
    pub(crate) fn variant(&self, plain: &Value, option: Option<&str>) -> Option<&Value> {
        let same = |field: &str, other: &Value| other[field] == plain[field];
        self.each("results").find(|other| {
            ["backend", "workload", "parties", "hold_us"].into_iter().all(|field| same(field, other))
                && other["option"].as_str() == option
        })
    }

    /// Machine, commit, date, servers: what a reader has to know.
    pub(crate) fn about(&self) -> String {
        self.reports.iter().map(about).collect::<Vec<_>>().join("\n\n")
    }
}

fn about(report: &Value) -> String {
    let (machine, build, conditions) = (&report["machine"], &report["build"], &report["conditions"]);
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let server = |backend: &Value| {
        let (name, version) = (text(&backend["name"]), text(&backend["version"]));
        // The version of memory says where it is.
        let on = if version.starts_with("in ") { "" } else { "on " };
        format!("{name} {on}{version}")
    };
    let servers: Vec<_> = list(&report["backends"]).map(server).collect();
    format!(
        "{}, {} cores, {}; data on {}, durability `{}`; commit {}, {}: {}.",
        text(&machine["cpu"]),
        machine["cores"],
        text(&machine["kernel"]),
        text(&conditions["storage"]),
        text(&conditions["durability"]),
        text(&build["git_commit"]).get(..10).unwrap_or("?"),
        text(&report["date"]).get(..10).unwrap_or("?"),
        servers.join(", "),
    )
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The libraries that were measured beside these results. A faulty recipe is no library.
pub(crate) fn libraries<'a>(results: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for peer in results.into_iter().flat_map(|result| list(&result["peers"])) {
        let name = peer["name"].as_str().filter(|_| peer["unsafe_because"].is_null());
        names.extend(name.filter(|name| !names.contains(name)));
    }
    names
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

/// What a result, or another library in it, is compared by: the median over the rounds, which the report
/// shows, too. That of all latencies together is another one.
pub(crate) fn median(result: &Value) -> Option<f64> {
    result["ours"].as_f64().or_else(|| result["theirs"].as_f64())
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

    /// On a disk, unless its name says otherwise.
    pub(crate) fn run(name: &str) -> Run {
        let storage = if name == "tmpfs" { "tmpfs" } else { "ext4" };
        let delay_ms: u32 = name.strip_prefix("delay-").map_or(0, |it| it.parse().unwrap());
        let away = |here: f64| here + 2000.0 * f64::from(delay_ms);
        // The median over the rounds is not that of all latencies.
        let spread = |median: f64| json!({ "p50": median + 7.0, "p99": 2.0 * median });
        let result = |workload: &str, parties: u64, median: f64| {
            let is_rate = ["independent", "hot", "crowd"].contains(&workload);
            json!({
                "backend": "redis", "workload": workload, "case": "", "parties": parties, "hold_us": 0, "option": null,
                "ratio": { "median": 1.25, "low": 1.2, "high": 1.3 }, "latency_us": spread(median), "per_second": 22_900.0,
                "ours": if is_rate { 22_700.0 } else { median }, "rounds": [{}, {}, {}],
                "requests_each": 2.5, "trips": { "median": 1.02, "low": 1.0, "high": 1.1 },
                "handing": { "handovers_per_second": 3988.0 }, "peers": [{
                    "name": "rslock", "version": "0.10", "latency_us": spread(37.0), "per_second": 1270.0,
                    "theirs": match workload { "uncontended" => 37.0, "handoff" => 63_200.0, _ => 1261.0 },
                    "rounds": [{ "ours": 230.0 }, { "ours": 250.0 }, { "ours": 240.0 }],
                    "handing": { "jain": 0.88, "overlaps": 0 },
                    "ratio": { "median": 1.0, "low": 0.9, "high": 1.1 }, "error": null,
                    "ours_to_theirs": { "median": 1.11, "low": 1.05, "high": 1.2 },
                }],
            })
        };
        let mut recovery = result("recovery", 8, 3e6);
        recovery["case"] = "the holder is killed".into();
        recovery["recovery"] = json!({ "times_us": [2.5e6, 3e6, 4e6], "bound_us": 5.3e6 });
        let mut holding = result("holding", 1000, 0.0);
        holding["holding"] = json!({
            "locks": 1000, "requests_per_second": 2.25, "connections": 2,
            "client": { "cpu_us": 900.0, "memory_kib": 9000, "grown_kib": 512 }, "server": null,
        });
        let mut in_order = result("crowd", 500, 900.0);
        in_order["option"] = "server_order=true".into();
        in_order["ours"] = 450.0.into();
        let report = json!({
            "schema": "lockwell-compare", "date": "2026-01-31T12:00:00Z", "finished": true, "mode": "full",
            "conditions": { "storage": storage, "durability": "disk", "delay_us": delay_ms * 1000 },
            "machine": { "cpu": "A CPU", "cores": 2, "kernel": "linux 6" },
            "build": { "profile": "release", "git_commit": "0123456789abcdef", "git_dirty": false },
            "backends": [{ "name": "redis", "version": "Redis 7.0.15" }],
            "results": [
                result("uncontended", 1, away(45.0)), result("independent", 64, 900.0), result("handoff", 4, 220.0),
                result("hot", 16, 450.0), result("crowd", 500, 900.0), in_order, recovery, holding,
                // Too many to be quoted.
                result("independent", 1024, 9e3), result("handoff", 16, 8e3),
            ],
        });
        assert_eq!(fit(name, &report), Ok(()));
        Run { name: name.to_owned(), reports: vec![report] }
    }

    /// With other results.
    pub(crate) fn changed(mut run: Run, change: impl FnOnce(&mut Vec<Value>)) -> Run {
        change(run.reports[0]["results"].as_array_mut().unwrap());
        run
    }

    #[test]
    fn only_whole_runs_of_a_commit_are_taken() {
        for (field, value) in [
            ("finished", json!(false)),
            ("mode", json!("smoke")),
            ("schema", json!("x")),
            ("build", json!({})),
        ] {
            let mut report = run("disk").reports.remove(0);
            report[field] = value;
            assert!(fit("disk", &report).is_err(), "{field}");
        }
    }

    #[test]
    fn a_run_is_what_its_name_says() {
        for (name, other) in [
            ("disk", "tmpfs"),
            ("disk", "delay-5"),
            ("tmpfs", "disk"),
            ("tmpfs", "delay-5"),
            ("delay-5", "disk"),
        ] {
            assert!(fit(other, &run(name).reports[0]).is_err(), "{name} as {other}");
        }
        let runs = [run("disk"), run("delay-5")];
        assert_eq!(named(&runs, "delay-5").unwrap().delay_us(), 5000);
        assert!(named(&runs, "tmpfs").unwrap_err().contains("disk, delay-5"));
    }

    #[test]
    fn a_run_may_have_several_files() {
        let mut disk = run("disk");
        let mut other = disk.reports[0].clone();
        assert!(disk.add(other.clone()).unwrap_err().contains("same backend"));
        other["backends"][0]["name"] = "zookeeper".into();
        other["results"][0]["backend"] = "zookeeper".into();
        disk.add(other.clone()).unwrap();
        assert_eq!(disk.backends(), ["redis", "zookeeper"]);
        assert!(disk.last("zookeeper", "uncontended", 0).is_some() && disk.about().lines().count() == 3);
        other["machine"]["cores"] = 4.into();
        assert!(disk.add(other).unwrap_err().contains("another machine"));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!([time(45.2), time(2210.0), time(3.2e6)], ["45.2 us", "2.21 ms", "3.20 s"]);
        assert_eq!([rate(1261.0), rate(22_700.0), rate(2e6)], ["1261/s", "22.7 k/s", "2.00 M/s"]);
    }

    #[test]
    fn a_reader_learns_what_was_measured() {
        let about = run("disk").about();
        for word in ["A CPU, 2 cores", "data on ext4", "0123456789", "2026-01-31", "redis on Redis 7.0.15"] {
            assert!(about.contains(word), "{about}");
        }
    }
}
