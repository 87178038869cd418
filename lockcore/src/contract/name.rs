//! Lock names.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters.
///
/// Names are compared byte by byte on every backend: `a`, `A`, `a ` and `a/b` are different locks everywhere.
/// A name is data, not a path: `/`, `..`, `{` and quotes have no meaning in it. Cloning is cheap.
///
/// ```
/// # use lockwell_core as lockwell;
/// use lockwell::LockName;
/// let name: LockName = "orders/42".parse()?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!("".parse::<LockName>().is_err());
/// assert!("a\nb".parse::<LockName>().is_err());
/// # Ok::<_, lockwell::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks the name.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        check(name)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(name: &str) -> Result<()> {
    let complaint = if name.is_empty() {
        "a lock name must not be empty".to_owned()
    } else if name.len() > LockName::MAX_BYTES {
        format!("a lock name has at most {} bytes, this one has {}", LockName::MAX_BYTES, name.len())
    } else if let Some((at, bad)) = name.char_indices().find(|(_, c)| c.is_control()) {
        format!("a lock name has no control characters, this one has U+{:04X} at byte {at}", u32::from(bad))
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidInput, complaint))
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Error;
    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&String> for LockName {
    type Error = Error;
    fn try_from(name: &String) -> Result<Self> {
        Self::new(name)
    }
}

impl From<&LockName> for LockName {
    fn from(name: &LockName) -> Self {
        name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_bytes() {
        assert!(LockName::new("x".repeat(512)).is_ok());
        assert!(LockName::new("x".repeat(513)).is_err());
        assert!(LockName::new("é".repeat(256)).is_ok());
        assert!(LockName::new("é".repeat(257)).is_err());
    }

    #[test]
    fn the_complaint_says_what_is_allowed() {
        let error = LockName::new("a\u{7f}").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("U+007F at byte 1"), "{error}");
        assert!(LockName::new("\0").unwrap_err().to_string().contains("U+0000"));
        assert!(LockName::new("").unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn odd_names_are_names() {
        for name in ["a", "A", "a ", " a", "a/b", "..", "{a}", "'; --", "🔒", "%", "\u{200d}"] {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
    }
}
