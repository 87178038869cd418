//! The check of a lock inside the user's own transaction: the part that all databases share.

use lockwell_core::{Error, ErrorKind, Grant, Operation, Result};

use crate::dialect::error::fatal;
use crate::sql::table::{HeldSql, Sql};
use crate::words::Hold;

/// The record of a grant that the check needs.
#[derive(Debug)]
pub(crate) struct VerifyRecord {
    pub(crate) backend: &'static str,
    pub(crate) verify: HeldSql,
}

/// The statement that checks this grant, if it was made by this kind of database. From now on the lock goes
/// to others through the database only: a task that got it from this one would have the same owner, and need
/// not wait for the transaction.
pub(crate) fn statement(grant: &Grant, backend: &'static str) -> Result<Sql> {
    let sql = match grant.record::<VerifyRecord>() {
        Some(record) if record.backend == backend => Ok(record.verify.of(Hold::of(grant.claim()))),
        _ => Err(Error::new(ErrorKind::InvalidInput, "this lock is not in a database of this kind")),
    };
    let bound = sql.and_then(|sql| grant.bind().map(|()| sql.clone()));
    bound.map_err(|error| decorate(error, grant, backend))
}

/// The result of the check: whether the statement found a row.
pub(crate) fn outcome(found: sqlx::Result<bool>, grant: &Grant, backend: &'static str) -> Result<()> {
    let error = match found {
        Ok(false) => Error::new(ErrorKind::Lost, "the lock is not held any more; roll the transaction back"),
        Ok(true) => return Ok(()),
        Err(error) => match fatal(&error) {
            // A transaction with its own snapshot cannot lock a row that was changed since, for example by a
            // renewal.
            error if error.kind() == ErrorKind::Conflict => Error::new(
                ErrorKind::Conflict,
                "the lock's row was changed since the transaction began, by a renewal for one: roll back and run it \
                 again; verify first in it, or use READ COMMITTED",
            )
            .with_source(format!("{error:#}")),
            error => error,
        },
    };
    Err(decorate(error, grant, backend))
}

fn decorate(error: Error, grant: &Grant, backend: &'static str) -> Error {
    error.during(Operation::Verify).for_lock(grant.claim().name()).on_backend(backend)
}

/// One trait per database, since the types of their transactions differ.
macro_rules! verify_trait {
    ($name:ident, $database:ty, $backend:literal, $what:literal $(, $found:path)?) => {
        #[doc = concat!(
            "Checks a lock inside a transaction of the application. The data and the lock must be in the ",
            "same ", $what, " database. Then the data is written under the lock or not at all, whatever ",
            "clocks do."
        )]
        pub trait $name {
            /// Checks, inside `transaction`, that the lock is still held, and keeps it from changing hands
            /// until the transaction ends. After `Ok`, what the transaction writes is written under the lock
            /// or not at all.
            ///
            /// From then on the lock is not passed on to another task of this process: the next one gets it
            /// from the server, after the end of the transaction. A handle or a grant whose guard has passed
            /// its lock on is refused as `Lost`.
            ///
            /// A reader, or the holder of a permit, keeps its own place in the group: others come and go
            /// meanwhile, but no writer gets in, and no one gets this permit.
            ///
            /// Commit before releasing the lock: a release waits for the transaction. The keeper cannot renew
            /// the lease either while the transaction is open, so it should be shorter than half of the ttl.
            ///
            /// # Cancel safety
            /// Cancel safe as far as the transaction is: roll it back.
            fn verify_in(
                &self,
                transaction: &mut sqlx::Transaction<'_, $database>,
            ) -> impl Future<Output = lockwell_core::Result<()>> + Send;
        }

        impl $name for lockwell_core::Grant {
            async fn verify_in(
                &self,
                transaction: &mut sqlx::Transaction<'_, $database>,
            ) -> lockwell_core::Result<()> {
                let sql = $crate::dialect::verify::statement(self, $backend)?;
                let found = verify_trait!(@ask transaction, sql, self $(, $found)?);
                $crate::dialect::verify::outcome(found, self, $backend)
            }
        }

        impl $name for lockwell_core::LockGuard {
            async fn verify_in(
                &self,
                transaction: &mut sqlx::Transaction<'_, $database>,
            ) -> lockwell_core::Result<()> {
                self.grant().verify_in(transaction).await
            }
        }

        impl $name for lockwell_core::LockHandle {
            async fn verify_in(
                &self,
                transaction: &mut sqlx::Transaction<'_, $database>,
            ) -> lockwell_core::Result<()> {
                self.grant().verify_in(transaction).await
            }
        }
    };
    (@ask $transaction:ident, $sql:ident, $grant:ident) => {
        sqlx::query($sql.get())
            .bind($grant.claim().name().as_str())
            .bind($crate::ids::AsUuid::as_uuid(&$grant.claim().owner()))
            .bind($grant.last_token().get().cast_signed())
            .fetch_optional(&mut **$transaction)
            .await
            .map(|row| row.is_some())
    };
    (@ask $transaction:ident, $sql:ident, $grant:ident, $found:path) => {
        $found(&mut *$transaction, &$sql, $grant).await
    };
}
pub(crate) use verify_trait;
