//! Runs other programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Output, Stdio};

/// What went wrong, for people.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The cargo that runs us, with the tools that were installed for it.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env("PATH", path());
    cargo
}

/// Where programs are: also those that `--install` has installed.
pub(crate) fn path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([tools().join("bin")]);
    // Only a folder with a separator in its name cannot be joined.
    std::env::join_paths(folders).unwrap_or(path)
}

/// Where programs from the index of Python are installed.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command line as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command in the foreground, and hands its exit status on.
pub(crate) fn foreground(command: &mut Command) -> Result<ExitCode> {
    eprintln!("xtask: {}", line(command));
    let status = command.status().map_err(|error| format!("{}: {error}", line(command)))?;
    Ok(exit_code(status))
}

/// A status that is no byte, after a signal, is a failure as any other.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Runs a command and takes its standard output. The error is what it wrote last.
pub(crate) fn text(command: &mut Command) -> Result<String> {
    let shown = line(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| format!("{shown}: its output is not text"));
    }
    Err(format!("{shown}: {}: {}", output.status, last_lines(&output)))
}

/// The end of what a program wrote.
fn last_lines(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&both);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join("\n    ")
}

/// The workspace's folder.
pub(crate) fn root() -> &'static std::path::Path {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_its_last_lines() {
        let problem = text(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"])).unwrap_err();
        assert!(problem.contains("two") && problem.contains('3'), "{problem}");
        assert_eq!(text(Command::new("echo").arg("hello")).unwrap(), "hello\n");
    }
}
