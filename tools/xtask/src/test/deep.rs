//! `cargo xtask test --deep`: everything that is too long for every run.

use std::process::{Command, ExitCode};

use crate::shell::{Result, foreground, path, root, target};

/// The commands, what takes the shortest first. Each runs, whatever became of those before it.
const COMMANDS: [&str; 8] = [
    // The known defects of what we depend on, which take a network.
    "cargo deny check",
    // All steps, also those that look at nothing that was changed.
    "env LOCKWELL_EVERYTHING=1 bash .ci/run",
    "cargo test --workspace --all-features --test cli -- --ignored --exact first_day::as_a_reader_takes_it",
    "target/debug/compare-bench faults calm holder-killed holder-stopped soak",
    // The models, with optimisation and with the tests that take too long without it.
    "nice cargo nextest run --release --run-ignored all --ignore-default-filter -p models",
    // Its servers are killed for ten minutes.
    "cargo xtask test --run-ignored all -E test(=faults::the_leader_is_killed_for_long)",
    // Every case on every server in every setup, and the command of the last release.
    "cargo xtask test --servers all",
    "cargo xtask test --busy 4",
];

pub(super) fn run() -> Result<ExitCode> {
    let mut failed = Vec::new();
    for line in COMMANDS {
        let words: Vec<_> = line.split_whitespace().collect();
        let program =
            words[0].strip_prefix("target/").map_or_else(|| words[0].into(), |below| target().join(below));
        let mut command = Command::new(program);
        command.args(&words[1..]).env("PATH", path()).current_dir(root());
        if foreground(&mut command)? != ExitCode::SUCCESS {
            failed.push(line);
        }
    }
    for line in &failed {
        println!("failed: {line}");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
