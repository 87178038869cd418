//! What the answers of the databases mean, one table for each of them.

#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod postgres;
mod sqlite;

use lockwell_core::ErrorKind;
use sqlx_core::error::DatabaseError;

use crate::words::ErrorClass;

/// What an answer means for the request, and the kind and the words for the caller.
pub(crate) type Meaning = (ErrorClass, ErrorKind, &'static str);

const WRONG_LOGIN: &str = "user or password is wrong";

const LACKS_A_RIGHT: &str = "the user lacks a right: SELECT, INSERT and UPDATE are needed on all lock tables, \
                             and DELETE on those of the queue and of the members; on PostgreSQL a row-level security \
                             policy must not hide rows";

const CONFLICT: &str = "others changed the same rows at the same time";

const READ_ONLY: &str = "the server takes no writes: it is a replica, or was set to be read only";

const FULL: &str = "the server is out of space or memory";

const NO_CONNECTION_LEFT: &str = "the server, the database or the user has no connection left";

const ENDED: &str = "the connection was ended: the server stops, starts, or has a time limit";

const CANCELLED: &str = "the server cancelled the statement: a time limit of its own, or an administrator";

const FAILED: &str = "the server reports damage or an error of its own: its log has more";

const NO_TABLES: &str = "the lock tables are missing: connect again, which creates them, or run what `lockwell schema` prints (create_schema())";

const OTHER_TABLES: &str = "the lock tables are not of the form that this version needs: drop them if nothing else uses them, or \
                            name others by the option `table`; `lockwell schema` prints the statements that create them";

const NOT_KNOWN: &str = "the server does not know a statement: it is too old, or the lock tables have a view, trigger or rule in their way";

const REFUSED_STATEMENT: &str = "the database refused a statement";

/// The meaning of an answer: by SQLSTATE, or by the number that MySQL and SQLite use.
pub(crate) fn meaning(error: &dyn DatabaseError) -> Meaning {
    let (code, text) = (error.code(), error.message());
    let code = code.as_deref().unwrap_or_default();
    #[cfg(feature = "mysql")]
    if let number @ 1.. = mysql::number(error) {
        return mysql::meaning(number, code, text);
    }
    // A SQLSTATE has five characters, a code of SQLite at most four.
    match code.parse() {
        Ok(number) if code.len() < 5 => sqlite::meaning(number, text),
        _ => postgres::meaning(code, text),
    }
}
