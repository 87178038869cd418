//! Turns the errors of sqlx into errors of lockwell.

use lockwell_core::{Error, ErrorKind};

use crate::dialect::database::Database;
use crate::words::ErrorClass;

const LACKS_A_RIGHT: &str = "the user lacks a right: SELECT, INSERT and UPDATE are needed on all lock tables, \
                             and DELETE on those of the queue and of the members; on PostgreSQL a row-level security \
                             policy must not hide rows";

/// What is in the error of PostgreSQL if its mark does not allow a grant.
pub(crate) const NO_GRANT: &str = "lockwell: no grant";

/// The same for a lease that is longer than a grace period.
const TOO_LONG: &str = "lockwell: too long";

/// Why the tables are not those to which this client has connected.
pub(crate) const REMADE: &str =
    "the lock tables were made anew with another longest_ttl since this client connected: connect again";

const CONFLICT: &str = "others changed the same rows at the same time";

const REFUSED_STATEMENT: &str = "the database refused a statement";

const READ_ONLY: &str = "the server takes no writes: it is a replica, or was set to be read only";

/// The class of an error.
pub(crate) fn class_of(database: &impl Database, error: &sqlx::Error) -> ErrorClass {
    match error {
        sqlx::Error::Database(error) => database.class_of(&**error),
        // It will be refused again.
        error if is_untrusted(error) => ErrorClass::Fatal,
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => ErrorClass::Broken,
        _ => ErrorClass::Fatal,
    }
}

/// Whether the certificate of the server was refused.
fn is_untrusted(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_))
        && error.to_string().contains("invalid peer certificate")
}

/// The error of a request that had no answer in time.
pub(crate) fn no_answer(cause: Option<&sqlx::Error>) -> Error {
    // The password could not be had, so nothing was sent.
    if let Some(sqlx::Error::Io(error)) = cause
        && let Some(known) = error.get_ref().and_then(|error| error.downcast_ref::<Error>())
    {
        return known.duplicate();
    }
    let error = Error::new(ErrorKind::Unreachable, "the database cannot be reached or does not answer");
    match cause {
        Some(cause) => error.with_source(cause.to_string()),
        None => error,
    }
}

/// The result of a transaction after it was ended. If ending it failed, the connection must not be used
/// again; the error contains the first error as well.
pub(crate) fn ended<T>(outcome: sqlx::Result<T>, ending: sqlx::Result<()>) -> sqlx::Result<T> {
    match (outcome, ending) {
        (outcome, Ok(())) => outcome,
        (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(second)) => {
            tracing::debug!(%second, "a transaction was not rolled back");
            Err(sqlx::Error::Protocol(format!("{first}; and then: {second}")))
        }
    }
}

/// An error of lockwell where an error of sqlx is expected. [`fatal`] returns it unchanged.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) fn ours(kind: ErrorKind, text: impl Into<String>) -> sqlx::Error {
    sqlx::Error::Configuration(Error::new(kind, text).into())
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) fn misconfigured(text: impl Into<String>) -> sqlx::Error {
    ours(ErrorKind::Misconfigured, text)
}

/// The same for a right that is missing.
#[cfg(feature = "sqlite-unbundled")]
pub(crate) fn refused(text: impl Into<String>) -> sqlx::Error {
    ours(ErrorKind::Refused, text)
}

/// The same for a disk that has refused a sync, while leases may be lost because of that for this time.
#[cfg(feature = "sqlite-unbundled")]
pub(crate) fn disk_failed(left: std::time::Duration) -> sqlx::Error {
    let text = format!(
        "the disk of the database file has failed to sync, and leases may be lost: no lock is granted for {left:.0?}, \
         and then only if the disk works again; look at the disk"
    );
    ours(ErrorKind::Unreachable, text)
}

/// The same for tables that somebody has locked as a whole for this time.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn tables_locked(time: &str) -> sqlx::Error {
    let text = format!(
        "somebody has kept the lock tables locked for {time}, by LOCK TABLE or a change of the tables that has not ended: try \
         again when that has ended"
    );
    ours(ErrorKind::Unreachable, text)
}

/// Gives an error of the database a kind by its code: SQLSTATE, or the number that MySQL and SQLite use.
pub(crate) fn fatal(error: &sqlx::Error) -> Error {
    // An error of lockwell that was passed through sqlx.
    if let sqlx::Error::Configuration(inner) = error
        && let Some(known) = inner.downcast_ref::<Error>()
    {
        return known.duplicate();
    }
    let (kind, hint) = match error {
        sqlx::Error::Database(error) => match by_number(&**error) {
            Some(known) => known,
            None => match error.code().as_deref().unwrap_or_default() {
                // A statement that looks at the mark of the server fails in this way: see `grace.sql`.
                "22P02" if error.message().contains(NO_GRANT) => (
                    ErrorKind::GracePeriod,
                    "the server may have forgotten grants: nothing is granted or verified until they have ended",
                ),
                "22P02" if error.message().contains(TOO_LONG) => (ErrorKind::Misconfigured, REMADE),
                // SQLite has one code for every mistake in a statement.
                "1" if error.message().contains("no such table") => by_code("42P01"),
                "1" if error.message().contains("no such column") => by_code("42703"),
                // A SQLSTATE has five characters, a code of SQLite at most four.
                code if code.len() < 5 => code.parse().map_or_else(|_| by_code(code), by_sqlite),
                code => by_code(code),
            },
        },
        error if is_untrusted(error) => (
            ErrorKind::Misconfigured,
            "the certificate of the server is not trusted for this host: the option sslrootcert=FILE (PostgreSQL) or sslca=FILE \
             (MySQL) names the authority that signed it",
        ),
        sqlx::Error::Tls(_) => (ErrorKind::Misconfigured, "TLS does not work with this server"),
        sqlx::Error::Configuration(_) => (ErrorKind::InvalidInput, "the address is not usable"),
        _ => (ErrorKind::Internal, "an unexpected answer"),
    };
    Error::new(kind, hint).with_source(error.to_string())
}

