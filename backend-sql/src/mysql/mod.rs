//! MySQL and MariaDB.

mod address;
mod batches;
mod call;
mod claims;
mod contended;
mod examine;
mod groups;
mod hand_over;
mod hold;
mod locks;
mod park;
mod push;
mod rows;
mod session;
mod statements;

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use lockcore::backend::{Bounds, Hot};
use lockcore::{Capabilities, Requirement, Result, ServerUrl};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use sqlx::{Either, Row};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

pub(crate) use self::examine::ddl;

use self::contended::Contended;
use self::push::{Parked, Push};
use self::statements::Statements;
use crate::dialect::database::{Database, ErrorClass};
use crate::dialect::Notification;
use crate::dialect::error::tables_locked;
use crate::lock::SqlLock;
use crate::sql::options::{Options, SOCKET};
use crate::sql::table::Sql;
use crate::dialect::verify::{Record, verify_trait};

verify_trait!(MySqlVerify, sqlx::MySql, "mysql", "MySQL or MariaDB");

/// Locks in a table of a MySQL or MariaDB database.
pub type MySqlLock = SqlLock<MySql>;

/// The MySQL dialect.
pub struct MySql {
    connect: MySqlConnectOptions,
    contended: Contended,
    push: Arc<Push>,
    hot: Hot,
    sql: Statements,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    inner: MySqlConnection,
    /// The channel to the task that notifies waiters of other clients, once it was needed.
    killer: Option<UnboundedSender<Uuid>>,
    /// Whether a release may send its `KILL` itself; see `push.rs`. `None`: it is not known yet.
    may_kill: Option<bool>,
}

impl MySqlLock {
    /// Connects to the database of this address, `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// It needs MariaDB 10.6 or MySQL 8.0.19, for `JSON_TABLE` and `SKIP LOCKED`. An acquire of a free lock is one round
    /// trip on both; one of a lock that is new or contended takes a second one. A release that finds a waiter grants the lock to
    /// it in its own message. It is tested with MariaDB 10.11 and MySQL 9.7.
    ///
    /// Every connection is set to the modes, time zone, isolation level and time-outs that it needs, whatever the server
    /// has by default. A server that was started with `sysdate-is-now` is refused as misconfigured.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode` (`disabled`, `preferred`,
    /// `required`, `verify_ca`, `verify_identity`) with `sslca`, `sslcert` and `sslkey`.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &[&["sslmode", SOCKET], &address::FILES[..]].concat())?;
        let connect = address::options(url)?;
        let table = options.table.clone().quoted("`");
        let sql = Statements::new(&table);
        let record = Arc::new(Record { backend: "mysql", verify: sql.verify.clone() });
        let (contended, push, hot) = (Contended::default(), Arc::default(), Hot::new());
        Self::open(MySql { connect, contended, push, hot, sql }, options, record).await
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
    /// A message of claims or releases fits into a record of TLS, which has 16 KiB, unless names are long. sqlx does not set `TCP_NODELAY`, so what
    /// does not fit waits until the server acknowledges the first record, which takes some 40 ms. With 128 requests and TLS
    /// a batch took about 90 ms, without TLS about 5 ms. Without TLS, batches of 500 would be better: 1.4 times the throughput
    /// of 256 tasks.
    const BOUNDS: Bounds = Bounds::new().batch(64);

    type Conn = Conn;
    type Subscription = Parked;

    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("mysql").promising([
            Requirement::Shared,
            Requirement::Permits,
            Requirement::Downgrade,
            Requirement::Fencing,
            Requirement::TokenBlocks,
            Requirement::Fifo,
            Requirement::HerdFree,
            Requirement::AcrossHosts,
            Requirement::Durable,
        ])
    }

    async fn connect(&self) -> sqlx::Result<Conn> {
        Ok(Conn { inner: session::open(&self.connect).await?, killer: None, may_kill: None })
    }

    fn class_of(&self, error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        match number(error) {
            // Deadlock; a row that changed since it was read; a claim that was asked for twice at the same time.
            1213 | 1020 | 1062 => ErrorClass::Again,
            // Lock wait timeout; a row lock that a statement does not wait for.
            1205 | 3572 => ErrorClass::Blocked,
            // Too many connections, for all or for this user; shutting down; connection killed; without the other nodes of
            // its cluster.
            1040 | 1047 | 1053 | 1077 | 1152 | 1158..=1161 | 1203 | 1226 | 1317 | 1927 => ErrorClass::Broken,
            // The server writes no more: it was demoted, by `read_only`, `super_read_only` or of InnoDB.
            1036 | 1290 | 1792 | 1836 => ErrorClass::ReadOnly,
            _ => ErrorClass::Fatal,
        }
    }

    async fn check(&self, conn: &mut Conn) -> sqlx::Result<()> {
        // In one message. Only the first statement returns rows.
        let mut answers = sqlx::raw_sql(self.sql.check.get()).fetch_many(&mut conn.inner);
        let mut refused = Ok(());
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Either::Right(row)) => {
                    refused = examine::refuse_statements(&row.try_get_unchecked::<String, _>(1)?);
                }
                Ok(Either::Left(_)) => (),
                // Rows are not locked here, so it was a table.
                Err(sqlx::Error::Database(error)) if self.class_of(&*error) == ErrorClass::Blocked => {
                    return Err(tables_locked(session::TABLE_TIMEOUT));
                }
                Err(error) => return refused.and(Err(error)),
            }
        }
        refused
    }

    async fn create(&self, conn: &mut Conn) -> sqlx::Result<()> {
        for statement in self.sql.tables() {
            sqlx::query(statement.get()).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        Sql::script(self.sql.tables())
    }

    async fn version(&self, _: &mut Conn) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, client: Uuid) -> sqlx::Result<Option<Parked>> {
        self.park(client).await
    }

    async fn notification(parked: &mut Parked) -> sqlx::Result<Option<Notification>> {
        parked.next().await.map(Some)
    }
}
