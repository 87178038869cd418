//! MySQL and MariaDB.

mod address;
mod batches;
mod contended;
mod group_statements;
mod groups;
mod locks;
mod rows;
mod statements;

use std::fmt;
use std::sync::Arc;

use lockcore::{Capabilities, Result, ServerUrl};
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use uuid::Uuid;

use self::contended::Contended;
use self::group_statements::GroupStatements;
use self::statements::Statements;
use crate::database::{Database, Verdict};
use crate::lock::SqlLock;
use crate::options::Options;
use crate::table::Sql;
use crate::verify::{Record, verify_trait};

verify_trait!(MySqlVerify, sqlx::MySql, "mysql", "MySQL or MariaDB");

/// Locks in a table of a MySQL or MariaDB database.
pub type MySqlLock = SqlLock<MySql>;

/// The MySQL dialect.
pub struct MySql {
    connect: MySqlConnectOptions,
    /// Whether `RETURNING` may be used where the server has it.
    returning: bool,
    contended: Contended,
    sql: Statements,
    groups: GroupStatements,
}

/// A connection, and what its server can do.
#[derive(Debug)]
pub struct Conn {
    inner: MySqlConnection,
    returning: bool,
}

impl MySqlLock {
    /// Connects to the database of this address, `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// It needs MariaDB 10.6 or MySQL 8.0.19, for `JSON_TABLE` and `SKIP LOCKED`. An acquire of a free lock is one round
    /// trip on both. A lock that is new or contended is asked for with `RETURNING` on MariaDB; MySQL has none and needs a
    /// second round trip there. It has been run against MariaDB 10.11, with `RETURNING` and without; the statements for
    /// MySQL are the latter, but no MySQL server has been tried.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode` (`disabled`, `preferred`,
    /// `required`, `verify_ca`, `verify_identity`) with `sslca`, `sslcert` and `sslkey`; `returning=false` never uses
    /// `RETURNING`.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &[&["returning", "sslmode"], &address::FILES[..]].concat())?;
        let connect = address::options(url)?;
        let (sql, groups) = (Statements::new(&options.table), GroupStatements::new(&options.table));
        let record = Arc::new(Record { backend: "mysql", verify: sql.verify.clone() });
        let returning = url.parsed("returning", "true or false")?.unwrap_or(true);
        let contended = Contended::default();
        Self::open(MySql { connect, returning, contended, sql, groups }, options, record).await
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MySql({}:{})", self.connect.get_host(), self.connect.get_port())
    }
}

fn number(error: &dyn sqlx::error::DatabaseError) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}

impl Database for MySql {
    type Conn = Conn;
    type Subscription = ();

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("mysql");
        promised.shared = true;
        promised.permits = true;
        promised.downgrade = true;
        promised.fencing = true;
        promised.token_blocks = true;
        promised.fifo = true;
        promised.herd_free = true;
        promised.across_hosts = true;
        promised.durable = true;
        promised
    }

    async fn connect(&self) -> sqlx::Result<Conn> {
        let mut inner = self.connect.connect().await?;
        // Without gap locks, and waiting for a row for as short as the server allows.
        sqlx::raw_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").execute(&mut inner).await?;
        sqlx::raw_sql("SET SESSION innodb_lock_wait_timeout = 1").execute(&mut inner).await?;
        let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut inner).await?;
        Ok(Conn { inner, returning: self.returning && version.contains("MariaDB") })
    }

    fn verdict(&self, error: &dyn sqlx::error::DatabaseError) -> Verdict {
        match number(error) {
            // Deadlock; a row that changed since it was read; a claim that was asked for twice at the same time.
            1213 | 1020 | 1062 => Verdict::Again,
            // Lock wait timeout; a lock that was not to be waited for.
            1205 | 3572 => Verdict::Blocked,
            // Too many connections, shutting down, connection killed.
            1040 | 1053 | 1077 | 1152 | 1158..=1161 | 1203 | 1317 | 1927 => Verdict::Broken,
            // The server, or its storage, is read only.
            1290 | 1836 => Verdict::ReadOnly,
            _ => Verdict::Fatal,
        }
    }

    async fn check(&self, conn: &mut Conn) -> sqlx::Result<()> {
        for check in &self.sql.check {
            sqlx::query(check.get()).fetch_optional(&mut conn.inner).await?;
        }
        Ok(())
    }

    async fn create(&self, conn: &mut Conn) -> sqlx::Result<()> {
        for statement in &self.sql.create {
            sqlx::query(statement.get()).execute(&mut conn.inner).await?;
        }
        for statement in &self.sql.upgrade {
            match sqlx::query(statement.get()).execute(&mut conn.inner).await {
                // The column is there already.
                Err(sqlx::Error::Database(error)) if number(&*error) == 1060 => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        Sql::script(&self.sql.create)
    }

    fn ddl_of_upgrade(&self) -> String {
        Sql::script(&self.sql.create) + &Sql::script(&self.sql.upgrade)
    }

    async fn version(&self, _: &mut Conn) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, _: Uuid) -> sqlx::Result<Option<()>> {
        Ok(None)
    }

    async fn notification((): &mut ()) -> sqlx::Result<Option<i64>> {
        std::future::pending().await
    }
}
