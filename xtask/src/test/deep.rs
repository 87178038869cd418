//! `cargo xtask test --deep`: everything that is too long for every run, in stages. A call goes on where the
//! last one at the same state of the work tree was stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::programs::patient;
use super::repeat;
use crate::shell::{Result, cargo, foreground, root};

/// The stages, what only computes first, with the arguments of `cargo xtask test` or of cargo.
const STAGES: [(&str, Stage); 5] = [
    (
        "model of hand-overs",
        Stage::Cargo(&["-p", "lockwell-core", "--all-features", "--test", "hand_over_model"]),
    ),
    (
        "model of grace periods",
        Stage::Cargo(&["-p", "lockwell-core", "--all-features", "--test", "grace_model"]),
    ),
    (
        "model of Redlock",
        Stage::Cargo(&["-p", "lockwell-redis", "--all-features", "--test", "redlock_model"]),
    ),
    // Every case on every server in every setup; the browser, and the command of the last release.
    ("all servers", Stage::Tests(&["--servers", "all"])),
    ("busy machine", Stage::Tests(&["--busy", "4", "--repeat", "2"])),
];

enum Stage {
    Tests(&'static [&'static str]),
    /// With optimisation, and with the tests that take too long without it.
    Cargo(&'static [&'static str]),
}

/// What has passed, and at which state of the work tree.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Progress {
    state: String,
    /// The seconds of each stage.
    passed: BTreeMap<String, u64>,
}

impl Progress {
    fn path() -> PathBuf {
        root().join("target/xtask/deep.json")
    }

    /// That of an earlier call, if it was at this state.
    fn load(state: String) -> Self {
        let text = fs::read_to_string(Self::path()).unwrap_or_default();
        let last = serde_json::from_str::<Self>(&text).unwrap_or_default();
        if last.state == state { last } else { Self { state, passed: BTreeMap::new() } }
    }

    fn save(&self) -> Result<()> {
        let path = Self::path();
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::create_dir_all(path.parent().unwrap_or(root()))
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))
    }
}

pub(super) fn run(installs: bool) -> Result<ExitCode> {
    let mut progress = Progress::load(format!("{} {}", repeat::commit()?, repeat::servers()));
    let mut failed = Vec::new();
    for (name, stage) in &STAGES {
        if let Some(seconds) = progress.passed.get(*name) {
            println!("{name}: passed before, in {seconds} s");
            continue;
        }
        let began = Instant::now();
        if foreground(&mut stage.command(installs))? == ExitCode::SUCCESS {
            progress.passed.insert((*name).to_owned(), began.elapsed().as_secs());
            progress.save()?;
        } else {
            failed.push(*name);
        }
    }
    for (name, _) in &STAGES {
        match progress.passed.get(*name) {
            Some(seconds) => println!("{name}: passed, {seconds} s"),
            None => println!("{name}: failed"),
        }
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Stage {
    fn command(&self, installs: bool) -> Command {
        match self {
            // By cargo, since the tests build this program anew.
            Self::Tests(args) => {
                let mut command = cargo();
                command.args(["xtask", "test"]).args(installs.then_some("--install")).args(*args);
                command
            }
            Self::Cargo(args) => {
                let mut command = patient(cargo().get_program());
                command.args(["test", "--release"]).args(*args).args([
                    "--",
                    "--include-ignored",
                    "--test-threads=2",
                ]);
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_of_one_state() {
        let progress = Progress { state: "abc".into(), passed: BTreeMap::from([("x".to_owned(), 3)]) };
        let text = serde_json::to_string(&progress).unwrap();
        assert_eq!(serde_json::from_str::<Progress>(&text).unwrap(), progress);
        assert!(Progress::load("a state that never was".into()).passed.is_empty());
    }
}
