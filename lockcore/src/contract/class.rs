//! The class of a request.

use crate::{Error, ErrorKind, Result};

/// The longest class, in bytes: it is in every sample of some twenty series.
const LONGEST: usize = 64;

/// The class of a request: its number among those of this process. None: the request has no class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(pub(crate) Option<u8>);

/// Refuses what an exporter could not show as it is.
pub(crate) fn check_class(class: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte);
    let is_class = (1..=LONGEST).contains(&class.len()) && class.bytes().all(fits);
    if is_class { Ok(()) } else { Err(not_a_class()) }
}

pub(crate) fn not_a_class() -> Error {
    let text = format!("a class has 1 to {LONGEST} ASCII letters, digits and characters of \"._-/:\"");
    Error::new(ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_needs_no_escapes() {
        let longest = "a".repeat(LONGEST);
        for class in ["orders", "a", "Orders/v2:eu-west.1_b", &longest] {
            check_class(class).unwrap();
        }
        let longer = "a".repeat(LONGEST + 1);
        let bad =
            ["", " ", "a b", "a\n", "\"", "a\\", "{a}", "a,b", "a=b", "ä", "\u{0}", "\u{200b}", &longer];
        for class in bad {
            let error = check_class(class).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{class:?}");
        }
    }
}
