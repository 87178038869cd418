//! A very short run on the backends that are always there, and the form of what it writes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn compare(arguments: &[&str], folder: &Path) -> (Output, Option<Value>) {
    let program = env!("CARGO_BIN_EXE_compare-bench");
    let mut command = Command::new(program);
    command.args(arguments).args(["--json", "results.json"]).current_dir(folder);
    let output = command.output().unwrap();
    let written = std::fs::read_to_string(folder.join("results.json")).ok();
    (output, written.map(|text| serde_json::from_str(&text).unwrap()))
}

/// Whether a test must be left out. It fails where servers are required.
fn is_missing(installed: Result<(), testbed::Error>) -> bool {
    let Err(reason) = installed else { return false };
    assert!(!testbed::servers_required(), "{reason}");
    eprintln!("IGNORED: {reason}");
    true
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
    assert!(shown.contains("NOBODY ELSE WANTS THE LOCK") && shown.contains("interval of 95 %"), "{shown}");
    assert_eq!(check_shown(&shown), (true, true), "{shown}");

    let report = report.expect("results.json");
    assert_eq!(report["schema"], "lockwell-compare");
    assert_eq!(report["schema_version"], 3);
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
    assert_eq!(backends[1]["settings"]["synchronous"], "2", "FULL, as the backend sets it");
    for backend in backends {
        for field in ["name", "address", "version", "storage", "floor"] {
            assert!(backend[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {backend}");
        }
    }

    let results = report["results"].as_array().unwrap();
    for backend in ["memory", "sqlite"] {
        let all = ["uncontended", "independent", "handoff", "crowd", "readers", "semaphore", "holding"];
        let shared = ["herd", "recovery"].into_iter().filter(|_| backend != "memory");
        for workload in all.into_iter().chain(shared) {
            let is_it = |result: &&Value| result["backend"] == backend && result["workload"] == workload;
            let result = results.iter().find(is_it).unwrap_or_else(|| panic!("{workload} on {backend}"));
            check(result);
        }
    }
    let processes = results.iter().find(|result| result["parties_are"] == "processes").unwrap();
    assert_eq!((&processes["backend"], &processes["workload"]), (&"sqlite".into(), &"handoff".into()));
}

fn check(result: &Value) {
    match result["workload"].as_str().unwrap() {
        "recovery" => return check_recovery(result),
        "holding" => return check_holding(result),
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
    let trips = if result["trip_us"].is_number() { rounds.len() } else { 0 };
    check_ratio(&result["trips"], trips);
    let counts = result["latency_us"]["histogram"]["counts"].as_array().unwrap();
    let counted: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted, result["latency_us"]["samples"].as_u64().unwrap(), "all are in the histogram");
    assert!(
        result["noisy"].is_boolean() && result["busy"].as_f64().is_some_and(|busy| busy <= 1.0),
        "{result}"
    );
    let handing = &result["handing"];
    if ["handoff", "crowd", "herd"].contains(&result["workload"].as_str().unwrap()) {
        assert_eq!((&handing["overlaps"], &handing["tokens_rise"]), (&0.into(), &true.into()));
        assert_eq!(handing["shares"].as_array().unwrap().len() as u64, result["parties"].as_u64().unwrap());
        assert!(positive(&handing["acquisitions"]) && positive(&handing["jain"]), "{result}");
    } else {
        assert!(handing.is_null(), "{result}");
    }
}

/// Each time is positive and in the rounds; the median is not later than it should be, as far as that is known.
fn check_recovery(result: &Value) {
    let recovery = &result["recovery"];
    let numbers = |field: &str| -> Vec<f64> {
        recovery[field].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect()
    };
    let (times, told) = (numbers("times_us"), numbers("told_us"));
    assert!(times.len() == 3 && times.iter().all(|time| *time > 0.0), "{result}");
    assert_eq!(result["rounds"].as_array().unwrap().len(), times.len());
    assert!(
        positive(&recovery["bound_us"]) && !recovery["bound_of"].as_str().unwrap().is_empty(),
        "{result}"
    );
    let cut = result["case"] == "the holder is cut off";
    assert_eq!(told.len(), if cut { times.len() } else { 0 }, "{result}");
    // Nobody believes to hold what another has.
    for (told, time) in told.iter().zip(&times) {
        assert!(told < time, "{result}");
    }
    assert!(result["ratio"].is_null() && result["handing"].is_null(), "{result}");
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
fn check_ratio(ratio: &Value, rounds: usize) {
    if rounds < 3 {
        assert!(ratio.is_null(), "{ratio} of {rounds} rounds");
        return;
    }
    let figures = ["low", "median", "high"].map(|field| ratio[field].as_f64().expect("three figures"));
    assert!(figures.is_sorted() && figures[0] > 0.0, "{ratio}");
}

/// No line is too wide, and each figure in the tables has its interval behind it, or there are too few rounds for one. Whether
/// there were some of both.
fn check_shown(shown: &str) -> (bool, bool) {
    let (mut with, mut without) = (false, false);
    let mut is_table = false;
    for line in shown.lines() {
        let is_long = line.chars().count() > 100 && line.contains(' ');
        assert!(!is_long || line.starts_with("all figures"), "{line}");
        is_table = (is_table || line.contains("median [95 %]")) && !line.trim().is_empty();
        let is_row = is_table && (line.contains(" us") || line.contains(" ms") || line.contains("/s"));
        if is_row && !line.contains("median [95 %]") {
            with |= line.contains(" .. ");
            without |= line.contains("too few");
        }
    }
    (with, without)
}

/// The workloads that take no time beside their rounds.
const OLD: &str = "uncontended,independent,handoff,crowd,readers,semaphore";

#[test]
fn what_dies_and_what_is_held_is_measured() {
    if is_missing(testbed::Redis::installed()) {
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
        if !is_missing(installed) {
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
    if is_missing(testbed::RedisCluster::installed()) || is_missing(testbed::ZooKeeper::installed()) {
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

#[test]
fn redis_is_measured_alone_and_as_redlock() {
    if is_missing(testbed::Redis::installed()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = ["--smoke", "--backend", "redis,redlock", "--only", OLD];
    let (output, report) = compare(&line, folder.path());
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
        assert!(result["trip_us"].is_null(), "trips on the loopback device say nothing: {result}");
    }
}

#[test]
fn newer_servers_and_a_group_are_measured() {
    if is_missing(testbed::RedisSentinel::installed()) {
        return;
    }
    let mut backends = vec!["sentinel", "redlock3"];
    for (backend, release) in [("mysql", "mysql9"), ("valkey", "valkey9")] {
        match testbed::Release::named(release).version() {
            Ok(_) => backends.push(backend),
            // No machine has them installed, and not every mirror has them.
            Err(reason) => eprintln!("IGNORED: {backend}: {reason}"),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let chosen = backends.join(",");
    let line = ["--smoke", "--durability", "os", "--only", "uncontended,handoff", "--backend", &chosen];
    let (output, report) = compare(&line, folder.path());
    assert!(output.status.success(), "{output:?}");
    let report = report.expect("results.json");
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
fn zookeeper_is_measured_alone_and_as_an_ensemble() {
    if is_missing(testbed::ZooKeeper::installed()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = format!("--smoke --backend zookeeper,zookeeper3 --durability os --contrast --only {OLD}");
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let report = report.expect("results.json");
    let modes = report["backends"].as_array().unwrap().iter().map(|backend| &backend["settings"]["mode"]);
    assert_eq!(modes.collect::<Vec<_>>(), ["standalone", "follower"]);
    assert!(report["backends"][0]["storage"].as_str().unwrap().ends_with(", forceSync=no"));
    let results = report["results"].as_array().unwrap();
    for result in results {
        check(result);
        assert!(result["trip_us"].is_null(), "trips on the loopback device say nothing: {result}");
        assert_eq!(result["workload"] == "crowd", result["requests_each"].is_number(), "{result}");
    }
    for backend in ["zookeeper", "zookeeper3"] {
        let is_it = |result: &&Value| result["backend"] == backend && result["case"] == "8 tasks, one name";
        let result = results.iter().find(is_it).unwrap_or_else(|| panic!("no crowd on {backend}"));
        let naive = &result["peers"][0];
        assert_eq!((&naive["name"], naive["unsafe_because"].is_string()), (&"naive-node".into(), true));
        let (queue, herd) =
            (result["requests_each"].as_f64().unwrap(), naive["requests_each"].as_f64().unwrap());
        // At least a creation and a deletion. How large a herd is depends on how many are there, and on how long.
        assert!(queue >= 2.0 && herd >= 2.0, "{queue} and {herd} requests each");
    }
    assert!(shown.contains("WHAT WAITING COSTS THE SERVER"), "{shown}");
    check_shown(&shown);
}

#[test]
fn others_on_zookeeper_are_measured_or_their_absence_is_told() {
    if is_missing(testbed::ZooKeeper::installed()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = "--smoke --backend zookeeper --only uncontended,handoff,crowd --durability os --peers";
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    check_shown(&shown);
    let report = report.expect("results.json");
    for name in ["curator", "kazoo"] {
        let mut missing = report["missing"].as_array().unwrap().iter();
        if let Some(missing) = missing.find(|missing| missing["backend"] == name) {
            assert!(!testbed::servers_required(), "{missing}");
            assert!(shown.contains(&format!("not measured: {name}:")), "{shown}");
            continue;
        }
        let mut measured = Vec::new();
        for result in report["results"].as_array().unwrap() {
            for peer in result["peers"].as_array().unwrap().iter().filter(|peer| peer["name"] == name) {
                measured.push(&result["workload"]);
                // On a busy machine a fight may be over before they have begun it.
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
    if is_missing(testbed::Redis::installed()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let line = "--smoke --backend redis,zookeeper --only uncontended,handoff --delay 5ms --durability none";
    let (output, report) = compare(&line.split(' ').collect::<Vec<_>>(), folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report.expect("results.json");
    let (backends, results) = (report["backends"].as_array().unwrap(), report["results"].as_array().unwrap());
    assert_eq!(backends[0]["storage"], "memory, 5ms away");
    assert_eq!(backends[0]["settings"]["appendonly"], "no");
    if !is_missing(testbed::ZooKeeper::installed()) {
        assert!(backends[1]["storage"].as_str().unwrap().ends_with(", forceSync=no, 5ms away"), "{report}");
    }
    assert_eq!(report["conditions"]["delay_us"], 5000);
    assert_eq!(results.len(), 3 * backends.len());
    for result in results {
        // Two trips there and back.
        assert!(result["floor"].as_f64().unwrap() >= 20_000.0, "{result}");
        assert_eq!(result["workload"] == "handoff", positive(&result["trip_us"]), "{result}");
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
        String::from_utf8_lossy(&output.stdout).contains("these servers get locks called compare/"),
        "{output:?}"
    );
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
