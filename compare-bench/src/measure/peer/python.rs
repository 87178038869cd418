//! Finding a Python for a peer: the system's if it has the library, or one of our own with it from the package index.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use tokio::process::Command;

use super::{Program, output};

/// Finds a Python for the `peer.py` in this folder, which names what it needs in `requirements.txt`.
pub(super) async fn build(sources: &Path) -> Result<Program, String> {
    let script = OsString::from(sources.join("peer.py"));
    if output(Command::new("python3").args(["-c", "import kazoo"])).await.is_ok() {
        return Ok(Program { command: vec!["python3".into(), script], _folder: None });
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    output(Command::new("python3").args(["-m", "venv"]).arg(folder.path())).await?;
    let python = folder.path().join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]);
    output(install.arg(sources.join("requirements.txt"))).await?;
    Ok(Program { command: vec![python.into(), script], _folder: Some(Arc::new(folder)) })
}
