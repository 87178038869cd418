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
fn deep_a_scenario_has_a_verdict_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["calm", "holder-killed", "--backend", "memory,sqlite", "--seed", "3"];
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

    // A file of faults makes a report by itself.
    let mut render = Command::new(env!("CARGO_BIN_EXE_compare-bench"));
    let rendered = render.args(["render", "faults.json"]).current_dir(folder.path()).output().unwrap();
    assert!(rendered.status.success(), "{rendered:?}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("<td>holder-killed</td>") && page.contains("<th>sqlite</th>"), "{page}");
}

#[test]
fn the_list_says_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _) = run(&["--list"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("holder-stopped") && shown.contains("may overlap, the guard holds"), "{shown}");
}

#[test]
fn deep_random_faults_are_drawn_for_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let (output, results) =
        run(&["soak", "--seed", "5", "--repeat", "2", "--backend", "sqlite"], folder.path());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let outcomes = results["outcomes"].as_array().unwrap();
    let drawn: Vec<_> = outcomes.iter().map(|one| one["happened"].as_array().unwrap().len()).collect();
    assert!(drawn.len() == 2 && drawn.iter().all(|number| *number >= 2), "{results}");
}
