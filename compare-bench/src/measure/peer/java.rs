//! Compiling a peer in Java against the libraries that Debian has.

use std::path::Path;

use testbed::ZooKeeper;
use tokio::process::Command;

use crate::measure::peer::program::{Program, output};

/// Compiles the `Peer.java` in this folder.
pub(super) async fn build(sources: &Path) -> Result<Program, String> {
    let libraries = ZooKeeper::curator_class_path().map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut compile = Command::new("javac");
    compile.args(["-cp", &libraries, "-d"]).arg(folder.path()).arg(sources.join("Peer.java"));
    let compiled = output(&mut compile).await;
    compiled.map_err(|error| format!("{error} (apt install default-jdk-headless has javac)"))?;
    let path = format!("{}:{libraries}", folder.path().display());
    let command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", &path, "Peer"];
    Ok(Program::new(command.map(Into::into).into(), Some(folder)))
}
