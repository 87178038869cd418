//! Running the program, and what its results must look like.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn compare(arguments: &[&str], folder: &Path) -> (Output, Option<Value>) {
    compare_by(Path::new(env!("CARGO_BIN_EXE_compare-bench")), arguments, folder)
}

/// A comparison that has to succeed: what it shows, and its report.
pub(crate) fn measure(line: &str) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    (shown, report.expect("results.json"))
}

/// The same by another program that the comparison is a part of.
pub(crate) fn compare_by(program: &Path, arguments: &[&str], folder: &Path) -> (Output, Option<Value>) {
    let mut command = Command::new(program);
    command.args(arguments).args(["--json", "results.json"]).current_dir(folder);
    let output = command.output().unwrap();
    let written = std::fs::read_to_string(folder.join("results.json")).ok();
    (output, written.map(|text| serde_json::from_str(&text).unwrap()))
}

pub(crate) fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

pub(crate) fn check(result: &Value) {
    match result["workload"].as_str() {
        Some("holding") => return check_holding(result),
        Some("recovery") => return check_recovery(result),
        _ => {}
    }
    assert!(["latency_us", "per_second"].contains(&result["quantity"].as_str().unwrap()), "{result}");
    for field in ["ours", "floor", "per_second", "floor_per_second", "parties"] {
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
    check_ratio(&result["ratio"], rounds.len());
    assert!(
        result["noisy"].is_boolean() && result["busy"].as_f64().is_some_and(|busy| busy <= 1.0),
        "{result}"
    );
    let handing = &result["handing"];
    if ["handoff", "hot", "crowd", "herd"].contains(&result["workload"].as_str().unwrap()) {
        assert_eq!((&handing["overlaps"], &handing["tokens_rise"]), (&0.into(), &true.into()));
        assert_eq!(handing["shares"].as_array().unwrap().len() as u64, result["parties"].as_u64().unwrap());
        assert!(positive(&handing["acquisitions"]) && positive(&handing["jain"]), "{result}");
    } else {
        assert!(handing.is_null(), "{result}");
    }
}

/// A lease of four seconds ends between two renewals and the time that a busy machine adds.
fn check_recovery(result: &Value) {
    let rounds = result["rounds"].as_array().unwrap();
    let is_lease = |time: &Value| time.as_f64().is_some_and(|time| (1e6..60e6).contains(&time));
    assert!(!rounds.is_empty() && rounds.iter().all(|round| is_lease(&round["ours"])), "{result}");
    assert!(is_lease(&result["ours"]) && result["floor"] == 0.0 && result["ratio"].is_null(), "{result}");
    assert_eq!(result["latency_us"]["samples"], rounds.len(), "{result}");
    assert_eq!((&result["quantity"], &result["noisy"]), (&"latency_us".into(), &false.into()));
}

fn check_holding(result: &Value) {
    let holding = &result["holding"];
    assert_eq!(holding["locks"], result["parties"]);
    assert!(positive(&holding["client"]["memory_kib"]) && positive(&holding["seconds"]), "{result}");
    let is_server = !["memory", "sqlite"].contains(&result["backend"].as_str().unwrap());
    assert_eq!(holding["connections"].as_u64().unwrap() > 0, is_server, "{result}");
    assert_eq!(positive(&holding["server"]["memory_kib"]), is_server, "{result}");
    assert_eq!(holding["requests_per_second"].is_number(), is_server, "{result}");
}

/// Whether there is a ratio depends on the number of rounds alone, and it has an interval around it.
pub(crate) fn check_ratio(ratio: &Value, rounds: usize) {
    if rounds < 3 {
        assert!(ratio.is_null(), "{ratio} of {rounds} rounds");
        return;
    }
    let figures = ["low", "median", "high"].map(|field| ratio[field].as_f64().expect("three figures"));
    assert!(figures.is_sorted() && figures[0] > 0.0, "{ratio}");
}

/// No line is too wide, and each figure in the tables has its interval behind it, or there are too few rounds
/// for one. Whether there were some of both.
pub(crate) fn check_shown(shown: &str) -> (bool, bool) {
    let (mut with, mut without) = (false, false);
    let mut is_table = false;
    for line in shown.lines() {
        let is_long = line.chars().count() > 100 && line.contains(' ');
        let is_path = line.starts_with("all figures") || line.starts_with("`compare-bench render");
        assert!(!is_long || is_path, "{line}");
        is_table = (is_table || line.contains("median [95 %]")) && !line.trim().is_empty();
        let is_row = is_table && (line.contains(" us") || line.contains(" ms") || line.contains("/s"));
        if is_row && !line.contains("median [95 %]") {
            with |= line.contains(" .. ");
            without |= line.contains("too few");
        }
    }
    (with, without)
}
