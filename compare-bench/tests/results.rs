//! The result file: nothing is overwritten, and a run that is killed loses one case. What is made of such
//! files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn program(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
    command.args(line.split(' ')).current_dir(folder);
    command
}

fn run(folder: &Path, line: &str) -> Output {
    program(folder, line).output().unwrap()
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn each_run_has_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let output = run(folder.path(), "--smoke --backend memory --only uncontended");
        assert!(output.status.success(), "{output:?}");
    }
    let files = files(&folder.path().join("results"));
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().any(|name| name.ends_with("-2.json")), "{files:?}");
    let report = read(&folder.path().join("results").join(&files[0]));
    let host = report["machine"]["host"].as_str().unwrap();
    let day = &report["date"].as_str().unwrap()[..10];
    assert!(files[0].starts_with(day) && !host.is_empty(), "{files:?}");
}

#[test]
fn what_cannot_be_kept_is_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.json"), "mine").unwrap();
    let refused = error(&run(folder.path(), "--smoke --backend memory --json mine.json"));
    assert!(refused.contains("nothing is overwritten"), "{refused}");
    assert!(!refused.contains("starting"), "it has measured first: {refused}");
    assert_eq!(fs::read_to_string(folder.path().join("mine.json")).unwrap(), "mine");
    let refused = error(&run(folder.path(), "--smoke --backend memory --json mine.json/below.json"));
    assert!(!refused.contains("starting"), "it has measured first: {refused}");
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it.json");
    let mut child = program(
        folder.path(),
        "--smoke --backend memory,sqlite --json it.json --only uncontended,handoff,crowd",
    )
    .spawn()
    .unwrap();
    let begun = Instant::now();
    let few = |report: &Value| report["results"].as_array().is_some_and(|results| results.len() >= 2);
    // It can be read at any moment.
    while !(path.exists() && few(&read(&path))) {
        assert!(begun.elapsed() < Duration::from_mins(2) && child.try_wait().unwrap().is_none());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = read(&path);
    assert_eq!(before["finished"], false);

    let output = run(folder.path(), "--resume it.json");
    assert!(output.status.success(), "{output:?}");
    let after = read(&path);
    assert_eq!((&after["finished"], after["resumed"].as_array().unwrap().len()), (&true.into(), 1));
    let (first, all) = (before["results"].as_array().unwrap(), after["results"].as_array().unwrap());
    assert_eq!(first[..], all[..first.len()], "what was measured stays as it was");
    let names = |report: &Value| -> Vec<String> {
        let names =
            |result: &Value| format!("{} {} {}", result["backend"], result["workload"], result["case"]);
        report["results"].as_array().unwrap().iter().map(names).collect()
    };
    let unique: BTreeSet<_> = names(&after).into_iter().collect();
    assert_eq!(unique.len(), all.len(), "no case was measured twice");
    assert_eq!(after["backends"].as_array().unwrap().len(), 2);

    let undisturbed = run(
        folder.path(),
        "--smoke --backend memory,sqlite --json other.json --only uncontended,handoff,crowd",
    );
    assert!(undisturbed.status.success(), "{undisturbed:?}");
    let whole: BTreeSet<_> = names(&read(&folder.path().join("other.json"))).into_iter().collect();
    assert_eq!(unique, whole, "nothing is missing");
}

/// Ctrl-C is a signal; the program ends by itself then, and takes its servers and workers along.
#[test]
fn an_interrupted_run_leaves_a_file_and_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it.json");
    // The folder of the data is the mark by which what belongs to this run is known.
    let mut command = program(
        folder.path(),
        "--smoke --backend sqlite,memory --json it.json --only uncontended,handoff,crowd",
    );
    let mut child = command.env("TMPDIR", folder.path()).spawn().unwrap();
    let begun = Instant::now();
    let some = |report: &Value| report["results"].as_array().is_some_and(|results| !results.is_empty());
    while !(path.exists() && some(&read(&path))) {
        assert!(begun.elapsed() < Duration::from_mins(2) && child.try_wait().unwrap().is_none());
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let begun = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(read(&path)["finished"], false);
    // Workers end with the input that their parent gave them.
    let mark = folder.path().to_str().unwrap().as_bytes().to_vec();
    let left = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let of = |process: fs::DirEntry| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark).then(|| process.file_name())
        };
        processes.filter_map(of).collect::<Vec<_>>()
    };
    while !left().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?} are still there", left());
        std::thread::sleep(Duration::from_millis(50));
    }
    // The data is gone, and the run can be gone on with.
    assert_eq!(files(folder.path()), ["it.json"]);
    let output = run(folder.path(), "--resume it.json");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(read(&path)["finished"], true);
}

