//! `cargo xtask test --deep`: everything that is too long for every run, in stages. A call goes on where the
//! last one at the same state of the work tree and with the same servers was stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::programs::patient;
use super::repeat;
use crate::not_run::{self, NotRun};
use crate::shell::{Result, cargo, foreground};

/// The stages, what only computes first, with the arguments of `cargo xtask test` or of cargo.
const STAGES: [(&str, Stage); 6] = [
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
    ("leaders of ZooKeeper", Stage::Tests(&LEADERS)),
    // Every case on every server in every setup; the browser, and the command of the last release.
    ("all servers", Stage::Tests(&["--servers", "all"])),
    ("busy machine", Stage::Tests(&["--busy", "4", "--repeat", "2"])),
];

/// They are killed for ten minutes.
const LEADERS: [&str; 8] = [
    "-p",
    "lockwell-zk",
    "--test",
    "zk",
    "--",
    "--include-ignored",
    "--exact",
    "faults::the_leader_is_killed_for_long",
];

enum Stage {
    Tests(&'static [&'static str]),
    /// With optimisation, and with the tests that take too long without it.
    Cargo(&'static [&'static str]),
}

/// What has passed, and at which state of the work tree and the servers.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Progress {
    state: String,
    passed: BTreeMap<String, Passed>,
}

/// A stage that need not be played again.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Passed {
    seconds: u64,
    /// What was not run, and could not be by another call either.
    not_run: Vec<String>,
}

/// A stage that was played without a failure.
struct Played {
    seconds: u64,
    not_run: Vec<NotRun>,
}

/// Why a stage that was played is not kept.
#[derive(PartialEq)]
enum End {
    Failed,
    /// Something that can be had was missing, at this state.
    Incomplete(String),
    /// It has tested neither the state at its begin nor that at its end.
    Changed,
}

impl Progress {
    /// That of an earlier call, if it was at this state.
    fn load(path: &Path, state: String) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let last = serde_json::from_str::<Self>(&text).unwrap_or_default();
        if last.state == state { last } else { Self { state, passed: BTreeMap::new() } }
    }

    fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Runs the stages, with logs and notes in this folder.
