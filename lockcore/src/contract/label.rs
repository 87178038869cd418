//! What a label may be.

use crate::{Error, ErrorKind, Result};

/// The longest label, in bytes.
const MAX_LABEL: usize = 255;

/// Checks a label as every request does, for programs that make claims themselves.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it has more than 255 bytes, or a control character.
pub fn check_label(label: &str) -> Result<()> {
    if label.len() > MAX_LABEL || label.chars().any(char::is_control) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a label has at most {MAX_LABEL} bytes and no control characters"),
        ));
    }
    Ok(())
}
