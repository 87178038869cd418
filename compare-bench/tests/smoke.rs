//! A very short run on the backends that are always there, and the form of what it writes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn compare(arguments: &[&str], folder: &Path) -> (Output, Option<Value>) {
    let program = env!("CARGO_BIN_EXE_compare-bench");
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let written = std::fs::read_to_string(folder.join("results.json")).ok();
    (output, written.map(|text| serde_json::from_str(&text).unwrap()))
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

#[test]
fn a_short_run_writes_what_the_schema_says() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = compare(&["--smoke", "--backend", "memory,sqlite"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("ratio = lockwell / raw statements"), "{shown}");

    let report = report.expect("results.json");
    assert_eq!(report["schema"], "lockwell-compare");
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["mode"], "smoke");
    assert!(report["build"]["profile"].is_string());
    for field in ["cores", "memory_mib"] {
        assert!(positive(&report["machine"][field]), "{field}");
    }
    for field in ["missing", "failures"] {
        assert_eq!(report[field], Value::Array(Vec::new()), "{field}");
    }
    assert!(report["violation"].is_null());

    let backends = report["backends"].as_array().unwrap();
    assert_eq!(backends.len(), 2);
    assert_eq!(backends[1]["settings"]["synchronous"], "2", "FULL, as the backend sets it");
    for backend in backends {
        for field in ["name", "address", "version", "storage", "floor"] {
            assert!(backend[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {backend}");
        }
    }

    let results = report["results"].as_array().unwrap();
    for backend in ["memory", "sqlite"] {
        for workload in ["uncontended", "independent", "handoff", "crowd"] {
            let is_it = |result: &&Value| result["backend"] == backend && result["workload"] == workload;
            let result = results.iter().find(is_it).unwrap_or_else(|| panic!("{workload} on {backend}"));
            check(result);
        }
    }
    let processes = results.iter().find(|result| result["parties_are"] == "processes").unwrap();
    assert_eq!((&processes["backend"], &processes["workload"]), (&"sqlite".into(), &"handoff".into()));
}

fn check(result: &Value) {
    assert!(["latency_us", "per_second"].contains(&result["quantity"].as_str().unwrap()), "{result}");
    for field in ["ours", "floor", "ratio", "per_second", "floor_per_second", "parties"] {
        assert!(positive(&result[field]), "{field} of {result}");
    }
    for spread in ["latency_us", "floor_latency_us"] {
        for field in ["samples", "mean", "p50", "p90", "p99", "p999", "max"] {
            assert!(positive(&result[spread][field]), "{spread}.{field} of {result}");
        }
        assert!(result[spread]["p50"].as_f64() <= result[spread]["p99"].as_f64(), "{spread} of {result}");
    }
    let rounds = result["rounds"].as_array().unwrap();
    assert!(!rounds.is_empty() && rounds.iter().all(|round| positive(&round["ours"])), "{result}");
    let handing = &result["handing"];
    if result["workload"] == "handoff" || result["workload"] == "crowd" {
        assert_eq!((&handing["overlaps"], &handing["tokens_rise"]), (&0.into(), &true.into()));
        assert_eq!(handing["shares"].as_array().unwrap().len() as u64, result["parties"].as_u64().unwrap());
        assert!(positive(&handing["acquisitions"]) && positive(&handing["jain"]), "{result}");
    } else {
        assert!(handing.is_null(), "{result}");
    }
}

#[test]
fn redis_is_measured_alone_and_as_redlock() {
    if let Err(reason) = testbed::Redis::installed() {
        assert!(!testbed::servers_required(), "{reason}");
        eprintln!("IGNORED: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = compare(&["--smoke", "--backend", "redis,redlock"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let report = report.expect("results.json");
    let backends = report["backends"].as_array().unwrap();
    assert_eq!(backends.len(), 2);
    for backend in backends {
        let settings = &backend["settings"];
        assert_eq!((&settings["appendonly"], &settings["appendfsync"]), (&"yes".into(), &"always".into()));
    }
    assert!(backends[1]["version"].as_str().unwrap().starts_with("5 x Redis"), "{}", backends[1]);
    for result in report["results"].as_array().unwrap() {
        check(result);
        assert_eq!(result["workload"] == "handoff", result["trips"].is_number(), "{result}");
    }
}

#[test]
fn servers_can_be_far_away_and_keep_nothing() {
    if let Err(reason) = testbed::Redis::installed() {
        assert!(!testbed::servers_required(), "{reason}");
        eprintln!("IGNORED: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = "--smoke --backend redis --only uncontended --delay 5ms --durability none";
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report.expect("results.json");
    let backend = &report["backends"][0];
    assert_eq!(backend["storage"], "memory, 5ms away");
    assert_eq!(backend["settings"]["appendonly"], "no");
    // Two trips there and back.
    assert!(report["results"][0]["floor"].as_f64().unwrap() >= 20_000.0, "{}", report["results"][0]);
}

#[test]
fn a_server_that_cannot_be_reached_is_listed_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let url = "postgres://ann:hunter2@127.0.0.1:1/app";
    let (output, report) = compare(&["--smoke", "--url", url, "--only", "uncontended"], folder.path());
    assert!(!output.status.success(), "nothing was measured");
    let report = report.expect("results.json");
    assert_eq!(report["missing"][0]["backend"], "postgres");
    assert!(!report["missing"][0]["reason"].as_str().unwrap().is_empty());
    let everything = format!("{output:?}{report}");
    assert!(!everything.contains("hunter2"), "the password is shown: {everything}");
}

#[test]
fn an_address_can_be_measured_and_workloads_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) =
        compare(&["--smoke", "--url", "memory://", "--only", "uncontended"], folder.path());
    assert!(output.status.success());
    let report = report.expect("results.json");
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["workload"], "uncontended");
    assert_eq!(report["backends"][0]["storage"], "unknown");
}

#[test]
fn the_list_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = compare(&["--list"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.is_none());
    for word in ["uncontended", "handoff", "sqlite", "mariadb", "redis", "redlock", "rslock"] {
        assert!(shown.contains(word), "{shown}");
    }
}
