//! Building a peer with the cargo that is at hand.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::Command;

use crate::measure::peer::program::{Program, output};

/// Builds the peer of this library in the workspace of this folder.
pub(super) async fn build(workspace: &Path, library: &str) -> Result<Program, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--message-format=json", "--manifest-path"]);
    command.arg(workspace.join("Cargo.toml"));
    command.arg(format!("--package=peer-{library}"));
    // `cargo xtask test` sets it for the reports of tests.
    command.env_remove("RUSTC_BOOTSTRAP");
    let text = output(&mut command).await?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    let program = programs.next_back().ok_or_else(|| "cargo build made no program".to_owned())?;
    Ok(Program::new(vec![program.into()], None))
}
