//! Holding, faulty recipes, programs of users, and servers that are rarely measured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testbed::is_installed;

use crate::check::{check, check_shown, compare, compare_by, measure, positive};

#[test]
fn what_is_held_is_measured() {
    if !is_installed(testbed::Redis::installed()) {
        return;
    }
    let line = "--smoke --backend redis,redlock3 --durability os --only herd,holding";
    let (shown, report) = measure(line);
    for title in ["WHAT HOLDING COSTS", "WHAT WAITING COSTS THE SERVER"] {
        assert!(shown.contains(title), "{shown}");
    }
    check_shown(&shown);
    let results = report["results"].as_array().unwrap();
    for backend in ["redis", "redlock3"] {
        let of = |workload: &str| {
            let is_it = |result: &&Value| result["backend"] == backend && result["workload"] == workload;
            results.iter().filter(is_it).collect::<Vec<_>>()
        };
        for result in of("holding").into_iter().chain(of("herd")) {
            check(result);
        }
        let herd = of("herd")[0];
        assert!(herd["requests_each"].as_f64().unwrap() >= 1.0 && positive(&herd["wakeups_each"]), "{herd}");
    }
}

/// The program that compare-bench/README.md shows.
#[test]
fn a_program_of_the_user_is_measured() {
    if Command::new("python3").arg("--version").output().is_err() {
        return testbed::lacks("there is no python3");
    }
    let program = include_str!("../../examples/own.py");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.py");
    fs::write(&file, program.replace("tempfile.gettempdir()", &format!("{:?}", folder.path()))).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let line = "--smoke --url memory:// --peer own=./own.py --peer bad=false --only uncontended,independent";
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let line = "--smoke --busy --backend sqlite --peer own=./own.py --only handoff,recovery";
    fs::remove_file(folder.path().join("results.json")).unwrap();
    let (output, processes) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut measured = Vec::new();
    for report in [report.expect("results.json"), processes.expect("results.json")] {
        for result in report["results"].as_array().unwrap() {
            for peer in result["peers"].as_array().unwrap() {
                if peer["name"] == "bad" {
                    assert_eq!(peer["error"], "it ended early");
                    continue;
                }
                // On a busy machine the round may be over before they have begun.
                if result["workload"] != "handoff" || peer["error"] != "nothing could be compared" {
                    assert!(peer["error"].is_null() && positive(&peer["theirs"]), "{peer}");
                }
                assert_eq!(peer["setup"], "flock on a file");
                assert!(peer["handing"].is_null() || peer["handing"]["overlaps"] == 0, "{peer}");
                measured.push(result["workload"].as_str().unwrap().to_owned());
            }
        }
    }
    measured.dedup();
    assert_eq!(measured, ["uncontended", "independent", "handoff", "recovery"]);
}

#[test]
fn deep_recipes_that_are_no_good_are_measured_for_contrast() {
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
    let chosen = backends.join(",");
    let line = format!("--smoke --contrast --durability os --only uncontended,handoff --backend {chosen}");
    let (shown, report) = measure(&line);
    if backends.contains(&"redis") {
        assert!(shown.contains("UNSAFE"), "{shown}");
    }
    for result in report["results"].as_array().unwrap() {
        let peer = &result["peers"][0];
        let expected = if result["backend"] == "redis" { "legacy-setnx" } else { "plain-row" };
        assert_eq!(peer["name"], expected);
        // It may be too slow for a hand-over in so short a time, but it does not fail.
        assert!(peer["error"].is_null() || peer["error"] == "nothing could be compared", "{peer}");
        assert!(result["workload"] == "handoff" || positive(&peer["theirs"]), "{peer}");
    }
}

#[test]
fn deep_the_cluster_and_the_leader_are_measured() {
    if !is_installed(testbed::RedisCluster::installed()) || !is_installed(testbed::ZooKeeper::installed()) {
        return;
    }
    let line = "--smoke --durability os --only uncontended,handoff --backend cluster,zookeeper3-leader";
    let (_, report) = measure(line);
    assert_eq!(report["backends"][1]["settings"]["mode"], "leader");
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 6);
    results.iter().for_each(check);
}

#[test]
fn a_slow_disk_is_measured() {
    if !cfg!(target_os = "linux") || !is_installed(testbed::Postgres::installed()) {
        return;
    }
    let line = "--smoke --sync-delay 80ms --only uncontended --backend sqlite,postgres,postgres-grace,etcd";
    let (_, report) = measure(line);
    let storage = report["conditions"]["storage"].as_str().unwrap();
    assert!(storage.ends_with(" whose syncs take 80ms longer"), "{storage}");
    assert!(report["disk"]["sync_us"]["p50"].as_f64().unwrap() >= 80_000.0, "{}", report["disk"]);
    // What waits for the disk takes longer than a sync, also of the server, which has inherited the library. On a
    // busy machine the others take as long at times.
    for result in report["results"].as_array().unwrap() {
        let rounds = result["rounds"].as_array().unwrap().iter().map(|round| round["ours"].as_f64().unwrap());
        let quickest = rounds.fold(f64::INFINITY, f64::min);
        assert_eq!(quickest < 80_000.0, result["backend"] != "postgres", "{result}");
    }
    let missing: Vec<_> = report["missing"].as_array().unwrap().iter().map(|it| &it["backend"]).collect();
    assert_eq!(missing, ["etcd"]);
}

#[test]
fn etcd_is_measured_beside_raw_requests() {
    if !is_installed(testbed::Etcd::installed()) {
        return;
    }
    let line = "--smoke --only uncontended,handoff --backend etcd,etcd3";
    let (_, report) = measure(line);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 6);
    results.iter().for_each(check);
    for backend in report["backends"].as_array().unwrap() {
        assert!(backend["version"].as_str().unwrap().starts_with("etcd "), "{backend}");
        assert!(backend["floor"].as_str().unwrap().contains("transaction"), "{backend}");
    }
}

/// A backend from elsewhere has no raw statements.
#[test]
fn a_program_with_a_backend_of_its_own_measures_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_compare-bench")).with_file_name("examples/own_backend");
    let url = format!("cabinet://{}", folder.path().display());
    let words = ["--smoke", "--only", "uncontended,handoff", "--url", &url];
    let (output, report) = compare_by(&program, &words, folder.path());
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{complaints}", String::from_utf8_lossy(&output.stdout));
    let report = report.expect("results.json");
    assert_eq!(report["backends"][0]["name"], "cabinet");
    for workload in ["uncontended", "handoff"] {
        let measured = |result: &Value| result["workload"] == workload && positive(&result["ours"]);
        assert!(report["results"].as_array().unwrap().iter().any(measured), "{workload}: {complaints}");
    }
    for field in ["missing", "failures"] {
        assert_eq!(report[field], Value::Array(Vec::new()), "{field}");
    }
}
