//! What the parts of a run have in common.

use std::path::PathBuf;
use std::process::Command;

use testbed::Release;

use crate::shell::{cargo, root};

/// The packages of all tests. Others would be compiled with other features of what they depend on.
pub(super) const ALL: [&str; 2] = ["--workspace", "--all-features"];

/// Which servers a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Servers {
    Usual,
    Fetched,
    All,
}

impl Servers {
    /// Its name for the conformance suite.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Fetched => "fetched",
            Self::All => "all",
        }
    }

    /// The releases to be fetched for it.
    pub(super) fn needed(self) -> impl Iterator<Item = &'static Release> {
        let fetched = Release::all().iter().filter(|release| release.is_fetched());
        fetched.filter(move |release| self != Self::Usual || release.is_usual())
    }
}

/// A run.
pub(super) struct Run {
    pub(super) servers: Servers,
    /// For the output of programs, and for what the tests say besides.
    pub(super) folder: PathBuf,
}

/// How a part of a run went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Tests that have failed.
    pub(super) failed: Vec<Failed>,
    /// Why the part has failed, apart from its tests.
    pub(super) problem: Option<String>,
    /// The last line of its runner.
    pub(super) summary: String,
}

/// A test that has failed, and the command that runs it alone.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) name: String,
    pub(super) alone: Command,
}

impl Run {
    /// The environment of the tests.
    pub(super) fn set(&self, command: &mut Command) {
        command
            .env("LOCKWELL_SERVERS", self.servers.name())
            .env("LOCKWELL_NOT_RUN", self.folder.join("not-run"));
        command.env("LOCKWELL_REPORT", self.folder.join("report.json"));
        // What a test says is enough; a backtrace hides it.
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            command.env("RUST_BACKTRACE", "0");
        }
    }
}

/// `cargo` with the options that name all tests.
pub(super) fn cargo_with(verb: &str) -> Command {
    let mut command = cargo();
    command.current_dir(root()).arg(verb).args(ALL);
    command
}
