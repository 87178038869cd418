//! Compiling a peer in Java against the libraries that Debian has.

use std::path::Path;
use std::sync::Arc;

use tokio::process::Command;

use super::{Program, output};

const LIBRARIES: &str = "/usr/share/java";

const JARS: [&str; 8] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-simple",
    "guava",
];

/// Compiles the `Peer.java` in this folder.
pub(super) async fn build(sources: &Path) -> Result<Program, String> {
    let jars = JARS.map(|name| format!("{LIBRARIES}/{name}.jar"));
    if let Some(missing) = jars.iter().find(|jar| !Path::new(jar).is_file()) {
        return Err(format!("{missing} is missing: apt install libcurator-recipes-java"));
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut compile = Command::new("javac");
    compile.args(["-cp", &jars.join(":"), "-d"]).arg(folder.path()).arg(sources.join("Peer.java"));
    let compiled = output(&mut compile).await;
    compiled.map_err(|error| format!("{error} (apt install default-jdk-headless has javac)"))?;
    let path = format!("{}:{}", folder.path().display(), jars.join(":"));
    let command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", &path, "Peer"];
    Ok(Program { command: command.map(Into::into).into(), _folder: Some(Arc::new(folder)) })
}
