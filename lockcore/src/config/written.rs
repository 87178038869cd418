//! An address as it was written: what surrounds it, and what may not be in it.
//!
//! Secrets, `.env` files and editors add line ends, spaces, quotes and marks. With one of them the address
//! would be that of another file, key or path: another lock with the same name. So each is removed or refused
//! here, before any part is read. No error quotes the text, which may contain a password.

use percent_encoding::percent_decode_str;

use crate::{Error, ErrorKind, Result};

const MARK: char = '\u{feff}';
const QUOTES: [char; 7] = ['"', '\'', '`', '\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}'];

/// The address without the ASCII white space around it.
pub(super) fn bare(text: &str) -> Result<&str> {
    let text = trimmed(text);
    if text.starts_with(MARK) {
        return Err(bad(
            "the address begins with a byte order mark (U+FEFF): save its file as UTF-8 without one",
        ));
    }
    if text.starts_with(QUOTES) || text.ends_with(QUOTES) {
        return Err(bad(
            "the address has quotes around it, which are a part of the text here: remove them; within an address write \" as \
             %22 and ' as %27",
        ));
    }
    match text.chars().find(|&c| c.is_control() || is_invisible(c)) {
        Some(c) => {
            let code = u32::from(c);
            Err(bad(format!(
                "the address contains U+{code:04X}, which cannot be seen: remove it, or percent-encode it"
            )))
        }
        None => Ok(text),
    }
}

/// The text without ASCII white space at its ends.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

/// Characters that look like nothing or like a space, beyond ASCII.
fn is_invisible(c: char) -> bool {
    let formats = ['\u{200b}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2060}'..='\u{206f}'];
    c == MARK || (c.is_whitespace() && !c.is_ascii()) || formats.iter().any(|range| range.contains(&c))
}

/// Decodes a part of the address. A space at one of its ends, next to a separator, is hard to see, and must
/// be percent-encoded.
pub(super) fn decode(text: &str, what: &str) -> Result<String> {
    no_space_around(text, what)?;
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| bad(format!("the {what} of the address is not UTF-8 after percent-decoding")))?;
    no_control(&decoded, what)?;
    Ok(decoded.into_owned())
}

/// Refuses a part with a space at one of its ends.
pub(super) fn no_space_around(text: &str, what: &str) -> Result<()> {
    if text.starts_with(' ') || text.ends_with(' ') {
        let text = format!("the {what} of the address has a space at one end: remove it, or write it as %20");
        return Err(bad(text));
    }
    Ok(())
}

/// Refuses a decoded part with control characters.
pub(super) fn no_control(text: &str, what: &str) -> Result<()> {
    match text.chars().find(|c| c.is_control()) {
        Some(c) => {
            let code = u32::from(c);
            Err(bad(format!(
                "the {what} of the address has no control characters, this one has U+{code:04X}"
            )))
        }
        None => Ok(()),
    }
}

/// Refuses a fragment, which addresses of lock servers do not have: a part that begins with an unescaped `#`.
pub(super) fn no_fragment(text: &str) -> Result<()> {
    if text.contains('#') {
        return Err(bad(
            "an address of a lock server has no fragment: remove # and what follows, or write # as %23",
        ));
    }
    Ok(())
}

pub(super) fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, LockConfig, ServerUrl};

    const PLAIN: &str = "sqlite:///var/l.db?table=x";

    #[test]
    fn white_space_around_an_address_changes_nothing() {
        let plain: ServerUrl = PLAIN.parse().unwrap();
        for (before, after) in [("", "\n"), ("", "\r\n"), ("", " "), ("\t ", "\x0b\x0c \n\n")] {
            let text = format!("{before}{PLAIN}{after}");
            assert_eq!(text.parse::<ServerUrl>().unwrap(), plain, "{text:?}");
            assert_eq!(LockConfig::new(&text).resolve().unwrap().0, plain, "{text:?}");
            let toml = format!("url = {:?}", text.replace('\x0b', ""));
            let toml = toml.replace("\\u{c}", "\\f");
            assert_eq!(LockConfig::from_toml(&toml).unwrap().resolve().unwrap().0, plain, "{toml}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_named() {
        for (text, part) in [
            ("\u{feff}sqlite:///l.db", "byte order mark"),
            (" \u{feff}sqlite:///l.db", "byte order mark"),
            ("\"sqlite:///l.db\"", "quotes"),
            ("'sqlite:///l.db'\n", "quotes"),
            ("\u{201c}sqlite:///l.db\u{201d}", "quotes"),
            ("sqlite:///l.db\"", "quotes"),
            ("sqlite:///l.db\u{a0}", "U+00A0"),
            ("sqlite:///l\u{200b}.db", "U+200B"),
            ("sqlite:///l.db\0", "U+0000"),
            ("sqlite:///l\n.db", "U+000A"),
            ("sqlite:///l.db%0A", "the path"),
            ("sqlite://l%00.db", "the host"),
            ("redis://ann%0d:x@h", "the user"),
            ("redis://ann:hunter2%0d@h", "the password"),
            ("redis://h/1?prefix=a%0a", "the option \"prefix\""),
            ("redis://h/1?prefix%09=a", "the name of an option"),
            ("redis://h/1?prefix=a &db=1", "the query"),
            ("zk://h/base ?ttl=1s", "the path"),
            ("redis://h ?ttl=1s", "the host"),
            ("redis:// h", "the host"),
            ("sqlite://l.db#x", "%23"),
            ("redis://h?prefix=a#x", "%23"),
            ("zk://h/a#x", "%23"),
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
            assert!(error.to_string().contains(part), "{text:?}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_meant_can_be_escaped() {
        let url: ServerUrl = "sqlite:///a b%20%23%27?label=it's%20+".parse().unwrap();
        assert_eq!((url.path(), url.option("label")), ("/a b #'", Some("it's  ")));
        let url: ServerUrl = "redis://ann:pa#ss@h".parse().unwrap();
        assert_eq!(url.password().unwrap().expose(), "pa#ss");
    }

    #[test]
    fn a_host_with_a_space_is_no_host() {
        let url: ServerUrl = "redlock://a, b,c".parse().unwrap();
        assert!(url.hosts().unwrap_err().to_string().contains("\" b\""));
    }
}
