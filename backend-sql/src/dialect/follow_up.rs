//! Statements that follow a release in the same request, such as those that find and notify the next waiters.

use crate::dialect::database::Database;
use crate::dialect::error::class_of;
use crate::words::ErrorClass;

/// How often such a statement is tried again when other transactions have locked what it needs.
const TRIES: u32 = 3;

/// The tries of a statement that follows a release.
///
/// The release was a transaction of its own, and is done. Without this, an error of the next statement that
/// says "not done" would be taken for the outcome of the release: it would be repeated, would find the lock
/// no longer held, and its holder would be told that another had taken it. It need not be rare: on
/// PostgreSQL, transactions that notify commit one after the other, so on a busy server each of them can wait
/// for longer than the lock timeout of our sessions.
#[derive(Debug, Default)]
pub(crate) struct FollowUp(u32);

impl FollowUp {
    /// What to answer for this outcome; `None`: try the statement again.
    ///
    /// After the last try nobody was notified, and the waiters ask when their timers end. An error of another
    /// kind becomes one of the connection, so that the release is repeated in doubt.
    pub(crate) fn settle<T: Default>(
        &mut self,
        database: &impl Database,
        outcome: sqlx_core::Result<T>,
    ) -> Option<sqlx_core::Result<T>> {
        match outcome {
            Err(error) if self.0 < TRIES && is_passing(database, &error) => {
                self.0 += 1;
                None
            }
            Err(error) => Some(Self::without_another_try(database, error)),
            done => Some(done),
        }
    }

    /// The answer of a statement that is not tried again.
    pub(crate) fn without_another_try<T: Default>(
        database: &impl Database,
        error: sqlx_core::Error,
    ) -> sqlx_core::Result<T> {
        if is_passing(database, &error) {
            tracing::debug!(%error, "what follows a release was not done");
            return Ok(T::default());
        }
        Err(in_doubt(error))
    }
}

/// The error of a statement that follows a release, as one of the connection: so the release is repeated in
/// doubt.
pub(crate) fn in_doubt(error: sqlx_core::Error) -> sqlx_core::Error {
    match error {
        sqlx_core::Error::Database(error) => sqlx_core::Error::Protocol(format!("after a release: {error}")),
        other => other,
    }
}

/// Whether others have locked or changed what the statement needs.
fn is_passing(database: &impl Database, error: &sqlx_core::Error) -> bool {
    matches!(class_of(database, error), ErrorClass::Again | ErrorClass::Blocked)
}
