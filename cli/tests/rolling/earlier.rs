//! The command as it was at an earlier commit, built once from the history of this repository.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A version of the command.
pub(crate) struct Version {
    /// The last commit before the formats changed that are kept in this backend.
    commit: &'static str,
    /// What is not needed is not built.
    feature: &'static str,
    program: OnceLock<Result<PathBuf, String>>,
}

/// For Redis.
#[cfg(feature = "redis")]
pub(crate) static REDIS: Version = Version::new("bacc779bd9af3cb7e4d1a3ec25a15f3d5a8d027d", "redis");
/// For PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) static POSTGRES: Version = Version::new("ba03bd9e541b5a937d7d49d085631fe0c3677516", "postgres");
/// For MySQL and MariaDB.
#[cfg(feature = "mysql")]
pub(crate) static MYSQL: Version = Version::new("cef94c49d6296c4e1e71ca14d5abbff1b006a921", "mysql");

impl Version {
    const fn new(commit: &'static str, feature: &'static str) -> Self {
        Self { commit, feature, program: OnceLock::new() }
    }

    /// The program. `None` where it cannot be had, which is an error where all must be tested.
    pub(crate) fn program(&'static self) -> Option<&'static Path> {
        let program = self.program.get_or_init(|| build(self));
        program.as_ref().inspect_err(|why| not_run(why)).ok().map(PathBuf::as_path)
    }
}

/// Says that something is not tested here, and fails where it has to be.
pub(crate) fn not_run(why: &str) {
    assert!(!testbed::servers_required(), "{why}");
    testbed::not_run("the rolling deployment", why);
}

fn build(version: &Version) -> Result<PathBuf, String> {
    let Version { commit, feature, .. } = version;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lockwell-{commit}"));
    let program = folder.join("target/debug/lockwell");
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    // One process at a time.
    let turn = File::create(folder.join("turn")).map_err(failed)?;
    turn.lock().map_err(failed)?;
    let done = folder.join("done");
    if done.exists() && program.exists() {
        return Ok(program);
    }
    let source = folder.join("source");
    fs::create_dir_all(&source).map_err(failed)?;
    unpack(commit, &source)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--package", "lockwell-cli"]);
    cargo.args(["--no-default-features", "--features", feature]);
    cargo.env("CARGO_TARGET_DIR", folder.join("target")).env("CARGO_INCREMENTAL", "0");
    run(cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").current_dir(&source))?;
    fs::write(done, "").map_err(failed)?;
    Ok(program)
}

/// The files of that commit.
fn unpack(commit: &str, folder: &Path) -> Result<(), String> {
    let mut archive = Command::new("git");
    archive.args(["archive", commit]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut archive = archive
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("git: {error}"))?;
    let files = archive.stdout.take().ok_or("git has no output")?;
    let unpacked = run(Command::new("tar").arg("-x").current_dir(folder).stdin(files));
    let archived = archive.wait().map_err(|error| format!("git: {error}"))?;
    if !archived.success() {
        return Err(format!("the repository here has no commit {commit}: its history is needed"));
    }
    unpacked
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}
