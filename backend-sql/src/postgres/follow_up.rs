//! Statements that follow a release: they find and notify those whose turn it is.

use super::Postgres;
use crate::database::{Database, ErrorClass};

/// How often such a statement is tried again when other transactions have locked what it needs.
const TRIES: u32 = 3;

/// The tries of a statement that follows a release.
///
/// The release was a transaction of its own, and is done. Without this, an error of the next statement that says "not done"
/// would be taken for the outcome of the release: it would be repeated, would find the lock no longer held, and its
/// holder would be told that another had taken it. It need not be rare: transactions that notify commit one after the other, so
/// on a busy server each of them can wait for longer than the lock timeout of our sessions.
#[derive(Debug, Default)]
pub(super) struct FollowUp(u32);

impl FollowUp {
    /// What to answer for this outcome; `None`: try the statement again.
    ///
    /// After the last try nobody was notified, and the waiters ask when their timers end. An error of another kind becomes
    /// one of the connection, so that the release is repeated in doubt.
    pub(super) fn settle<T: Default>(
        &mut self,
        postgres: &Postgres,
        outcome: sqlx::Result<T>,
    ) -> Option<sqlx::Result<T>> {
        let error = match outcome {
            Err(sqlx::Error::Database(error)) => error,
            other => return Some(other),
        };
        match postgres.class_of(&*error) {
            ErrorClass::Again | ErrorClass::Blocked if self.0 < TRIES => {
                self.0 += 1;
                None
            }
            ErrorClass::Again | ErrorClass::Blocked => {
                tracing::debug!(%error, "no waiter was notified of a release");
                Some(Ok(T::default()))
            }
            ErrorClass::Broken | ErrorClass::ReadOnly | ErrorClass::Fatal => {
                Some(Err(sqlx::Error::Protocol(format!("after a release: {error}"))))
            }
        }
    }
}
