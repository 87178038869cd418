//! MySQL and MariaDB.

mod address;
mod batches;
mod contended;
mod rows;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockcore::seats::SEAT_LIFE;
use lockcore::{Capabilities, Claim, Grant, Holder, LockName, LockStatus, Mode, Result, ServerUrl};
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError};
use uuid::Uuid;

use self::contended::Contended;
use self::rows::Rows;
use self::statements::Statements;
use crate::dialect::{Ask, Dialect, Extension, Freed, Local, Took, Verdict, micros, span, token};
use crate::lock::SqlLock;
use crate::options::Options;
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
    /// `required`, `verify_ca`, `verify_identity`) and `sslca`; `returning=false` never uses `RETURNING`.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &["returning", "sslca", "sslmode"])?;
        let connect = address::options(url)?;
        let sql = Statements::new(&options.table);
        let record = Arc::new(Record { backend: "mysql", verify: sql.verify.clone() });
        let returning = url.parsed("returning", "true or false")?.unwrap_or(true);
        let contended = Contended::default();
        Self::open(MySql { connect, returning, contended, sql }, options, record).await
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

impl Dialect for MySql {
    type Conn = Conn;
    type Ear = ();

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("mysql");
        promised.fencing = true;
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
            // Deadlock; a row that changed since it was read.
            1213 | 1020 => Verdict::Again,
            // Lock wait timeout.
            1205 => Verdict::Blocked,
            // Too many connections, shutting down, connection killed.
            1040 | 1053 | 1077 | 1152 | 1158..=1161 | 1203 | 1317 | 1927 => Verdict::Broken,
            _ => Verdict::Fatal,
        }
    }

    async fn take(&self, conn: &mut Conn, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let [ask] = asks else { return self.take_by_reading(conn, asks).await };
        let name = ask.claim.name();
        if !self.contended.holds(name) {
            match self.take_row(conn, ask).await {
                Ok(Some(granted)) => return Ok(vec![granted]),
                Ok(None) => (),
                Err(error) => {
                    self.contended.note(name);
                    return Err(error);
                }
            }
        }
        let took = self.take_new_or_contended(conn, ask).await?;
        if matches!(took, Took::Busy(_)) {
            self.contended.note(name);
        }
        Ok(vec![took])
    }

    async fn release(&self, conn: &mut Conn, claims: &[Claim], local: Local<'_>) -> sqlx::Result<Vec<Freed>> {
        let all = match claims {
            [claim] => vec![self.release_one(conn, claim).await?],
            many => self.release_many(conn, many).await?,
        };
        let mut answers = Vec::with_capacity(claims.len());
        for (claim, released) in claims.iter().zip(all) {
            let next = if released { self.next(conn, claim.name(), local).await? } else { None };
            answers.push(Freed { released, next });
        }
        Ok(answers)
    }

    async fn renew(&self, conn: &mut Conn, grants: &[Grant]) -> sqlx::Result<Vec<Extension>> {
        self.renew_unlocked(conn, grants).await
    }

    async fn enroll(&self, conn: &mut Conn, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let done = sqlx::query(self.sql.enroll.get())
            .bind(claim.name().as_str().as_bytes())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(SEAT_LIFE))
            .bind(claim.label())
            .execute(&mut conn.inner)
            .await?;
        Ok(done.last_insert_id().cast_signed())
    }

    async fn stay(&self, conn: &mut Conn, tickets: &[i64]) -> sqlx::Result<Vec<i64>> {
        let mut alive = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            let done = sqlx::query(self.sql.stay.get())
                .bind(micros(SEAT_LIFE))
                .bind(ticket)
                .execute(&mut conn.inner)
                .await?;
            if done.rows_affected() > 0 {
                alive.push(*ticket);
            }
        }
        Ok(alive)
    }

    async fn tidy(&self, conn: &mut Conn, tickets: &[i64]) -> sqlx::Result<()> {
        for ticket in tickets {
            sqlx::query(self.sql.tidy.get()).bind(ticket).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    async fn leave(&self, conn: &mut Conn, claim: &Claim, local: Local<'_>) -> sqlx::Result<Freed> {
        let left = sqlx::query(self.sql.leave.get())
            .bind(claim.owner().as_uuid())
            .execute(&mut conn.inner)
            .await?
            .rows_affected();
        Ok(Freed { released: left > 0, next: self.next(conn, claim.name(), local).await? })
    }

    async fn turns(&self, conn: &mut Conn, client: Uuid, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let turns: Vec<Option<i64>> = sqlx::query_scalar(self.sql.turns.get())
            .bind(client)
            .bind(Rows::of_names(names)?.json())
            .fetch_all(&mut conn.inner)
            .await?;
        Ok(turns.into_iter().flatten().collect())
    }

    async fn version(&self, _: &mut Conn) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn inspect(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<LockStatus> {
        let bytes = name.as_str().as_bytes();
        let holder: Option<(i64, String, i64, i64)> =
            sqlx::query_as(self.sql.holder.get()).bind(bytes).fetch_optional(&mut conn.inner).await?;
        let waiters: i64 = sqlx::query_scalar(self.sql.waiters.get())
            .bind(bytes)
            .bind(bytes)
            .fetch_one(&mut conn.inner)
            .await?;
        let holders = holder.into_iter().map(|(number, label, left, held)| {
            Holder::new(token(number), label, Mode::Exclusive, span(left)).held_for(span(held))
        });
        Ok(LockStatus::new(name.clone(), holders.collect(), usize::try_from(waiters).unwrap_or(0)))
    }

    async fn force_release(&self, conn: &mut Conn, name: &LockName, local: Local<'_>) -> sqlx::Result<Freed> {
        let freed = sqlx::query(self.sql.force.get())
            .bind(Uuid::from_u128(rand::random()))
            .bind(name.as_str().as_bytes())
            .execute(&mut conn.inner)
            .await?
            .rows_affected();
        Ok(Freed { released: freed > 0, next: self.next(conn, name, local).await? })
    }

    async fn purge(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<u64> {
        sqlx::query(self.sql.purge_queue.get()).execute(&mut conn.inner).await?;
        let purge = sqlx::query(self.sql.purge.get()).bind(micros(idle)).bind(micros(idle));
        Ok(purge.execute(&mut conn.inner).await?.rows_affected())
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
        Ok(())
    }

    fn ddl(&self) -> String {
        self.sql.ddl()
    }

    async fn listen(&self, _: Uuid) -> sqlx::Result<Option<()>> {
        Ok(None)
    }

    async fn hear((): &mut ()) -> sqlx::Result<Option<i64>> {
        std::future::pending().await
    }
}
