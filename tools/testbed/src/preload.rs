//! Libraries that change the system calls of a process, compiled on the machine of the test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source`, in C, to a library in `folder` whose path `LD_PRELOAD` takes. `Err`: the machine has no
/// C compiler, or is not Linux.
///
/// # Panics
/// If the source does not compile.
pub fn preloaded(source: &Path, folder: &Path) -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("system calls are changed on Linux only".into());
    }
    let library = folder.join("preloaded.so");
    let output = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&library, source])
        .args(["-ldl", "-pthread"])
        .output()
        .map_err(|error| format!("there is no C compiler `cc`: {error}"))?;
    assert!(
        output.status.success(),
        "{} does not compile: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(library)
}

/// A library for which `LOCKWELL_SYNC_DELAY=MICROSECONDS` is a slow disk, and `LOCKWELL_SYNC_FAILS=FILE` a
/// disk that refuses each sync as long as that file exists. Errors as for [`preloaded`].
pub fn preloaded_syncs(folder: &Path) -> Result<PathBuf, String> {
    preloaded(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/syncs.c")), folder)
}