#[test]
fn two_runs_are_compared_by_their_intervals() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let folder = tempfile::tempdir().unwrap();
    let same = run(&data, "diff near.json near.json --fail-above 0%");
    let shown = String::from_utf8_lossy(&same.stdout);
    assert!(same.status.success(), "{same:?}");
    assert!(
        shown.contains("cannot tell") && !shown.contains("WORSE") && !shown.contains("worse by more"),
        "{shown}"
    );

    let refused = error(&run(&data, "diff near.json far.json"));
    assert!(refused.contains("different conditions"), "{refused}");
    // ZooKeeper is in both.
    assert!(run(&data, "diff near.json far.json --force").status.success());

    let mut slower = read(&data.join("near.json"));
    for result in slower["results"].as_array_mut().unwrap() {
        if result["quantity"] == "latency_us" && !result["ratio"].is_null() {
            result["ratio"] = serde_json::json!({ "median": 900.0, "low": 890.0, "high": 910.0 });
        }
    }
    fs::copy(data.join("near.json"), folder.path().join("a.json")).unwrap();
    fs::write(folder.path().join("b.json"), slower.to_string()).unwrap();
    let worse = run(folder.path(), "diff a.json b.json");
    assert!(worse.status.success() && String::from_utf8_lossy(&worse.stdout).contains("WORSE"), "{worse:?}");
    assert!(!run(folder.path(), "diff a.json b.json --fail-above 5%").status.success());
    let better = run(folder.path(), "diff b.json a.json --fail-above 5%");
    assert!(
        better.status.success() && String::from_utf8_lossy(&better.stdout).contains("better"),
        "{better:?}"
    );
}

#[test]
fn a_stale_figure_is_found_and_filled_in() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["docs", "compare-bench/runs"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    for name in ["delay-1ms.json.gz", "delay-5ms.json.gz"] {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("runs").join(name);
        fs::copy(run, folder.path().join("compare-bench/runs").join(name)).unwrap();
    }
    fs::write(folder.path().join("README.md"), "no figures\n").unwrap();
    let page = folder.path().join("docs/page.md");
    let stale =
        "before\n<!-- figures: delays handoff -->\n| redis | 7 us |\n<!-- end of figures -->\nafter\n";
    fs::write(&page, stale).unwrap();
    let told = error(&run(folder.path(), "figures --check"));
    assert!(told.contains("docs/page.md: figures differ from the runs"), "{told}");
    assert_eq!(fs::read_to_string(&page).unwrap(), stale, "it was not touched");

    assert!(run(folder.path(), "figures").status.success());
    let filled = fs::read_to_string(&page).unwrap();
    let begin = "before\n<!-- figures: delays handoff -->\nCommit aabb6e5402, 2026-11-25, load ";
    assert!(filled.starts_with(begin) && filled.contains("\n\n|  | 1.00 ms each way |"), "{filled}");
    assert!(filled.contains("\n| redis | ") && !filled.contains("7 us"), "{filled}");
    assert!(filled.ends_with(" |\n<!-- end of figures -->\nafter\n"), "{filled}");
    assert!(run(folder.path(), "figures --check").status.success());

    // Of another commit.
    let other = "default.json.gz";
    let runs = folder.path().join("compare-bench/runs");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("runs").join(other), runs.join(other)).unwrap();
    let both = format!("{filled}<!-- figures: headline default -->\n<!-- end of figures -->\n");
    fs::write(&page, both).unwrap();
    let told = error(&run(folder.path(), "figures"));
    assert!(told.contains("docs/page.md is of several commits: aabb6e5402, b6f1392d8d"), "{told}");

    for bad in [
        "<!-- figures: delays handoff -->\nno end",
        "<!-- figures: delays handoff -->\n<!-- figures: run delay-1ms -->\n<!-- end of figures -->",
        "<!-- figures: nonsense delay-1ms -->\n<!-- end of figures -->",
        "<!-- figures: headline -->\n<!-- end of figures -->",
        "<!-- figures: headline tmpfs -->\n<!-- end of figures -->",
        "<!-- figures: faults delay-1ms -->\n<!-- end of figures -->",
    ] {
        fs::write(&page, bad).unwrap();
        let told = error(&run(folder.path(), "figures"));
        assert!(told.contains("docs/page.md: "), "{bad}: {told}");
    }
}
