//! PostgreSQL.

mod address;
mod bound;
mod claims;
mod database;
mod driver;
mod examine;
mod groups;
mod hand_over;
mod locks;
mod named;
mod session;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Backoff, Hot};
use lockcore::{Moment, Operation, Result, ServerUrl};

pub(crate) use self::statements::ddl;

use self::driver::Postgres;
use self::session::Session;
use self::statements::Statements;
use crate::dialect::error::{class_of, fatal, no_answer};
use crate::dialect::verify::{VerifyRecord, verify_trait};
use crate::lock::SqlLock;
use crate::sql::options::{SOCKET, SqlOptions};
use crate::words::ErrorClass;

verify_trait!(PostgresVerify, sqlx::Postgres, "postgres", "PostgreSQL");

/// Locks in a table of a PostgreSQL database.
pub type PostgresLock = SqlLock<Postgres>;

impl PostgresLock {
    /// Connects to the database of this address, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode`, `sslrootcert`,
    /// `sslcert` and `sslkey` as for libpq; `pooled=true` for a pooler in transaction mode, which carries no
    /// notifications, and may carry no prepared statements: every statement then has its arguments in its
    /// text, and waiters ask.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = SqlOptions::read(url, &[&["pooled", "sslmode", SOCKET], &address::FILES[..]].concat())?;
        let connect = address::options(url)?;
        let pooled = url.parsed("pooled", "true or false")?.unwrap_or(false);
        let mut postgres = Postgres {
            address: format!("{}:{}", connect.get_host(), connect.get_port()),
            session: Arc::new(Session::new(connect, pooled)),
            pooled,
            sql: Statements::new(&options.table),
            hot: Hot::new(),
        };
        let schema = postgres.schema(&options).await;
        let schema = schema.map_err(|error| error.during(Operation::Connect).on_backend("postgres"))?;
        postgres.sql = Statements::new(&options.table.in_schema(&schema));
        let record = Arc::new(VerifyRecord { backend: "postgres", verify: postgres.sql.verify.clone() });
        Self::open(postgres, options, record).await
    }
}

impl Postgres {
    /// The schema of the tables.
    async fn schema(&self, options: &SqlOptions) -> Result<String> {
        if let Some(schema) = options.table.schema() {
            return Ok(schema);
        }
        let until = Moment::now().after(options.timeout);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let mut last = no_answer(None);
        while !until.has_passed() {
            // A server that does not answer is asked again while there is time.
            let limit = until.remaining().min((options.timeout / 2).max(Duration::from_secs(2)));
            match tokio::time::timeout(limit, self.session.schema(&options.table)).await {
                Ok(Ok(schema)) => return Ok(schema),
                Ok(Err(error)) if class_of(self, &error) == ErrorClass::Fatal => return Err(fatal(&error)),
                Ok(Err(error)) => last = no_answer(Some(&error)),
                Err(_) => continue,
            }
            tokio::time::sleep(backoff.next_pause().min(until.remaining())).await;
        }
        Err(last)
    }
}
