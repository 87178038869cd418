//! The program that measures another library, and how it is built.

use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::process::Command;

/// How a peer is started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(super) command: Vec<OsString>,
    /// Variables of its environment.
    pub(super) environment: Vec<(&'static str, OsString)>,
    /// What was made for it, and goes with it.
    _folder: Option<Arc<TempDir>>,
}

impl Program {
    pub(crate) fn new(command: Vec<OsString>, folder: Option<TempDir>) -> Self {
        Self { command, environment: Vec::new(), _folder: folder.map(Arc::new) }
    }
}

/// What a program says that builds something, or why it fails.
pub(super) async fn output(command: &mut Command) -> Result<String, String> {
    let program = command.as_std().get_program().display().to_string();
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program} failed: {}", why(&String::from_utf8_lossy(&output.stderr))))
}

/// The first error among a program's words, or the last of them.
pub(super) fn why(text: &str) -> &str {
    let error = text.lines().find(|line| line.starts_with("error"));
    error.or_else(|| text.lines().last()).unwrap_or("no reason given").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found() {
        assert_eq!(why("   Compiling x\nerror: no network\nnote: y\n"), "error: no network");
        assert_eq!(why("a\nb\n"), "b");
        assert_eq!(why(""), "no reason given");
    }
}
