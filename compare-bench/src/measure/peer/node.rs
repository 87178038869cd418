//! Installing what a peer in JavaScript needs, from the package index.

use std::fs;
use std::path::Path;

use tokio::process::Command;

use crate::measure::peer::program::{Program, output};

/// Installs what the `package.json` in this folder pins, for the `peer.js` beside it.
pub(super) async fn build(sources: &Path) -> Result<Program, String> {
    output(Command::new("node").arg("--version")).await?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let copied = fs::copy(sources.join("package.json"), folder.path().join("package.json"));
    copied.map_err(|error| error.to_string())?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(folder.path());
    output(&mut install).await?;
    let modules = folder.path().join("node_modules").into();
    let mut program = Program::new(vec!["node".into(), sources.join("peer.js").into()], Some(folder));
    program.environment.push(("NODE_PATH", modules));
    Ok(program)
}
