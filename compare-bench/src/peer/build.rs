//! Building a peer with the cargo that is at hand.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

/// Builds the peer in this folder of `peers/`, and returns its program.
pub(super) async fn build(name: &str) -> Result<PathBuf, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name).join("Cargo.toml");
    if !manifest.is_file() {
        return Err(format!("there is no {}", manifest.display()));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .args(["build", "--release", "--locked", "--message-format=json", "--manifest-path"])
        .arg(&manifest)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("{}: {error}", cargo.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo build failed: {}", why(&text)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().ok_or_else(|| "cargo build made no program".to_owned())
}

/// The first error among cargo's words, or the last of them.
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
