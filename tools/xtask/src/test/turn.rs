//! One run of the tests at a time: two of them would take each other's logs and notes away.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use crate::shell::Result;

/// Takes the turn of this name in this folder for logs and notes, or says who has it. Whoever has the file
/// has the turn; the system takes it back when the process ends in any way.
pub(crate) fn take(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(name);
    let problem = |error: io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(folder).map_err(problem)?;
    // It is not emptied before it is ours: it says whose it is.
    let mut file = File::options().write(true).create(true).truncate(false).open(&path).map_err(problem)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let process = fs::read_to_string(&path).unwrap_or_default();
            return Err(format!(
                "process {} runs tests in this checkout, and has its logs in {}: wait for its end, or give these \
                 tests another folder, by --notes target/xtask/other",
                process.trim(),
                folder.display()
            ));
        }
        // Some file systems have no locks. Cargo does without them as well.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(TryLockError::Error(error)) => return Err(problem(error)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(problem)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_turn() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path(), "turn").unwrap();
        let refused = take(folder.path(), "turn").unwrap_err();
        assert!(refused.starts_with(&format!("process {} runs tests", std::process::id())), "{refused}");
        // Another folder has another turn.
        take(&folder.path().join("other"), "turn").unwrap();
        // A process that another test is just starting may still have the file: to close it is not enough.
        first.unlock().unwrap();
        take(folder.path(), "turn").unwrap();
    }
}
