//! The command of the last release, built once from the history of this repository.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The program. `None` while nothing was released, and where it cannot be had, which is an error where all
/// must be tested.
pub(crate) fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Result<Option<PathBuf>, String>> = OnceLock::new();
    match PROGRAM.get_or_init(|| last_release()?.map(|tag| build(&tag)).transpose()) {
        Ok(Some(program)) => return Some(program),
        // Nothing is missing on this machine.
        Ok(None) => testbed::cannot_run("", "nothing was released: the repository has no tag"),
        Err(why) => testbed::lacks(why),
    }
    None
}

/// The last tag before the current commit, if there is one.
fn last_release() -> Result<Option<String>, String> {
    if git(&["tag", "--merged", "HEAD"])?.is_empty() {
        return Ok(None);
    }
    git(&["describe", "--tags", "--abbrev=0"]).map(Some)
}

fn build(tag: &str) -> Result<PathBuf, String> {
    let commit = git(&["rev-parse", &format!("{tag}^{{commit}}")])?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("last-release");
    let (done, source) = (folder.join("done"), folder.join("source"));
    let program = folder.join("target/debug/lockwell");
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    // One process at a time.
    let turn = File::create(folder.join("turn")).map_err(failed)?;
    turn.lock().map_err(failed)?;
    if program.exists() && fs::read_to_string(&done).is_ok_and(|built| built == commit) {
        return Ok(program);
    }
    if source.exists() {
        fs::remove_dir_all(&source).map_err(failed)?;
    }
    fs::create_dir_all(&source).map_err(failed)?;
    unpack(&commit, &source)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--package", "lockwell-cli"]);
    cargo.args(["--no-default-features", "--features", "redis,postgres,mysql"]);
    cargo.env("CARGO_TARGET_DIR", folder.join("target")).env("CARGO_INCREMENTAL", "0");
    run(cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").current_dir(&source))?;
    fs::write(done, commit).map_err(failed)?;
    Ok(program)
}

/// The files of that commit.
fn unpack(commit: &str, folder: &Path) -> Result<(), String> {
    let mut archive = Command::new("git");
    archive.args(["archive", commit]).current_dir(REPOSITORY).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut archive = archive.spawn().map_err(|error| format!("git: {error}"))?;
    let files = archive.stdout.take().ok_or("git has no output")?;
    let unpacked = run(Command::new("tar").arg("-x").current_dir(folder).stdin(files));
    let archived = archive.wait().map_err(|error| format!("git: {error}"))?;
    if !archived.success() {
        return Err(format!(
            "the repository here does not have the files of {commit}: its history is needed"
        ));
    }
    unpacked.map(drop)
}

fn git(args: &[&str]) -> Result<String, String> {
    run(Command::new("git").args(args).current_dir(REPOSITORY))
}

/// What it prints.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}