pub(super) fn run(folder: &Path, installs: bool) -> Result<ExitCode> {
    let missed = folder.join("stage.not-run");
    let state = || -> Result<String> { Ok(format!("{} {}", repeat::commit()?, repeat::servers())) };
    let play = |at: usize| -> Result<Option<Played>> {
        not_run::clear(&missed)?;
        let began = Instant::now();
        if foreground(&mut STAGES[at].1.command(folder, &missed, installs))? != ExitCode::SUCCESS {
            return Ok(None);
        }
        let seconds = began.elapsed().as_secs();
        Ok(Some(Played { seconds, not_run: not_run::read(&missed, "")? }))
    };
    let names = STAGES.each_ref().map(|(name, _)| *name);
    let is_well = play_all(&folder.join("deep.json"), &names, installs, state, play)?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays the stages that have not passed at the state that there is when their turn comes: they build what is
/// there then. `play` returns nothing for a failure. `installs`: what could be had was to be installed.
/// Returns whether nothing has failed at the state of the end.
fn play_all(
    path: &Path,
    names: &[&str],
    installs: bool,
    state: impl Fn() -> Result<String>,
    mut play: impl FnMut(usize) -> Result<Option<Played>>,
) -> Result<bool> {
    let mut ends = BTreeMap::new();
    for (at, name) in names.iter().enumerate() {
        let mut progress = Progress::load(path, state()?);
        if let Some(Passed { seconds, .. }) = progress.passed.get(*name) {
            println!("{name}: passed before, in {seconds} s");
            continue;
        }
        let end = match play(at)? {
            None => End::Failed,
            Some(_) if state()? != progress.state => End::Changed,
            // With `--install`, what is missing could not be had.
            Some(Played { not_run, .. }) if !installs && not_run.iter().any(|it| !it.is_beyond) => {
                End::Incomplete(progress.state)
            }
            Some(Played { seconds, not_run }) => {
                let not_run = not_run::remarks(&not_run);
                progress.passed.insert((*name).to_owned(), Passed { seconds, not_run });
                progress.save(path)?;
                continue;
            }
        };
        ends.insert(*name, end);
    }
    let Progress { state, passed } = Progress::load(path, state()?);
    let mut is_well = true;
    for name in names {
        match (passed.get(*name), ends.get(name)) {
            (Some(Passed { seconds, not_run }), _) => {
                println!("{name}: passed, {seconds} s");
                for remark in not_run {
                    println!("    {remark}");
                }
            }
            (None, Some(End::Incomplete(at))) if *at == state => {
                println!("{name}: passed, but not all of it was run: to be run again");
            }
            (None, end) => {
                is_well = false;
                let has_failed = end == Some(&End::Failed);
                let how = if has_failed { "failed" } else { "passed at another state: to be run again" };
                println!("{name}: {how}");
            }
        }
    }
    Ok(is_well)
}

impl Stage {
    fn command(&self, folder: &Path, missed: &Path, installs: bool) -> Command {
        match self {
            // By cargo, since the tests build this program anew.
            Self::Tests(args) => {
                let mut command = cargo();
                command.args(["xtask", "test"]).args(installs.then_some("--install"));
                command.arg("--notes").arg(folder).arg("--stage").arg(missed).args(*args);
                command
            }
            Self::Cargo(args) => {
                let mut command = patient(cargo().get_program());
                command.args(["test", "--release"]).args(*args).args([
                    "--",
                    "--include-ignored",
                    "--test-threads=2",
                ]);
                command.env("LOCKWELL_NOT_RUN", missed);
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::not_run::tests::missing;

    /// A work tree, what its stages do, and which of them were played.
    struct Tree {
        folder: tempfile::TempDir,
        state: Cell<&'static str>,
        installs: Cell<bool>,
        played: RefCell<Vec<&'static str>>,
    }

    const NAMES: [&str; 2] = ["models", "servers"];

    impl Tree {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { folder, state: Cell::new("a"), installs: Cell::new(false), played: RefCell::default() }
        }

        /// Which stages a call plays, and whether it ends well.
        fn call(&self, does: impl Fn(&str) -> Option<Vec<NotRun>>) -> (Vec<&'static str>, bool) {
            let path = self.folder.path().join("deep.json");
            let is_well = play_all(
                &path,
                &NAMES,
                self.installs.get(),
                || Ok(self.state.get().to_owned()),
                |at| {
                    self.played.borrow_mut().push(NAMES[at]);
                    Ok(does(NAMES[at]).map(|not_run| Played { seconds: 3, not_run }))
                },
            );
            (self.played.take(), is_well.unwrap())
        }
    }

    #[test]
    fn what_has_passed_at_a_state_is_not_played_again() {
        let tree = Tree::new();
        let passes = |_: &str| Some(Vec::new());
        assert_eq!(tree.call(|name| (name == "models").then(Vec::new)), (NAMES.to_vec(), false));
        assert_eq!(tree.call(passes), (vec!["servers"], true));
        assert_eq!(tree.call(passes), (vec![], true));
        tree.state.set("b");
        assert_eq!(tree.call(passes), (NAMES.to_vec(), true));
    }

    #[test]
    fn what_changes_meanwhile_has_not_passed_at_either_state() {
        let tree = Tree::new();
        let edits = |name: &str| {
            if name == "models" {
                tree.state.set("b");
            }
            Some(Vec::new())
        };
        assert_eq!(tree.call(edits), (NAMES.to_vec(), false));
        // The second stage has begun and ended at the new state.
        assert_eq!(tree.call(|_| Some(Vec::new())), (vec!["models"], true));
        tree.state.set("a");
        assert_eq!(tree.call(|_| Some(Vec::new())), (NAMES.to_vec(), true));
    }

    #[test]
    fn what_was_not_run_is_played_again_if_that_can_change() {
        let tree = Tree::new();
        let lacks = |is_beyond| {
            move |name: &str| {
                let it = NotRun { is_beyond, ..missing("x/y", "z") };
                Some(if name == "servers" { vec![it] } else { Vec::new() })
            }
        };
        assert_eq!(tree.call(lacks(false)), (NAMES.to_vec(), true));
        tree.installs.set(true);
        assert_eq!(tree.call(lacks(false)), (vec!["servers"], true));
        assert_eq!(tree.call(lacks(false)), (vec![], true));
        tree.state.set("b");
        tree.installs.set(false);
        assert_eq!(tree.call(lacks(false)), (NAMES.to_vec(), true));
        assert_eq!(tree.call(lacks(true)), (vec!["servers"], true));
        assert_eq!(tree.call(lacks(true)), (vec![], true));
        let kept = Progress::load(&tree.folder.path().join("deep.json"), "b".to_owned());
        assert_eq!(kept.passed["servers"].not_run, ["cannot be run here: x/y z (no etcd)"]);
    }

    /// A stage whose test had another name would run nothing.
    #[test]
    fn the_test_of_the_leaders_is_there() {
        let test = LEADERS[LEADERS.len() - 1].strip_prefix("faults::").unwrap();
        let file = crate::shell::root().join("backend-zk/tests/zk/faults.rs");
        assert!(fs::read_to_string(file).unwrap().contains(&format!("fn {test}(")));
    }
}
