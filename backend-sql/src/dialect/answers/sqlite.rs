//! The result codes of SQLite.

use lockwell_core::ErrorKind as Kind;

use super::{CONFLICT, Meaning, NO_TABLES, NOT_KNOWN, OTHER_TABLES, REFUSED_STATEMENT};
use crate::words::ErrorClass as Class;

/// Extended codes have the primary code in their low byte.
pub(super) fn meaning(code: u32, text: &str) -> Meaning {
    match code & 0xff {
        // SQLite has one code for every mistake in a statement.
        1 if text.contains("no such table") => (Class::Fatal, Kind::Misconfigured, NO_TABLES),
        1 if text.contains("no such column") || text.contains("has no column") => {
            (Class::Fatal, Kind::Misconfigured, OTHER_TABLES)
        }
        1 if text.contains("no such function") || text.contains("syntax error") => {
            (Class::Fatal, Kind::Misconfigured, NOT_KNOWN)
        }
        // Busy, locked; the file was read while others changed its log; the tables were changed.
        5 | 6 | 15 | 17 => (Class::Again, Kind::Conflict, CONFLICT),
        // SQLite itself has noticed that the file was moved.
        _ if code == 1032 => (Class::Broken, Kind::Unreachable, "the database file was moved"),
        3 | 8 | 23 => (
            Class::Fatal,
            Kind::Refused,
            "this user may not write to the database file, to -wal and -shm beside it, or to their folder",
        ),
        7 => (Class::Fatal, Kind::Misconfigured, "there is no memory left"),
        10 => (
            Class::Broken,
            Kind::Misconfigured,
            "the database file cannot be read or written: look at its disk",
        ),
        11 => (Class::Fatal, Kind::Misconfigured, "the database file is damaged"),
        13 => (Class::Fatal, Kind::Misconfigured, "the disk is full"),
        14 => (
            Class::Fatal,
            Kind::Misconfigured,
            "the database file cannot be opened: does its folder exist, and may this user open it?",
        ),
        22 => (Class::Fatal, Kind::Misconfigured, "the database file is larger than this system supports"),
        26 => (Class::Fatal, Kind::Misconfigured, "the file is not an SQLite database"),
        _ => (Class::Fatal, Kind::Internal, REFUSED_STATEMENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_that_a_file_may_give_is_known() {
        use Class::{Again, Broken, Fatal};
        for (class, kind, codes) in [
            // BUSY_RECOVERY, BUSY_SNAPSHOT, LOCKED_SHAREDCACHE
            (Again, Kind::Conflict, &[5, 6, 15, 17, 261, 517, 262][..]),
            // READONLY_CANTINIT, READONLY_DIRECTORY
            (Fatal, Kind::Refused, &[3, 8, 23, 1288, 1544]),
            // CANTOPEN_ISDIR, CORRUPT_INDEX
            (Fatal, Kind::Misconfigured, &[7, 11, 13, 14, 22, 26, 526, 779]),
            // IOERR_NOMEM, IOERR_WRITE
            (Broken, Kind::Misconfigured, &[10, 3082, 778]),
            // READONLY_DBMOVED
            (Broken, Kind::Unreachable, &[1032]),
            (Fatal, Kind::Internal, &[1, 20, 21]),
        ] {
            for &code in codes {
                let (found, named, text) = meaning(code, "some text");
                assert_eq!((found, named), (class, kind), "{code}");
                assert_eq!(text == REFUSED_STATEMENT, kind == Kind::Internal, "{code}");
            }
        }
        for (said, text) in [
            ("no such table: a", NO_TABLES),
            ("no such column: a", OTHER_TABLES),
            ("table a has no column named b", OTHER_TABLES),
            ("no such function: a", NOT_KNOWN),
            ("near \"a\": syntax error", NOT_KNOWN),
        ] {
            assert_eq!(meaning(1, said), (Fatal, Kind::Misconfigured, text), "{said}");
        }
    }
}
