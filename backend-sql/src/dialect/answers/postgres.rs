//! The SQLSTATEs of PostgreSQL, and of what speaks its protocol.

use lockwell_core::ErrorKind as Kind;

use super::{
    CANCELLED, CONFLICT, ENDED, FAILED, FULL, LACKS_A_RIGHT, Meaning, NO_CONNECTION_LEFT, NO_TABLES,
    NOT_KNOWN, OTHER_TABLES, READ_ONLY, REFUSED_STATEMENT, WRONG_LOGIN,
};
use crate::words::ErrorClass as Class;

/// What is in the error of PostgreSQL if its mark does not allow a grant.
pub(crate) const NO_GRANT: &str = "lockwell: no grant";

/// The same for a lease that is longer than a grace period.
const TOO_LONG: &str = "lockwell: too long";

/// Why the tables are not those to which this client has connected.
pub(crate) const REMADE: &str = "another longest_ttl holds for the lock tables than when this client connected: they were made anew, or \
                                 another client was the first with durability=grace: connect again";

/// Where an administrator wants no lazy grants.
const NOT_LAZY: &str =
    "a CHECK of the table that ends with _state refuses clients with durability=grace: use durability=disk";

/// In place of the SQLSTATE of a refused login, if it cannot be had.
pub(crate) const SOME_REFUSAL: &str = "28???";

const FORBIDDEN: &str = "a limit or a setting of the server forbids it";

