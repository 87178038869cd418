//! The check of a lock inside the user's own transaction: the part that all databases share.

use lockwell_core::{Error, ErrorKind, Grant, LockGuard, LockHandle, Operation, Result};

use crate::dialect::error::fatal;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::sql::table::Table;
use crate::sql::table::{HeldSql, Sql, hex, placed};
use crate::words::Hold;

/// The record of a grant that the check needs.
#[derive(Debug)]
pub(crate) struct VerifyRecord {
    pub(crate) backend: &'static str,
    pub(crate) verify: HeldSql,
    pub(crate) written: Written,
}

/// How a dialect writes arguments into a text: what stands before their numbers, and around the hexadecimal
/// digits of a name and of an owner. Digits need no escape, and no client takes them for a placeholder.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) mark: char,
    pub(crate) name: [&'static str; 2],
    pub(crate) owner: [&'static str; 2],
}

impl Written {
    fn text(&self, sql: &Sql, grant: &Grant) -> String {
        let claim = grant.claim();
        let arguments = [
            self.name.join(&hex(claim.name().as_str().as_bytes())),
            self.owner.join(&hex(&claim.owner().as_u128().to_be_bytes())),
            grant.last_token().to_string(),
        ];
        placed(one(sql), self.mark, |n| arguments.get(n).cloned())
    }
}

/// The check alone. Only the text of MySQL is two statements: the second one tells of an XA transaction.
fn one(sql: &Sql) -> &str {
    sql.text().split(";\n").next().unwrap_or_default()
}

/// A routine of the server around the check, for scripts.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn routine(table: &Table, text: &str, verify: &HeldSql) -> String {
    let arguments = ["lock_name", "lock_owner", "lock_token"];
    let of = |hold| placed(one(verify.of(hold)), '$', |n| arguments.get(n).map(|&name| name.to_owned()));
    let text = text.replace("VERIFY_ALONE", &of(Hold::Alone)).replace("VERIFY_TOGETHER", &of(Hold::Together));
    table.fill(&text)
}

/// The check of a lock as a statement, for clients of the database other than sqlx.
pub trait VerifyStatement {
    /// The statement that checks, inside a transaction of the application, that the lock is still held, and
    /// keeps it from changing hands until the transaction ends: what `verify_in` sends. Any client of the
    /// database can send it. It has no placeholders.
    ///
    /// Send it in an explicit transaction, on the database of the lock, best as the first statement, and read
    /// its rows:
    ///
    /// * One row: what the transaction writes is written under the lock or not at all.
    /// * No row: the lock is lost. Roll back.
    /// * An error: nothing is known. Roll back. It may succeed in a new transaction.
    ///
    /// Do not count affected rows: not all clients count those that a query has found. In an XA transaction of
    /// MySQL or MariaDB it protects nothing. Otherwise, what `verify_in` says holds here as well.
    ///
    /// The text contains the owner id of the claim, by which anyone could release the lock: do not log it. It
    /// is for this hold only, and can be sent again in its later transactions.
    ///
    /// With tokio-postgres:
    ///
    /// ```text
    /// use lockwell::sql::VerifyStatement;
    ///
    /// let transaction = client.transaction().await?;
    /// if transaction.query_opt(&guard.verify_statement()?, &[]).await?.is_none() {
    ///     return Err("the lock is lost".into()); // the transaction is dropped, which rolls it back
    /// }
    /// transaction.execute("UPDATE accounts SET balance = balance - 10 WHERE id = 7", &[]).await?;
    /// transaction.commit().await?;
    /// ```
    ///
    /// With diesel, whose rows are named types, it is `sql_query(guard.verify_statement()?)`: the column is
    /// `one`, an integer.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the lock is not in an SQL database;
    /// [`Lost`](ErrorKind::Lost) if the lock was passed on to another task.
    fn verify_statement(&self) -> Result<String>;
}

impl VerifyStatement for Grant {
    fn verify_statement(&self) -> Result<String> {
        let Some(record) = self.record::<VerifyRecord>() else {
            let error = Error::new(ErrorKind::InvalidInput, "this lock is not in an SQL database");
            return Err(error.during(Operation::Verify).for_lock(self.claim().name()));
        };
        Ok(record.written.text(&statement(self, record.backend)?, self))
    }
}

impl VerifyStatement for LockGuard {
    fn verify_statement(&self) -> Result<String> {
        self.grant().verify_statement()
    }
}

impl VerifyStatement for LockHandle {
    fn verify_statement(&self) -> Result<String> {
        self.grant().verify_statement()
    }
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
pub(crate) fn outcome(found: sqlx_core::Result<bool>, grant: &Grant, backend: &'static str) -> Result<()> {
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
                transaction: &mut sqlx_core::transaction::Transaction<'_, $database>,
            ) -> impl Future<Output = lockwell_core::Result<()>> + Send;
        }

        impl<T: AsRef<lockwell_core::Grant> + Sync> $name for T {
            async fn verify_in(
                &self,
                transaction: &mut sqlx_core::transaction::Transaction<'_, $database>,
            ) -> lockwell_core::Result<()> {
                let grant = self.as_ref();
                let sql = $crate::dialect::verify::statement(grant, $backend)?;
                let found = verify_trait!(@ask transaction, sql, grant $(, $found)?);
                $crate::dialect::verify::outcome(found, grant, $backend)
            }
        }
    };
    (@ask $transaction:ident, $sql:ident, $grant:ident) => {
        sqlx_core::query::query($sql.get())
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
