//! `compare-bench faults` on the backends that are always there, with worker processes that are really
//! killed.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str], folder: &Path) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
    command.arg("faults").args(arguments).args(["--json", "faults.json"]).current_dir(folder);
    let output = command.output().unwrap();
    let written = std::fs::read_to_string(folder.join("faults.json")).unwrap_or_else(|_| "null".to_owned());
    (output, serde_json::from_str(&written).unwrap())
}

#[test]
fn a_scenario_has_a_verdict_and_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["cancelled", "holder-killed", "--backend", "memory,sqlite", "--seed", "3"];
    let (output, results) = run(&arguments, folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let outcomes = results["outcomes"].as_array().unwrap();
    // In memory there are no processes to be killed.
    let runs: Vec<_> = outcomes.iter().map(|one| (&one["scenario"], &one["backend"])).collect();
    let text = |text: &str| Value::from(text);
    assert_eq!(runs.len(), 3, "{results}");
    assert!(runs.contains(&(&text("holder-killed"), &text("sqlite"))), "{results}");
    for outcome in outcomes {
        assert_eq!(outcome["verdict"], "as_expected", "{outcome}");
        assert_eq!(outcome["counts"]["guarded_lost"], 0, "{outcome}");
        assert!(outcome["counts"]["guarded_writes"].as_u64().unwrap() > 0, "{outcome}");
        assert!(outcome["commit"].as_str().is_some_and(|commit| commit.len() >= 40), "{outcome}");
    }
    let killed = outcomes.iter().find(|one| one["scenario"] == "holder-killed").unwrap();
    let faults: Vec<_> = killed["happened"].as_array().unwrap().iter().map(|one| &one["fault"]).collect();
    assert_eq!(faults, ["kill_worker", "kill_worker"]);

    // A file of faults makes a report by itself, with a timeline of what happened.
    let excerpt = &killed["excerpt"];
    assert!(!excerpt["holds"].as_array().unwrap().is_empty(), "{killed}");
    let mut render = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
    let rendered = render.args(["render", "faults.json"]).current_dir(folder.path()).output().unwrap();
    assert!(rendered.status.success(), "{rendered:?}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("holder-killed on SQLite, seed 3: who was the holder of lock"), "{page}");

    // Gone on with: everything is there, if it is of the same commit. What is of no commit is run again.
    let (output, again) = run(&arguments, folder.path());
    assert!(output.status.success(), "{output:?}");
    let commits = |results: &Value| -> Vec<String> {
        let outcomes = results["outcomes"].as_array().unwrap().iter();
        outcomes.map(|one| one["commit"].as_str().unwrap().to_owned()).collect()
    };
    let is_of_commit = commits(&results).iter().all(|commit| !commit.ends_with('+'));
    if is_of_commit && commits(&again) == commits(&results) {
        assert_eq!(again, results);
    }

    // What is of another commit is run again, and takes its place.
    let other = "0123456789";
    let mut edited = again;
    edited["outcomes"][0]["commit"] = other.into();
    std::fs::write(folder.path().join("faults.json"), edited.to_string()).unwrap();
    let (output, last) = run(&arguments, folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("are run again") && shown.contains("\n  1 "), "{shown}");
    assert_eq!(commits(&last).len(), 3, "{last}");
    assert!(commits(&last).iter().all(|commit| commit != other), "{last}");
}

#[test]
fn the_list_says_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = run(&["--list"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("holder-stopped") && shown.contains("may overlap, the guard holds"), "{shown}");
    assert!(shown.contains("not run: its workers are tasks of one process"), "{shown}");
}

/// One round, since the time is over after it; and the same round again, without its faults.
#[test]
fn a_soak_adds_its_rounds_and_one_of_them_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let soak = ["soak", "--for", "1s", "--seed", "5", "--backend", "sqlite"];
    let (output, results) = run(&soak, folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("soak with seed 5: 1 rounds"), "{shown}");
    let outcomes = results["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 1, "{results}");
    assert_eq!((&outcomes[0]["scenario"], &outcomes[0]["verdict"]), (&"soak".into(), &"as_expected".into()));
    let seed = outcomes[0]["seed"].to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
    let replay =
        ["replay", "soak", "--backend", "sqlite", "--seed", &seed, "--faults", "none", "--times", "1"];
    let output = command.arg("faults").args(replay).current_dir(folder.path()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("(left out)"), "{shown}");
    assert!(shown.contains("0 of 1 came otherwise than expected, 0 could not be run"), "{shown}");
}
