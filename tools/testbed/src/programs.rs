//! Finds the installed servers and their client programs.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::Error;

/// Debian keeps daemons out of an ordinary user's `PATH`.
const DAEMON_FOLDERS: [&str; 5] = ["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/local/bin"];

/// The path of `program`, or an error that names the package it comes in.
pub(crate) fn find(program: &str, package: &str) -> Result<String, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain(DAEMON_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file());
    text(&found.ok_or_else(|| missing(program, package))?)
}

/// The folder of the newest installed Postgres. Debian does not put it into the `PATH`.
pub(crate) fn postgres_folder() -> Result<PathBuf, Error> {
    let newest = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("postgres").is_file().then_some((version, folder))
        })
        .max();
    if let Some((_, folder)) = newest {
        return Ok(folder);
    }
    let program = find("postgres", "postgresql")?;
    Ok(Path::new(&program).parent().unwrap_or(Path::new("/")).to_owned())
}

/// An error for a program that is not there.
pub(crate) fn missing(program: &str, package: &str) -> Error {
    Error::NotInstalled(format!("{program} not found: apt-get install {package}"))
}

/// Paths end up in shell scripts and configuration files, so they have to be text.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::State(format!("the path {} is not valid UTF-8", path.display())))
}

/// The user that runs a server which refuses to run as root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nobody {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Nobody {
    /// `None` if we are not root, and so need no other user.
    pub(crate) fn if_root() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let line = users.lines().find(|line| line.starts_with("nobody:")).unwrap_or_default();
        let mut ids = line.split(':').skip(2).map_while(|field| field.parse().ok());
        Some(Self { uid: ids.next().unwrap_or(65534), gid: ids.next().unwrap_or(65534) })
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
