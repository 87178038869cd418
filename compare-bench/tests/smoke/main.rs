//! A very short run on the backends that are always there, and the form of what it writes.

mod check;
mod special;

use serde_json::{Value, json};
use testbed::is_installed;

use crate::check::{check, check_ratio, check_shown, compare, measure, positive};

#[test]
fn deep_a_short_run_writes_what_the_schema_says() {
    let (shown, report) = measure("--smoke --backend memory,sqlite");
    assert!(shown.contains("NOBODY ELSE WANTS THE LOCK") && shown.contains("interval of 95 %"), "{shown}");
    assert_eq!(check_shown(&shown), (true, true), "{shown}");

    assert_eq!(report["schema"], "lockwell-compare");
    assert_eq!(report["schema_version"], 5);
    assert_eq!((&report["mode"], &report["finished"]), (&"smoke".into(), &true.into()));
    assert!(positive(&report["disk"]["sync_us"]["p50"]), "{report}");
    assert_eq!(report["conditions"]["durability"], "disk");
    assert_eq!(report["arguments"][0], "--smoke");
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
    assert_eq!(backends[1]["settings"]["synchronous"], "1", "NORMAL, as the backend sets it");
    for backend in backends {
        for field in ["name", "address", "version", "storage", "floor"] {
            assert!(backend[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {backend}");
        }
    }

    let results = report["results"].as_array().unwrap();
    for backend in ["memory", "sqlite"] {
        let all =
            ["uncontended", "independent", "arrivals", "handoff", "crowd", "readers", "semaphore", "holding"];
        let shared = ["hot", "herd", "recovery"].into_iter().filter(|_| backend != "memory");
        for workload in all.into_iter().chain(shared) {
            let is_it = |result: &&Value| result["backend"] == backend && result["workload"] == workload;
            let result = results.iter().find(is_it).unwrap_or_else(|| panic!("{workload} on {backend}"));
            check(result);
        }
    }
    let is_it = |result: &&Value| result["backend"] == "sqlite" && result["workload"] == "handoff";
    assert_eq!(results.iter().find(is_it).unwrap()["parties_are"], "processes");
}

/// The workloads that take no time beside their rounds.
const OLD: &str = "uncontended,independent,arrivals,handoff,crowd,readers,semaphore";

#[test]
fn deep_redis_is_measured_alone_and_as_redlock() {
    if !is_installed(testbed::Redis::installed()) {
        return;
    }
    let (_, report) = measure(&format!("--smoke --backend redis,redlock --only {OLD}"));
    let backends = report["backends"].as_array().unwrap();
    assert_eq!(backends.len(), 2);
    for backend in backends {
        let settings = &backend["settings"];
        assert_eq!((&settings["appendonly"], &settings["appendfsync"]), (&"yes".into(), &"always".into()));
        assert_eq!(backend["promises"]["durable"], true);
    }
    assert!(backends[1]["version"].as_str().unwrap().starts_with("5 x Redis"), "{}", backends[1]);
    // What a backend does not have is no failure.
    let lacking = json!([{ "backend": "redlock", "reason": "semaphore: it does not promise permits" }]);
    assert_eq!((&report["missing"], &report["failures"]), (&lacking, &json!([])));
    for result in report["results"].as_array().unwrap() {
        check(result);
    }
}

#[test]
fn deep_newer_servers_and_a_group_are_measured() {
    if !is_installed(testbed::RedisSentinel::installed()) {
        return;
    }
    let mut backends = vec!["sentinel", "redlock3"];
    for (backend, release) in [("mysql", "mysql9"), ("valkey", "valkey9")] {
        // No machine has them installed, and not every mirror has them.
        backends.extend(testbed::if_fetched(testbed::Release::named(release).version()).map(|_| backend));
    }
    let chosen = backends.join(",");
    let (_, report) =
        measure(&format!("--smoke --durability os --only uncontended,handoff --backend {chosen}"));
    for result in report["results"].as_array().unwrap() {
        check(result);
    }
    assert_eq!(report["results"].as_array().unwrap().len(), 3 * backends.len());
    for backend in report["backends"].as_array().unwrap() {
        let version = match backend["name"].as_str().unwrap() {
            "mysql" => "9.",
            "valkey" => "Valkey 9.",
            "redlock3" => "3 x Redis",
            _ => "Redis",
        };
        assert!(backend["version"].as_str().unwrap().starts_with(version), "{backend}");
    }
}

#[test]
fn deep_zookeeper_is_measured_alone_and_as_an_ensemble() {
    if !is_installed(testbed::ZooKeeper::installed()) {
        return;
    }
    let line = format!("--smoke --backend zookeeper,zookeeper3 --durability os --contrast --only {OLD}");
    let (shown, report) = measure(&line);
    let modes = report["backends"].as_array().unwrap().iter().map(|backend| &backend["settings"]["mode"]);
    assert_eq!(modes.collect::<Vec<_>>(), ["standalone", "follower"]);
    assert!(report["backends"][0]["storage"].as_str().unwrap().ends_with(", forceSync=no"));
    let results = report["results"].as_array().unwrap();
    for result in results {
        check(result);
        assert_eq!(result["workload"] == "crowd", result["requests_each"].is_number(), "{result}");
    }
    for backend in ["zookeeper", "zookeeper3"] {
        let is_it = |result: &&Value| result["backend"] == backend && result["case"] == "8 tasks, one name";
        let result = results.iter().find(is_it).unwrap_or_else(|| panic!("no crowd on {backend}"));
        let naive = &result["peers"][0];
        assert_eq!((&naive["name"], naive["unsafe_because"].is_string()), (&"naive-node".into(), true));
        let (queue, herd) =
            (result["requests_each"].as_f64().unwrap(), naive["requests_each"].as_f64().unwrap());
        // At least a creation and a deletion. How large a herd is depends on how many are there, and on how
        // long.
        assert!(queue >= 2.0 && herd >= 2.0, "{queue} and {herd} requests each");
    }
    assert!(shown.contains("WHAT WAITING COSTS THE SERVER"), "{shown}");
    check_shown(&shown);
}

#[test]
fn deep_others_on_zookeeper_are_measured_or_their_absence_is_told() {
    if !is_installed(testbed::ZooKeeper::installed()) {
        return;
    }
    let line = "--smoke --backend zookeeper --only uncontended,handoff,crowd --durability os --peers";
    let (shown, report) = measure(line);
    check_shown(&shown);
    for name in ["curator", "kazoo"] {
        let mut missing = report["missing"].as_array().unwrap().iter();
        if let Some(missing) = missing.find(|missing| missing["backend"] == name) {
            testbed::lacks(&format!("{name}: {}", missing["reason"]));
            assert!(shown.contains(&format!("not measured: {name}:")), "{shown}");
            continue;
        }
        let mut measured = Vec::new();
        for result in report["results"].as_array().unwrap() {
            for peer in result["peers"].as_array().unwrap().iter().filter(|peer| peer["name"] == name) {
                measured.push(&result["workload"]);
                // On a busy machine the round may be over before they have begun.
                if result["workload"] != "uncontended" && peer["error"] == "nothing could be compared" {
                    continue;
                }
                assert!(peer["error"].is_null(), "{peer}");
                for field in ["theirs", "per_second"] {
                    assert!(positive(&peer[field]), "{field} of {peer}");
                }
                for field in ["ratio", "ours_to_theirs"] {
                    check_ratio(&peer[field], peer["rounds"].as_array().unwrap().len());
                }
                let handing = &peer["handing"];
                assert!(handing.is_null() || handing["overlaps"] == 0, "{peer}");
            }
        }
        assert_eq!(measured, ["uncontended", "handoff", "handoff", "crowd", "crowd"], "{name}");
    }
}

#[test]
fn servers_can_be_far_away_and_keep_nothing() {
    if !is_installed(testbed::Redis::installed()) {
        return;
    }
    let line = "--smoke --backend redis,zookeeper --only uncontended,handoff --delay 5ms --durability none";
    let (_, report) = measure(line);
    let (backends, results) = (report["backends"].as_array().unwrap(), report["results"].as_array().unwrap());
    assert_eq!(backends[0]["storage"], "memory, 5ms away");
    assert_eq!(backends[0]["settings"]["appendonly"], "no");
    assert_eq!(backends[0]["promises"]["durable"], false, "a restart forgets its locks");
    if is_installed(testbed::ZooKeeper::installed()) {
        assert!(backends[1]["storage"].as_str().unwrap().ends_with(", forceSync=no, 5ms away"), "{report}");
    }
    assert_eq!(report["conditions"]["delay_us"], 5000);
    assert_eq!(results.len(), 3 * backends.len());
    for result in results {
        // Two trips there and back.
        assert!(result["floor"].as_f64().unwrap() >= 20_000.0, "{result}");
    }
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
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("Locks have names that begin with compare/"),
        "{output:?}"
    );
}

#[test]
fn servers_can_be_in_memory() {
    let line = "--smoke --tmpfs --backend sqlite --only independent";
    let (_, report) = measure(line);
    let results = report["results"].as_array().unwrap();
    let parties: Vec<_> = results.iter().filter_map(|result| result["parties"].as_u64()).collect();
    // Two of tasks, and one of processes.
    assert_eq!(parties, [1, 4, 2], "{report}");
    if cfg!(target_os = "linux") {
        assert!(report["backends"][0]["storage"].as_str().unwrap().contains("tmpfs"), "{report}");
    }
}

#[test]
fn the_list_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = compare(&["--list"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.is_none(), "{output:?}");
    for word in [
        "uncontended",
        "handoff",
        "sqlite",
        "mariadb",
        "redlock",
        "zookeeper3",
        "rslock",
        "distributed-lock",
        "curator",
    ] {
        assert!(shown.contains(word), "{shown}");
    }
}
