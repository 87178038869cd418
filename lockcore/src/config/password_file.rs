//! Passwords in files that an address names.

use std::fs::File;
use std::io::Read as _;

use super::Secret;
use crate::{Error, ErrorKind, Result};

/// The option that names the file.
pub(super) const OPTION: &str = "password_file";

/// The longest password. The limit matters for devices, which have no end.
const MOST: u64 = 64 * 1024;

/// The only line of the file.
pub(super) fn read(file: &str) -> Result<Secret> {
    // No error quotes the contents of the file.
    let bad = |why: &str| Error::new(ErrorKind::InvalidInput, format!("{OPTION}: {file}: {why}"));
    let mut text = String::new();
    let opened = File::open(file).and_then(|open| open.take(MOST + 1).read_to_string(&mut text));
    opened.map_err(|error| bad(&error.to_string()))?;
    let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() || line.contains('\n') || text.len() as u64 > MOST {
        return Err(bad("one line with the password is expected"));
    }
    if let Some(c) = line.chars().find(|c| c.is_control() || *c == '\u{feff}') {
        return Err(bad(&format!("U+{:04X} cannot be a part of the password", u32::from(c))));
    }
    Ok(Secret::new(line))
}

#[cfg(test)]
mod tests {
    use crate::LockConfig;

    use super::*;

    fn resolved(url: &str) -> Result<String> {
        let (url, _) = LockConfig::new(url).resolve()?;
        // The option is for the configuration, not for the backend.
        url.allow_options(&[])?;
        assert!(!format!("{url} {url:?}").contains("hunter2"));
        Ok(url.password().expect("a password").expose().to_owned())
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
