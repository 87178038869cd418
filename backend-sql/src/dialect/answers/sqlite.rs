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
    fn extended_codes_are_those_of_their_primary_code() {
        for (codes, kind) in [
            // BUSY_RECOVERY, BUSY_SNAPSHOT, LOCKED_SHAREDCACHE
            (&[5, 6, 15, 17, 261, 517, 262][..], Kind::Conflict),
            // READONLY_CANTINIT, READONLY_DIRECTORY
            (&[3, 8, 23, 1288, 1544], Kind::Refused),
            // IOERR_NOMEM, CANTOPEN_ISDIR, IOERR_WRITE, CORRUPT_INDEX
            (&[7, 10, 11, 13, 14, 22, 26, 3082, 526, 778, 779], Kind::Misconfigured),
            (&[1032], Kind::Unreachable),
            (&[20, 21], Kind::Internal),
        ] {
            for &code in codes {
                assert_eq!(meaning(code, "").1, kind, "{code}");
            }
        }
    }
}