/// Of a code that is not listed, its class counts, which is its first two characters.
pub(super) fn meaning(code: &str, text: &str) -> Meaning {
    match code {
        // A statement that looks at the mark of the server fails in this way: see `mark.sql`.
        "22P02" if text.contains(NO_GRANT) => (
            Class::Fatal,
            Kind::GracePeriod,
            "the server may have forgotten grants: nothing is granted or verified until they have ended",
        ),
        "22P02" if text.contains(TOO_LONG) => (Class::Fatal, Kind::Misconfigured, REMADE),
        // The other CHECK, that the state has one row, no statement fails.
        "23514" => (Class::Fatal, Kind::Misconfigured, NOT_LAZY),
        "22021" | "22P05" => (
            Class::Fatal,
            Kind::Misconfigured,
            "the encoding of the database does not have a character of the name or the label: UTF8 has all",
        ),
        // A claim that was asked for twice at the same time; a snapshot that is too old.
        "23505" | "72000" => (Class::Again, Kind::Conflict, CONFLICT),
        // A change of the catalogue by two at once, which has no code of its own.
        "XX000" if text.contains("concurrently") => (Class::Again, Kind::Conflict, CONFLICT),
        // A statement that took longer than the server allows.
        "57014" => (Class::Again, Kind::Unreachable, CANCELLED),
        // Lock not available: the lock timeout.
        "55P03" => (Class::Blocked, Kind::Conflict, "a lock of the database was not to be had in time"),
        // A transaction that was left open, or took too long, or of which the outcome is unknown.
        "25P02" | "25P03" | "25P04" | "40003" => (Class::Broken, Kind::Unreachable, ENDED),
        "22023" => (Class::Fatal, Kind::Misconfigured, FORBIDDEN),
        "57P04" => (Class::Fatal, Kind::Misconfigured, "the database was dropped"),
        "53300" | "08004" => (Class::Broken, Kind::Unreachable, NO_CONNECTION_LEFT),
        "25006" => (Class::ReadOnly, Kind::Misconfigured, READ_ONLY),
        // A replica's refusal to look at an unlogged table.
        "0A000" => (
            Class::ReadOnly,
            Kind::Misconfigured,
            "the server does not support a statement: it is a replica, or too old",
        ),
        "28000" => (
            Class::Fatal,
            Kind::Refused,
            "the server does not let this user in: pg_hba.conf has no entry for this host, user and database, the entry \
             asks for TLS, or the role does not exist or has no LOGIN",
        ),
        SOME_REFUSAL => (
            Class::Fatal,
            Kind::Refused,
            "the server refuses the login and its words cannot be read: look at user, password, database and pg_hba.conf, \
             whether connections are left, and at its log",
        ),
        "42501" => (Class::Fatal, Kind::Refused, LACKS_A_RIGHT),
        "55000" => (
            Class::Fatal,
            Kind::Refused,
            "the database takes no connections (ALTER DATABASE ... ALLOW_CONNECTIONS true), or is not in the state for a \
             statement",
        ),
        "3D000" => {
            (Class::Fatal, Kind::Misconfigured, "there is no such database, or the user has no right to it")
        }
        "3F000" => {
            (Class::Fatal, Kind::Misconfigured, "there is no such schema: let an administrator create it")
        }
        "42P01" => (Class::Fatal, Kind::Misconfigured, NO_TABLES),
        "42703" | "42804" | "42809" | "42P10" => (Class::Fatal, Kind::Misconfigured, OTHER_TABLES),
        "55006" => (Class::Fatal, Kind::Conflict, "the database or a table is in use"),
        _ => match code.get(..2).unwrap_or_default() {
            // The connection failed; the server is shutting down, starting or being mended; a pooler has lost
            // it, or a prepared statement of ours.
            "08" | "57" | "26" => (Class::Broken, Kind::Unreachable, ENDED),
            "23" => (Class::Fatal, Kind::Misconfigured, OTHER_TABLES),
            "28" => (Class::Fatal, Kind::Refused, WRONG_LOGIN),
            // Serialization failures and deadlocks.
            "40" => (Class::Again, Kind::Conflict, CONFLICT),
            "53" => (Class::Fatal, Kind::Misconfigured, FULL),
            "54" | "55" => (Class::Fatal, Kind::Misconfigured, FORBIDDEN),

            "58" | "F0" | "XX" => (Class::Fatal, Kind::Misconfigured, FAILED),
            // What the server does not know, and what triggers, rules and foreign tables do.
            "09" | "0B" | "0L" | "0P" | "27" | "2F" | "38" | "39" | "3B" | "42" | "44" | "HV" | "P0" => {
                (Class::Fatal, Kind::Misconfigured, NOT_KNOWN)
            }
            _ => (Class::Fatal, Kind::Internal, REFUSED_STATEMENT),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All codes of the conditions of PostgreSQL 15 that are errors, but for those of a statement that is
    /// wrong in itself.
    #[test]
    fn every_answer_that_a_server_may_give_is_known() {
        use Class::{Again, Blocked, Broken, Fatal, ReadOnly};
        for (class, kind, codes) in [
            (Again, Kind::Conflict, "23505 40000 40001 40002 40P01 72000"),
            (Again, Kind::Unreachable, "57014"),
            (Blocked, Kind::Conflict, "55P03"),
            (
                Broken,
                Kind::Unreachable,
                "08000 08001 08003 08004 08006 08007 08P01 25P02 25P03 25P04 26000 40003 53300 57000 57P01 57P02 57P03 57P05",
            ),
            (ReadOnly, Kind::Misconfigured, "0A000 25006"),
            (Fatal, Kind::Refused, "28000 28P01 28??? 42501 55000"),
            (Fatal, Kind::Conflict, "55006"),
            (
                Fatal,
                Kind::Misconfigured,
                "09000 0B000 0L000 0LP01 0P000 22021 22023 22P05 23000 23001 23502 23503 23514 23P01 27000 2F000 38000 \
                 39000 3B000 3D000 3F000 42000 42601 42602 42622 42703 42704 42723 42725 42804 42809 42830 42846 42883 \
                 42P01 42P02 42P05 42P07 42P10 42P18 42P22 44000 53000 53100 53200 53400 54000 54001 54011 54023 55P02 \
                 55P04 57P04 58000 58030 58P01 58P02 F0000 F0001 HV000 HV00N P0000 P0001 P0002 P0003 P0004 XX000 XX001 \
                 XX002",
            ),
            (Fatal, Kind::Internal, "22000 22003 22P02 25001 2D000 34000 ?????"),
        ] {
            for code in codes.split(' ') {
                let (found, named, text) = meaning(code, "some text");
                assert_eq!((found, named), (class, kind), "{code}");
                assert_eq!(text == REFUSED_STATEMENT, kind == Kind::Internal, "{code}");
            }
        }
        assert_eq!(meaning("XX000", "tuple concurrently updated").0, Again);
        assert_eq!(meaning("22P02", "... \"lockwell: no grant\"").1, Kind::GracePeriod);
    }
}
