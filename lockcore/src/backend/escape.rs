//! Lock names as parts of keys, paths and table rows.

/// Escapes a name: characters that `is_plain` accepts stay as they are, all others and the percent sign are
/// percent-encoded. The first argument of `is_plain` is the position of the character in the name, in bytes.
///
/// The mapping is injective for any `is_plain`: two names never have the same key. Plain names are not
/// changed, so operators find them.
///
/// ```
/// # use lockwell_core as lockwell;
/// use lockwell::backend::{escape, unescape};
/// let key = escape("orders/42%", |_, c| c != '/');
/// assert_eq!(key, "orders%2F42%25");
/// assert_eq!(unescape(&key).as_deref(), Some("orders/42%"));
/// ```
pub fn escape(name: &str, is_plain: impl Fn(usize, char) -> bool) -> String {
    let mut key = String::with_capacity(name.len() + 8);
    for (at, c) in name.char_indices() {
        if c != '%' && is_plain(at, c) {
            key.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            key.push('%');
            key.extend(
                [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])),
            );
        }
    }
    key
}

/// The name that [`escape`] has mapped to this text; `None` if there is none.
pub fn unescape(key: &str) -> Option<String> {
    let bytes = percent_encoding::percent_decode_str(key);
    let name = bytes.decode_utf8().ok()?.into_owned();
    // A percent sign that begins no code would have been written as one.
    let mut rest = key;
    while let Some(at) = rest.find('%') {
        let code = rest.get(at + 1..at + 3)?;
        if !code.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'A'..=b'F')) {
            return None;
        }
        rest = &rest[at + 3..];
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(name in "\\PC{0,40}", plain in any::<u32>()) {
            let is_plain = |at: usize, c: char| (u32::from(c) ^ plain) % 3 != 0 && at != 2;
            prop_assert_eq!(unescape(&escape(&name, is_plain)), Some(name));
        }
    }

    #[test]
    fn what_was_not_written_by_us_is_no_name() {
        for key in ["%", "%2", "%2f", "%zz", "a%FF"] {
            assert_eq!(unescape(key), None, "{key}");
        }
    }
}
