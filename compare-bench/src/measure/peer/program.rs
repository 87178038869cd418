//! The program that measures another library, and how it is built.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::process::Command;

/// How a peer is started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(super) command: Vec<OsString>,
    /// What was made for it, and goes with it.
    _folder: Option<Arc<TempDir>>,
}

impl Program {
    pub(super) fn new(command: Vec<OsString>) -> Self {
        Self { command, _folder: None }
    }

    /// Builds the peer of this library, by `peers/build.sh`.
    pub(super) async fn build(language: &str, library: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/build.sh");
        let mut command = Command::new(script);
        command.args([language, library]).arg(folder.path());
        if language == "java" {
            let libraries = testbed::ZooKeeper::curator_class_path().map_err(|error| error.to_string())?;
            command.env("CLASSPATH", libraries);
        }
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(why(&String::from_utf8_lossy(&output.stderr)).to_owned());
        }
        let words = String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect();
        Ok(Self { command: words, _folder: Some(Arc::new(folder)) })
    }
}

/// The first error among a program's words, or the last of them.
fn why(text: &str) -> &str {
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
