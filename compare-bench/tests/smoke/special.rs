//! Recovery, holding, faulty recipes, and servers that are rarely measured.

use serde_json::Value;
use testbed::is_installed;

use crate::check::{check, check_shown, compare, positive};

#[test]
fn what_dies_and_what_is_held_is_measured() {
    if !is_installed(testbed::Redis::installed()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = "--smoke --backend redis,redlock3 --durability os --only herd,holding,recovery";
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    for title in ["THE HOLDER DIES", "WHAT HOLDING COSTS", "WHAT WAITING COSTS THE SERVER"] {
        assert!(shown.contains(title), "{shown}");
    }
    check_shown(&shown);
    let report = report.expect("results.json");
    let results = report["results"].as_array().unwrap();
    for backend in ["redis", "redlock3"] {
        let of = |workload: &str| {
            let is_it = |result: &&Value| result["backend"] == backend && result["workload"] == workload;
            results.iter().filter(is_it).collect::<Vec<_>>()
        };
        assert_eq!(of("recovery").len(), 4, "killed, cut off, frozen, killed");
        for result in of("recovery").into_iter().chain(of("holding")).chain(of("herd")) {
            check(result);
        }
        let herd = of("herd")[0];
        assert!(herd["requests_each"].as_f64().unwrap() >= 1.0 && positive(&herd["wakeups_each"]), "{herd}");
    }
}

#[test]
fn recipes_that_are_no_good_are_measured_for_contrast() {
    let mut backends = Vec::new();
    for (name, installed) in [
        ("redis", testbed::Redis::installed()),
        ("postgres", testbed::Postgres::installed()),
        ("mariadb", testbed::MariaDb::installed()),
    ] {
        if is_installed(installed) {
            backends.push(name);
        }
    }
    if backends.is_empty() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let chosen = backends.join(",");
    let line = [
        "--smoke",
        "--contrast",
        "--durability",
        "os",
        "--only",
        "uncontended,handoff",
        "--backend",
        &chosen,
    ];
    let (output, report) = compare(&line, folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    if backends.contains(&"redis") {
        assert!(shown.contains("UNSAFE"), "{shown}");
    }
    for result in report.expect("results.json")["results"].as_array().unwrap() {
        let peer = &result["peers"][0];
        let expected = if result["backend"] == "redis" { "legacy-setnx" } else { "plain-row" };
        assert_eq!(peer["name"], expected);
        // It may be too slow for a hand-over in so short a time, but it does not fail.
        assert!(peer["error"].is_null() || peer["error"] == "nothing could be compared", "{peer}");
        assert!(result["workload"] == "handoff" || positive(&peer["theirs"]), "{peer}");
    }
}

#[test]
fn the_cluster_and_the_leader_are_measured() {
    if !is_installed(testbed::RedisCluster::installed()) || !is_installed(testbed::ZooKeeper::installed()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = "--smoke --durability os --only uncontended,handoff --backend cluster,zookeeper3-leader";
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let report = report.expect("results.json");
    assert_eq!(report["backends"][1]["settings"]["mode"], "leader");
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 6);
    results.iter().for_each(check);
}