/// MySQL uses one SQLSTATE for many errors and tells them apart by a number.
#[cfg(feature = "mysql")]
fn by_number(error: &dyn sqlx::error::DatabaseError) -> Option<(ErrorKind, &'static str)> {
    Some(match error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?.number() {
        1045 | 1698 => (ErrorKind::Refused, "user or password is wrong"),
        1044 | 1142 | 1143 | 1227 => (ErrorKind::Refused, LACKS_A_RIGHT),
        1049 => (ErrorKind::Misconfigured, "there is no such database"),
        1290 | 1792 | 1836 => (ErrorKind::Misconfigured, READ_ONLY),
        1690 if is_set_read_only(error) => (ErrorKind::Misconfigured, READ_ONLY),
        1020 | 1205 | 1213 | 3101 => (ErrorKind::Conflict, CONFLICT),
        1615 => (
            ErrorKind::Conflict,
            "the server had to prepare a statement anew each time: its table_definition_cache is too small, or somebody \
             changes the tables",
        ),
        1665 => (
            ErrorKind::Misconfigured,
            "the server writes statements into its binary log: set binlog_format to ROW or MIXED",
        ),
        1021 | 1114 => (ErrorKind::Misconfigured, "the server is out of space"),
        1064 | 1128 | 1305 => {
            (ErrorKind::Misconfigured, "the server is too old: MariaDB 10.6 or MySQL 8.0.19 is needed")
        }
        _ => return None,
    })
}

/// Whether a statement has failed since the server is set to be read only, although this user may write there
/// all the same: `{writable}` of the statements was out of range.
#[cfg(feature = "mysql")]
pub(crate) fn is_set_read_only(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.message().contains("9223372036854775807 + ")
}

#[cfg(not(feature = "mysql"))]
fn by_number(_: &dyn sqlx::error::DatabaseError) -> Option<(ErrorKind, &'static str)> {
    None
}

fn by_code(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "28P01" | "28000" => (ErrorKind::Refused, "user or password is wrong"),
        "42501" => (ErrorKind::Refused, LACKS_A_RIGHT),
        "3D000" | "42000" => {
            (ErrorKind::Misconfigured, "there is no such database, or the user has no right to it")
        }
        "42P01" | "42S02" => (
            ErrorKind::Misconfigured,
            "the lock tables are missing: connect again, which creates them, or run what `lockwell schema` prints (create_schema())",
        ),
        "42703" | "42S22" => (
            ErrorKind::Misconfigured,
            "the lock tables are not of the form that this version needs: if somebody has made them anew since this client \
             connected, with another durability, connect again; otherwise drop them if nothing else uses them, or name others \
             by the option `table`; `lockwell schema` prints the statements that create them",
        ),
        "25006" => (ErrorKind::Misconfigured, READ_ONLY),
        "0A000" => {
            (ErrorKind::Misconfigured, "the server does not support a statement: it is a replica, or too old")
        }
        "40001" | "40P01" => (ErrorKind::Conflict, CONFLICT),
        "57014" | "25P04" => (
            ErrorKind::Unreachable,
            "the server cancelled the statement: a time limit of its own, or an administrator",
        ),
        "55P03" => (ErrorKind::Conflict, "a lock of the database was not to be had in time"),
        "3F000" => (ErrorKind::Misconfigured, "there is no such schema: let an administrator create it"),
        "53100" | "53200" => (ErrorKind::Misconfigured, "the server is out of space or memory"),
        "53300" | "08004" => (ErrorKind::Unreachable, "the server has no connection left"),
        _ => (ErrorKind::Internal, REFUSED_STATEMENT),
    }
}

/// By the result code of SQLite, whose extended codes have the primary code in their low byte.
fn by_sqlite(code: u32) -> (ErrorKind, &'static str) {
    match code & 0xff {
        5 | 6 => (ErrorKind::Conflict, CONFLICT),
        3 | 8 | 23 => (
            ErrorKind::Refused,
            "this user may not write to the database file, to -wal and -shm beside it, or to their folder",
        ),
        10 => (ErrorKind::Misconfigured, "the database file cannot be read or written: look at its disk"),
        11 => (ErrorKind::Misconfigured, "the database file is damaged"),
        13 => (ErrorKind::Misconfigured, "the disk is full"),
        14 => (
            ErrorKind::Misconfigured,
            "the database file cannot be opened: does its folder exist, and may this user open it?",
        ),
        26 => (ErrorKind::Misconfigured, "the file is not an SQLite database"),
        _ => (ErrorKind::Internal, REFUSED_STATEMENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_codes_of_sqlite_are_those_of_their_primary_code() {
        // BUSY_RECOVERY, BUSY_SNAPSHOT, LOCKED_SHAREDCACHE
        for code in [5, 6, 261, 517, 262] {
            assert_eq!(by_sqlite(code).0, ErrorKind::Conflict, "{code}");
        }
        // READONLY_CANTINIT, READONLY_DIRECTORY
        for code in [8, 1288, 1544] {
            assert_eq!(by_sqlite(code).0, ErrorKind::Refused, "{code}");
        }
        // CANTOPEN_ISDIR, IOERR_WRITE, CORRUPT_INDEX
        for code in [14, 526, 778, 779] {
            assert_eq!(by_sqlite(code).0, ErrorKind::Misconfigured, "{code}");
        }
        assert_eq!(by_sqlite(20).0, ErrorKind::Internal);
    }
}
