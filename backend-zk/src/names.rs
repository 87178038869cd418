//! Maps lock names to paths.
//!
//! The mapping is injective and does not change plain names, so that operators find a lock by its name, and
//! Curator and kazoo can use the same path. Characters that a path cannot contain are percent-encoded, and so
//! is the percent sign itself.

use lockwell_core::backend::escape;
use lockwell_core::{Error, ErrorKind, LockName, RecordKind, Result};

use crate::queue::child::LONGEST;

/// The name of the backend.
pub(crate) const BACKEND: &str = "zookeeper";

/// A child of the base that no lock name maps to, since what follows its percent sign is not hexadecimal.
pub(crate) const CLOCK: &str = "%clock-";

/// The folder of the records of locks. No lock has this path, for the same reason as with [`CLOCK`].
pub(crate) fn records_path(base: &str, kind: RecordKind) -> String {
    format!("{base}/%{}", kind.word())
}

/// The path of the folder of this lock.
pub(crate) fn lock_path(base: &str, name: &LockName) -> String {
    let text = name.as_str();
    // "." and ".." have a meaning in a path, and "zookeeper" is the server's own below the root.
    let reserved = matches!(text, "." | ".." | "zookeeper");
    format!("{base}/{}", escape(text, |at, c| is_plain(c) && !(reserved && at == 0)))
}

/// The bytes of the path of a claim's node in this folder, at most, as the server counts them: with its length.
pub(crate) fn path_bytes(folder: &str) -> usize {
    size_of::<u32>() + folder.len() + "/".len() + LONGEST
}

/// Whether the server accepts this character without escaping. The server checks UTF-16 units and refuses
/// surrogates, so all characters beyond the basic plane are refused.
fn is_plain(c: char) -> bool {
    !matches!(c, '/' | '%' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{d7ff}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The base path of an address, without a slash at its end; empty for the root.
pub(crate) fn base_path(path: &str) -> Result<String> {
    let base = match path {
        "" => "/lockwell",
        "/" => "",
        other => other.strip_suffix('/').unwrap_or(other),
    };
    for part in base.split('/').skip(1) {
        if matches!(part, "" | "." | "..") || part.chars().any(|c| c == '%' || !is_plain(c)) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{path:?} is not a path of ZooKeeper: parts are not empty, \".\" or \"..\", and have no control characters or %"
                ),
            ));
        }
    }
    if base == "/zookeeper" || base.starts_with("/zookeeper/") {
        return Err(Error::new(ErrorKind::InvalidInput, "the path /zookeeper belongs to the server"));
    }
    Ok(base.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn path(name: &str) -> String {
        lock_path("/b", &LockName::new(name).unwrap())
    }

    #[test]
    fn plain_names_stay_and_others_are_escaped() {
        assert_eq!(path("orders-42 é日"), "/b/orders-42 é日");
        assert_eq!(path("a/b"), "/b/a%2Fb");
        assert_eq!(path("100%"), "/b/100%25");
        assert_eq!(path(".."), "/b/%2E.");
        assert_eq!(path("..."), "/b/...");
        assert_eq!(path("zookeeper"), "/b/%7Aookeeper");
        assert_eq!(path("🔒"), "/b/%F0%9F%94%92");
        assert_eq!(path("\u{e000}\u{fffd}"), "/b/%EE%80%80%EF%BF%BD");
    }

    #[test]
    fn no_two_names_share_a_path() {
        let names =
            ["a/b", "a%2Fb", "a%252Fb", ".", "%2E", "..", "%2E.", "a", "A", "a ", "zookeeper", "%7Aookeeper"];
        let paths: HashSet<String> = names.iter().map(|name| path(name)).collect();
        assert_eq!(paths.len(), names.len());
        assert!(!paths.iter().any(|path| path.contains(CLOCK)));
        for kind in RecordKind::ALL {
            let (of_records, word) = (records_path("/b", kind), kind.word());
            assert!(!paths.contains(&of_records) && path(word) != of_records);
            assert_ne!(path(&format!("%{word}")), of_records);
        }
    }

    #[test]
    fn bases() {
        assert_eq!(base_path("").unwrap(), "/lockwell");
        assert_eq!(base_path("/").unwrap(), "");
        assert_eq!(base_path("/a/b/").unwrap(), "/a/b");
        for bad in ["/a//b", "/./a", "/a/..", "/a\u{0}", "/zookeeper/x", "/a%b"] {
            assert!(base_path(bad).is_err(), "{bad}");
        }
    }
}
