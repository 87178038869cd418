//! Finding a Python for a peer: the system's if it has the library, or one of our own with it from the
//! package index.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use tokio::process::Command;

use crate::measure::peer::program::{Program, output};

/// Finds a Python for the `peer.py` in this folder, which names what it needs in `requirements.txt`.
pub(super) async fn build(sources: &Path) -> Result<Program, String> {
    let script = OsString::from(sources.join("peer.py"));
    let requirements = sources.join("requirements.txt");
    let pinned = fs::read_to_string(&requirements).map_err(|error| error.to_string())?;
    let is_there = format!(
        "import importlib.metadata as m; exit(m.version({:?}) != {:?})",
        module(&pinned),
        version(&pinned)
    );
    if output(Command::new("python3").args(["-c", &is_there])).await.is_ok() {
        return Ok(Program::new(vec!["python3".into(), script], None));
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    output(Command::new("python3").args(["-m", "venv"]).arg(folder.path())).await?;
    let python = folder.path().join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r"]);
    output(install.arg(requirements)).await?;
    Ok(Program::new(vec![python.into(), script], Some(folder)))
}

/// Of `kazoo==2.11.0`: the name.
fn module(pinned: &str) -> &str {
    pinned.split("==").next().unwrap_or_default().trim()
}

fn version(pinned: &str) -> &str {
    pinned.split("==").nth(1).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read() {
        assert_eq!((module("kazoo==2.11.0\n"), version("kazoo==2.11.0\n")), ("kazoo", "2.11.0"));
    }
}
