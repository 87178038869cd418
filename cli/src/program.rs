//! Whether a command can be found, before anything is locked for it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::exit::Failure;

/// Refuses a command that clearly does not exist. In doubt, running it will show.
pub(crate) fn check(program: &OsStr) -> Result<(), Failure> {
    let refused = |kind| Err(Failure::not_started(&program.to_string_lossy(), &io::Error::from(kind)));
    if program.as_encoded_bytes().contains(&b'/') {
        return match fs::metadata(program) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => refused(io::ErrorKind::NotFound),
            Ok(found) if found.is_dir() => refused(io::ErrorKind::PermissionDenied),
            _ => Ok(()),
        };
    }
    // Without PATH the system has a path of its own.
    let Some(path) = std::env::var_os("PATH").filter(|path| !path.is_empty()) else { return Ok(()) };
    let mut found =
        std::env::split_paths(&path).map(|folder| folder.join(program)).filter(|file| file.is_file());
    match found.next() {
        None => refused(io::ErrorKind::NotFound),
        Some(first) if is_executable(&first) || found.any(|file| is_executable(&file)) => Ok(()),
        Some(_) => refused(io::ErrorKind::PermissionDenied),
    }
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_looked_for_as_a_shell_does() {
        let status = |name: &str| check(OsStr::new(name)).err().map(|failure| failure.status);
        assert_eq!(status("sh"), None);
        assert_eq!(status("/bin/sh"), None);
        assert_eq!(status("no-such-command"), Some(127));
        assert_eq!(status("./no-such-command"), Some(127));
        assert_eq!(status("/"), Some(126));
    }
}
