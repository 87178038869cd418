//! The check of a lock inside the user's own transaction.

use std::future::Future;

use lockcore::{Error, ErrorKind, Grant, Held, LockGuard, Operation, Result};
use sqlx::{Sqlite, Transaction};

use crate::error::fatal;
use crate::table::Sql;

/// What a grant carries for the check.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) verify: Sql,
}

/// True exclusion for data that lives in the same database file as the lock, without any assumption about time.
pub trait SqliteVerify {
    /// Checks, inside `transaction`, that the lock is still held, and keeps it from changing hands until the
    /// transaction ends. After `Ok`, what the transaction writes is written under the lock or not at all.
    ///
    /// Commit before releasing the lock: a release waits for the transaction.
    ///
    /// # Cancel safety
    /// Cancel safe as far as the transaction is: roll it back.
    fn verify_in(&self, transaction: &mut Transaction<'_, Sqlite>) -> impl Future<Output = Result<()>> + Send;
}

impl SqliteVerify for Grant {
    async fn verify_in(&self, transaction: &mut Transaction<'_, Sqlite>) -> Result<()> {
        let decorate = |error: Error| {
            error.during(Operation::Verify).for_lock(self.claim().name()).on_backend("sqlite")
        };
        let record = self.record::<Record>().ok_or_else(|| {
            decorate(Error::new(ErrorKind::InvalidInput, "this lock is not in an SQLite database"))
        })?;
        let held = sqlx::query(record.verify.get())
            .bind(self.claim().name().as_str())
            .bind(self.claim().owner().as_uuid())
            .bind(self.token().get().cast_signed())
            .execute(&mut **transaction)
            .await
            .map_err(|error| decorate(fatal(&error)))?
            .rows_affected();
        match held {
            0 => Err(decorate(Error::new(ErrorKind::Lost, "the lock is not held any more; roll back"))),
            _ => Ok(()),
        }
    }
}

impl SqliteVerify for LockGuard {
    async fn verify_in(&self, transaction: &mut Transaction<'_, Sqlite>) -> Result<()> {
        self.grant().verify_in(transaction).await
    }
}

impl SqliteVerify for Held {
    async fn verify_in(&self, transaction: &mut Transaction<'_, Sqlite>) -> Result<()> {
        self.grant().verify_in(transaction).await
    }
}
