//! `cargo xtask fuzz`: runs each target of `fuzz/` for a while, from the seeds in `fuzz/seeds`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::shell::{Result, foreground, root, text};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long each target runs.
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration)]
    span: std::time::Duration,
    /// The targets [default: all].
    targets: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for (missing, remedy) in [
        (text(nightly("rustc").arg("--version")).is_err(), "rustup toolchain install nightly"),
        (text(Command::new("cargo-fuzz").arg("--version")).is_err(), "cargo install cargo-fuzz --locked"),
    ] {
        if missing {
            println!("IGNORED: nothing was fuzzed: {remedy}");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let known = targets()?;
    if let Some(unknown) = options.targets.iter().find(|target| !known.contains(target)) {
        return Err(format!("there is no target {unknown}; there are {}", known.join(", ")));
    }
    let chosen = if options.targets.is_empty() { &known } else { &options.targets };
    for target in chosen {
        let found = corpus(target);
        fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        if foreground(&mut command(target, options.span.as_secs().max(1)))? != ExitCode::SUCCESS {
            return Err(format!(
                "{target} has found something: its input is in tools/fuzz/artifacts/{target}"
            ));
        }
    }
    println!("{}: nothing was found", chosen.join(", "));
    Ok(ExitCode::SUCCESS)
}

fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]);
    command
}

/// The names of the targets.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("tools/fuzz/fuzz_targets");
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        targets.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}

/// Where inputs are kept that reached something new.
fn corpus(target: &str) -> PathBuf {
    root().join("tools/fuzz/corpus").join(target)
}

fn command(target: &str, seconds: u64) -> Command {
    let mut command = nightly("cargo");
    // The sanitizer looks for what unsafe code does wrong, and there is none. Without it there are more runs
    // in a second.
    command.current_dir(root()).args(["fuzz", "run", "--sanitizer", "none", target]);
    // What is new goes into the first folder.
    command.args([corpus(target), root().join("tools/fuzz/seeds").join(target)]).arg("--");
    command.args([
        format!("-max_total_time={seconds}"),
        "-timeout=10".to_owned(),
        "-print_final_stats=1".to_owned(),
    ]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_declared_and_has_seeds() {
        let manifest = fs::read_to_string(root().join("tools/fuzz/Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert!(targets.len() >= 4, "{targets:?}");
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            let seeds = fs::read_dir(root().join("tools/fuzz/seeds").join(&target)).expect(&target);
            assert!(seeds.count() > 0, "{target}");
        }
    }

    #[test]
    fn the_time_is_handed_on() {
        let line = crate::shell::line(&command("addresses", 60));
        assert!(
            line.contains("fuzz run --sanitizer none addresses ") && line.contains("seeds/addresses -- ")
        );
        assert!(line.contains("-max_total_time=60"), "{line}");
    }
}
