//! Turns the errors of sqlx into errors of lockwell.

use lockwell_core::{Error, ErrorKind};

use crate::dialect::answers::meaning;
use crate::dialect::database::Database;
use crate::words::ErrorClass;

/// The class of an error.
pub(crate) fn class_of(database: &impl Database, error: &sqlx_core::Error) -> ErrorClass {
    match error {
        sqlx_core::Error::Database(error) => database.class_of(&**error),
        // It will be refused again.
        error if is_untrusted(error) || is_other_login(error) => ErrorClass::Fatal,
        sqlx_core::Error::Io(_)
        | sqlx_core::Error::Protocol(_)
        | sqlx_core::Error::PoolClosed
        | sqlx_core::Error::PoolTimedOut
        | sqlx_core::Error::WorkerCrashed => ErrorClass::Broken,
        _ => ErrorClass::Fatal,
    }
}

/// Whether the certificate of the server was refused.
fn is_untrusted(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Io(_) | sqlx_core::Error::Tls(_))
        && lockwell_core::tls::is_untrusted(&error.to_string())
}

/// Whether the server asks for a login of a kind that sqlx does not know.
fn is_other_login(error: &sqlx_core::Error) -> bool {
    let asks =
        ["authentication method", "authentication mechanism", "authentication plugin", "cleartext_plugin"];
    matches!(error, sqlx_core::Error::Protocol(text) if asks.iter().any(|what| text.contains(what)))
}

/// Whether MySQL asks for the password itself, which sqlx does not send without TLS. There is no type for it.
fn is_for_tls(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Configuration(text) if text.to_string().contains("RSA auth backend disabled"))
}

/// An error with its cause, if that is known.
pub(crate) fn caused_by(error: Error, cause: Option<&sqlx_core::Error>) -> Error {
    match cause {
        Some(cause) => error.with_source(cause.to_string()),
        None => error,
    }
}

/// The error of a request that had no answer in time.
pub(crate) fn no_answer(cause: Option<&sqlx_core::Error>) -> Error {
    // The password could not be had, so nothing was sent.
    if let Some(sqlx_core::Error::Io(error)) = cause
        && let Some(known) = error.get_ref().and_then(|error| error.downcast_ref::<Error>())
    {
        return known.duplicate();
    }
    let text = match cause.and_then(sqlx_core::Error::as_database_error).map(meaning) {
        Some((_, ErrorKind::Unreachable, text)) => text,
        _ => "the database cannot be reached or does not answer",
    };
    caused_by(Error::new(ErrorKind::Unreachable, text), cause)
}

/// The result of a transaction after it was ended. If ending it failed, the connection must not be used
/// again; the error contains the first error as well.
pub(crate) fn ended<T>(outcome: sqlx_core::Result<T>, ending: sqlx_core::Result<()>) -> sqlx_core::Result<T> {
    match (outcome, ending) {
        (outcome, Ok(())) => outcome,
        (Ok(_), Err(error)) => Err(error),
        (Err(first), Err(second)) => {
            tracing::debug!(error = %second, "a transaction was not rolled back");
            Err(sqlx_core::Error::Protocol(format!("{first}; and then: {second}")))
        }
    }
}

/// An error of lockwell where an error of sqlx is expected. [`fatal`] returns it unchanged.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) fn ours(kind: ErrorKind, text: impl Into<String>) -> sqlx_core::Error {
    sqlx_core::Error::Configuration(Error::new(kind, text).into())
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) fn misconfigured(text: impl Into<String>) -> sqlx_core::Error {
    ours(ErrorKind::Misconfigured, text)
}

/// The error of a right that is missing.
#[cfg(feature = "sqlite-unbundled")]
pub(crate) fn refused(text: impl Into<String>) -> sqlx_core::Error {
    ours(ErrorKind::Refused, text)
}

/// The error of a disk that has refused a sync, while leases may be lost because of that for this time.
#[cfg(feature = "sqlite-unbundled")]
pub(crate) fn disk_failed(left: std::time::Duration) -> sqlx_core::Error {
    let text = format!(
        "the disk of the database file has failed to sync, and leases may be lost: no lock is granted for {left:.0?}, \
         and then only if the disk works again; look at the disk"
    );
    ours(ErrorKind::Unreachable, text)
}

/// The error of tables that somebody has locked as a whole for this time.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn tables_locked(time: &str) -> sqlx_core::Error {
    let text = format!(
        "somebody has kept the lock tables locked for {time}, by LOCK TABLE or a change of the tables that has not ended: try \
         again when that has ended"
    );
    ours(ErrorKind::Unreachable, text)
}

/// The error for the caller.
pub(crate) fn fatal(error: &sqlx_core::Error) -> Error {
    // An error of lockwell that was passed through sqlx.
    if let sqlx_core::Error::Configuration(inner) = error
        && let Some(known) = inner.downcast_ref::<Error>()
    {
        return known.duplicate();
    }
    let (kind, hint) = match error {
        sqlx_core::Error::Database(error) => {
            let (_, kind, text) = meaning(&**error);
            (kind, text)
        }
        error if is_untrusted(error) => {
            let ca = "sslrootcert=FILE (PostgreSQL) or sslca=FILE (MySQL)";
            return lockwell_core::tls::untrusted(&error.to_string(), ca);
        }
        error if is_other_login(error) => (
            ErrorKind::Refused,
            "the server asks this user for a login of a kind that lockwell does not have: give the user a password",
        ),
        error if is_for_tls(error) => (
            ErrorKind::Refused,
            "the server asks for the password itself, as MySQL does at the first login after its start, and it is sent over TLS \
             alone: compile with the feature \"tls\" of lockwell, without sslmode=disabled, and let the server have TLS",
        ),
        sqlx_core::Error::Tls(_) => (ErrorKind::Misconfigured, "TLS does not work with this server"),
        sqlx_core::Error::Configuration(_) => (ErrorKind::InvalidInput, "the address is not usable"),
        _ => (ErrorKind::Internal, "an unexpected answer"),
    };
    Error::new(kind, hint).with_source(error.to_string())
}
