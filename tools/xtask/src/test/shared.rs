//! Programs whose tests share servers: each runs as one process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::run::{Failed, Outcome, Run, Servers, cargo_with};
use crate::shell::{Result, line, root};

/// How long such a program may write nothing.
const LIMIT: Duration = Duration::from_mins(15);

/// The exit status of a program of which tests have failed.
const FAILED: i32 = 101;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shared {
    Conformance,
    Sql,
}

#[derive(Debug, Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

impl Shared {
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Conformance, Self::Sql].into_iter().find(|one| one.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Conformance => "conformance",
            Self::Sql => "sql",
        }
    }

    /// The folder of its package, where cargo would run it.
    fn package(self) -> &'static str {
        match self {
            Self::Conformance => "",
            Self::Sql => "backend-sql",
        }
    }

    fn command(self, run: &Run, file: &Path) -> Command {
        let mut command = Command::new(file);
        let folder = root().join(self.package());
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", folder).stdin(Stdio::null());
        run.set(&mut command);
        command
    }

    /// Runs this program, which was built, with these arguments.
    pub(super) fn run(self, run: &Run, file: &Path, args: &[&str]) -> Result<Outcome> {
        let mut command = self.command(run, file);
        // The suite chooses by itself how many of its cases run at a time. More of these would be late.
        if self == Self::Sql && args.is_empty() {
            command.arg("--test-threads=4");
            if run.servers == Servers::Usual {
                command.args(["--skip", "deep_"]);
            }
        }
        let (text, status) = logged(command.args(args), &run.folder.join(format!("{}.log", self.name())))?;
        let mut outcome =
            Outcome { summary: format!("{}: {}", self.name(), summary(&text)), ..Outcome::default() };
        match status.map(|status| status.code()) {
            Some(Some(0)) => {}
            Some(Some(FAILED)) if !failures(&text).is_empty() => {
                for name in failures(&text) {
                    let mut alone = self.command(run, file);
                    alone.args(["--exact", name, "--include-ignored", "--test-threads=1"]);
                    outcome.failed.push(Failed { name: format!("{} {name}", self.name()), alone });
                }
            }
            Some(_) => outcome.problem = Some(format!("{}: {}", self.name(), end(&text))),
            None => outcome.problem = Some(format!("{}: it wrote nothing for {LIMIT:?}", self.name())),
        }
        if status.is_none_or(|status| !status.success()) {
            println!("{text}");
        }
        println!("{}", outcome.summary);
        Ok(outcome)
    }
}

/// Builds the program of this kind.
pub(super) fn build(shared: Shared) -> Result<PathBuf> {
    let mut command = cargo_with("test");
    command.args([
        "--no-run",
        "--quiet",
        "--message-format",
        "json-render-diagnostics",
        "--test",
        shared.name(),
    ]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", line(&command)))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut built = messages.lines().filter_map(|line| {
        let Message { target, executable } = serde_json::from_str(line).ok()?;
        target.filter(|target| target.name == shared.name()).and(executable)
    });
    built.next().ok_or_else(|| format!("{} cannot be built: {}", shared.name(), output.status))
}

/// The tests of the documentation, which compute.
pub(super) fn documentation(run: &Run) -> Result<Outcome> {
    let mut command = Command::new("nice");
    let cargo = cargo_with("test");
    command.args(["-n", "5"]).arg(cargo.get_program()).args(cargo.get_args()).args(["--doc", "--quiet"]);
    command.current_dir(root()).stdin(Stdio::null());
    run.set(&mut command);
    let (text, status) = logged(&mut command, &run.folder.join("documentation.log"))?;
    let is_well = status.is_some_and(|status| status.success());
    if !is_well {
        println!("{text}");
    }
    let passed: usize = text.lines().filter_map(passed).sum();
    let summary = format!("documentation: {passed} passed");
    let problem = (!is_well).then(|| format!("documentation: {}", end(&text)));
    Ok(Outcome { problem, summary, ..Outcome::default() })
}

/// Runs a command, and ends it if it writes nothing for too long: then there is no status. Answers what it wrote.
fn logged(command: &mut Command, log: &Path) -> Result<(String, Option<ExitStatus>)> {
    let problem = |error: std::io::Error| format!("{}: {error}", log.display());
    let file = File::create(log).map_err(problem)?;
    command.stdout(file.try_clone().map_err(problem)?).stderr(file);
    eprintln!("xtask: {}", line(command));
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", line(command)))?;
    let (mut length, mut since) = (0, Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().map_err(problem)? {
            break Some(status);
        }
        let now = fs::metadata(log).map_err(problem)?.len();
        if now != length {
            (length, since) = (now, Instant::now());
        } else if since.elapsed() > LIMIT {
            // Whoever looks after the servers of its tests goes on, and clears them away.
            child.kill().and_then(|()| child.wait()).map_err(problem)?;
            break None;
        }
        thread::sleep(Duration::from_millis(200));
    };
    let text = fs::read(log).map_err(problem)?;
    Ok((String::from_utf8_lossy(&text).into_owned(), status))
}

/// The names in the list of failures at the end of what a program of tests wrote.
fn failures(text: &str) -> Vec<&str> {
    let list = text.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let lines = list.lines().skip_while(|line| line.is_empty());
    lines.map_while(|line| line.strip_prefix("    ")).collect()
}

/// Its last lines.
fn end(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n    ")
}

fn summary(text: &str) -> &str {
    text.lines().rev().find(|line| line.starts_with("test result: ")).unwrap_or("it did not come to its end")
}

/// How many tests have passed, by a line `test result: ok. 3 passed; ...`.
fn passed(line: &str) -> Option<usize> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "running 3 tests\n...\nfailures:\n\n---- a::b ----\n\nfailures:\n of no list\n\nfailures:\n    \
                        a::b\n    c d\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n\nmore\n";

    #[test]
    fn the_last_list_names_the_failures() {
        assert_eq!(failures(TEXT), ["a::b", "c d"]);
        assert!(failures("failures:\n").is_empty());
        assert_eq!(summary(TEXT), "test result: FAILED. 1 passed; 2 failed; 0 ignored");
        assert_eq!(TEXT.lines().filter_map(passed).sum::<usize>(), 1);
    }

    #[test]
    fn a_program_has_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        let (text, status) =
            logged(shell.args(["-c", "echo one; echo two >&2; exit 101"]), &folder.path().join("log"))
                .unwrap();
        assert_eq!((text.as_str(), status.unwrap().code()), ("one\ntwo\n", Some(FAILED)));
    }
}
