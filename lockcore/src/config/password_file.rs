//! Passwords in files that an address names.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::sync::OnceLock;

use super::Secret;

/// The option that names the file.
pub(super) const OPTION: &str = "password_file";

/// The longest password. The limit matters for devices, which have no end.
const MOST: u64 = 64 * 1024;

/// A file whose only line is a password.
#[derive(Debug)]
pub(super) struct PasswordFile {
    /// The option that names it.
    option: &'static str,
    path: String,
    /// What was read from a pipe, which can be read once.
    piped: OnceLock<Secret>,
}

impl PasswordFile {
    pub(super) fn new(option: &'static str, path: impl Into<String>) -> Self {
        Self { option, path: path.into(), piped: OnceLock::new() }
    }

    /// The only line of the file, or why there is none. The text does not quote the file.
    pub(super) fn read(&self) -> Result<Secret, String> {
        if let Some(secret) = self.piped.get() {
            return Ok(secret.clone());
        }
        let mut text = String::new();
        let read = File::open(&self.path).and_then(|open| {
            let is_file = open.metadata()?.is_file();
            open.take(MOST + 1).read_to_string(&mut text)?;
            Ok(is_file)
        });
        let is_file = read.map_err(|error| error.to_string())?;
        let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        if line.is_empty() || line.contains('\n') || text.len() as u64 > MOST {
            return Err("one line with the password is expected".to_owned());
        }
        let secret = checked(line)?;
        if is_file { Ok(secret) } else { Ok(self.piped.get_or_init(|| secret).clone()) }
    }
}

impl PartialEq for PasswordFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl fmt::Display for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.path)
    }
}

/// A password that can be sent to a server, or what is wrong with it.
pub(super) fn checked(text: &str) -> Result<Secret, String> {
    if text.is_empty() {
        return Err("the password is empty".to_owned());
    }
    match text.chars().find(|c| c.is_control() || *c == '\u{feff}') {
        Some(c) => Err(format!("U+{:04X} cannot be a part of the password", u32::from(c))),
        None => Ok(Secret::new(text)),
    }
}

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, LockConfig, Result};

    use super::*;

    fn resolved(url: &str) -> Result<String> {
        let (url, _) = LockConfig::new(url).resolve()?;
        // The option is for the configuration, not for the backend.
        url.allow_options(&[])?;
        assert!(!format!("{url} {url:?}").contains("hunter2"));
        Ok(url.password().expect("a password").expose().to_owned())
    }

    /// As `<(echo hunter2)` of a shell.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_read_once() {
        use std::os::fd::AsRawFd as _;
        use std::process::{Command, Stdio};
        let mut echo = Command::new("echo").arg("hunter2").stdout(Stdio::piped()).spawn().unwrap();
        echo.wait().unwrap();
        let reads = echo.stdout.take().unwrap();
        let file = PasswordFile::new(OPTION, format!("/proc/self/fd/{}", reads.as_raw_fd()));
        for _ in 0..2 {
            assert_eq!(file.read().unwrap().expose(), "hunter2");
        }
    }

    #[test]
    fn the_password_is_the_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let url = format!("mysql://ann@db/app?password_file={}", file.display());
        for (text, password) in
            [("hunter2", "hunter2"), ("hunter2 %41/@\r\n", "hunter2 %41/@"), (" a \n", " a ")]
        {
            std::fs::write(&file, text).unwrap();
            assert_eq!(resolved(&url).unwrap(), password);
        }
        for text in ["", "\n", "hunter2\nhunter2\n", "\u{feff}hunter2\n", "hunter2\0\n", "hunter2\r\r\n"] {
            std::fs::write(&file, text).unwrap();
            let error = resolved(&url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
            let shown = format!("{error:#} {error:?}");
            assert!(shown.contains("password_file") && !shown.contains("hunter2"), "{shown}");
        }
        std::fs::write(&file, "hunter2").unwrap();
        let twice = resolved(&url.replace("ann@", "ann:other@")).unwrap_err();
        assert!(twice.to_string().contains("twice"), "{twice}");
        let missing = resolved("mysql://ann@db/app?password_file=/no/such/file").unwrap_err();
        assert!(missing.to_string().contains("/no/such/file"), "{missing}");
        #[cfg(target_os = "linux")]
        assert!(resolved("mysql://ann@db/app?password_file=/dev/zero").is_err(), "no end");
    }
}
