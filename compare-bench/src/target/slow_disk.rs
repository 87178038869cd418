//! A disk whose syncs take longer, for the servers and the files of a run.
//!
//! A library delays `fsync` and `fdatasync`. It must be there from the start of a process. So the program is
//! started again, with the same arguments, and servers get what their environment needs.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

/// What the loader reads.
const PRELOADED: &str = "LD_PRELOAD";
/// What the library reads, in microseconds.
const DELAY: &str = "LOCKWELL_SYNC_DELAY";
/// Where the library is, for whoever has to remove it.
const FOLDER: &str = "LOCKWELL_SYNC_FOLDER";

/// Makes each sync take longer by this time, and nothing if it is zero. Returns in a process for which that
/// is so.
pub(crate) fn ensure(delay: Duration) -> Result<SlowDisk> {
    if delay.is_zero() || env::var_os(FOLDER).is_some() {
        return Ok(SlowDisk(env::var_os(FOLDER).map(PathBuf::from)));
    }
    let folder = tempfile::Builder::new().prefix("lockwell-syncs-").tempdir()?;
    // Servers may run as another user.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let library = testbed::preloaded_syncs(folder.path())
        .map_err(|why| Error::failed(format!("--sync-delay needs a library that is compiled here: {why}")))?;
    again(delay, folder.keep(), library)
}

/// What the environment of a server needs for it.
pub(super) fn environment() -> Vec<(&'static str, String)> {
    if env::var_os(FOLDER).is_none() {
        return Vec::new();
    }
    [PRELOADED, DELAY].into_iter().filter_map(|name| Some((name, env::var(name).ok()?))).collect()
}

fn again(delay: Duration, folder: PathBuf, library: PathBuf) -> Result<SlowDisk> {
    use std::os::unix::process::CommandExt;
    let error = std::process::Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(PRELOADED, library)
        .env(DELAY, delay.as_micros().to_string())
        .env(FOLDER, &folder)
        .exec();
    drop(SlowDisk(Some(folder)));
    Err(error.into())
}

/// Removes the library at the end.
#[derive(Debug)]
pub(crate) struct SlowDisk(Option<PathBuf>);

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if let Some(folder) = &self.0
            && let Err(error) = std::fs::remove_dir_all(folder)
        {
            eprintln!("compare-bench: {} stays: {error}", folder.display());
        }
    }
}
