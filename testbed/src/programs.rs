//! Finds the installed servers and their client programs.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use crate::Error;

/// Debian keeps daemons out of an ordinary user's `PATH`.
const DAEMON_FOLDERS: [&str; 5] = ["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/usr/local/bin"];

/// True if a missing server must fail a test instead of skipping it: `LOCKWELL_REQUIRE_SERVERS=1` (CI).
pub fn servers_required() -> bool {
    env::var_os("LOCKWELL_REQUIRE_SERVERS").is_some_and(|value| value == "1")
}

/// Whether a server can be started, by what its `installed` answered. If not, this says why, and the test is
/// to be skipped.
///
/// # Panics
/// If it cannot and [servers are required](servers_required).
pub fn is_installed(answer: Result<(), Error>) -> bool {
    let Err(error) = answer else { return true };
    assert!(!servers_required(), "{error}");
    eprintln!("IGNORED: {error}");
    false
}

/// What was started, or nothing if its program is not on this machine: then this says so, and the test is to
/// be skipped.
///
/// # Panics
/// If it does not start, or cannot and [servers are required](servers_required).
pub fn if_installed<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Err(error) if error.is_not_installed() => {
            is_installed(Err(error));
            None
        }
        answer => Some(answer.expect("it starts")),
    }
}

/// Says that something is not tested here, and why: on the standard error, and for `cargo xtask test`, which
/// says it again at the end, in the file that `LOCKWELL_NOT_RUN` names.
pub fn not_run(what: &str, why: &str) {
    eprintln!("not run: {what} ({why})");
    let Some(path) = env::var_os("LOCKWELL_NOT_RUN") else { return };
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    let line = format!("{what} ({})\n", why.lines().next().unwrap_or_default());
    // Written in one piece, since several tests may do so.
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("and that cannot be noted: {error}");
    }
}

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
