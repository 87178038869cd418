//! SQLite: the embedded default. Several processes on one file of one host are a real use.

mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockcore::seats::SEAT_LIFE;
use lockcore::{
    Capabilities, Claim, Error, ErrorKind, Grant, Holder, LockName, LockStatus, Mode, Result, ServerUrl,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Row};
use uuid::Uuid;

use self::statements::Statements;
use crate::dialect::{Ask, Dialect, Extension, Freed, Local, Took, Verdict, micros, span, token};
use crate::lock::SqlLock;
use crate::options::Options;
use crate::verify::{Record, verify_trait};

verify_trait!(SqliteVerify, sqlx::Sqlite, "sqlite", "SQLite");

/// Locks in an SQLite file.
pub type SqliteLock = SqlLock<Sqlite>;

/// The SQLite dialect.
pub struct Sqlite {
    connect: SqliteConnectOptions,
    sql: Statements,
}

impl SqliteLock {
    /// Opens the file of this address, `sqlite://FILE`, and creates it if it is missing.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases, and `busy_timeout`: how long to wait
    /// for another process that is writing.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &["busy_timeout"])?;
        let file = url.location();
        let complaint = match file.as_str() {
            "" => {
                Some("the address names no file: write sqlite://locks.db or sqlite:///var/lib/app/locks.db")
            }
            ":memory:" => Some("a database in memory has one connection only: use memory:// instead"),
            _ if url.user().is_some() || url.password().is_some() => {
                Some("a file has no user and no password")
            }
            _ => None,
        };
        if let Some(complaint) = complaint {
            return Err(Error::new(ErrorKind::InvalidInput, complaint).on_backend("sqlite"));
        }
        let connect = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(options.create)
            .journal_mode(SqliteJournalMode::Wal)
            // The last commits must not be lost in a power failure: tokens would repeat.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(url.duration("busy_timeout")?.unwrap_or(options.timeout / 2));
        let sql = Statements::new(&options.table);
        let record = Arc::new(Record { backend: "sqlite", verify: sql.verify.clone() });
        Self::open(Sqlite { connect, sql }, options, record).await
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sqlite").field(&self.connect.get_filename()).finish()
    }
}

impl Sqlite {
    async fn take_one(&self, conn: &mut SqliteConnection, ask: &Ask) -> sqlx::Result<Took> {
        let claim = &ask.claim;
        // To the end, not to the first row: only a statement that runs to its end lets SQLite move its log into the
        // database file. Otherwise the log grows without bound, and each commit gets slower.
        let rows: Vec<SqliteRow> = sqlx::query(self.sql.take.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(micros(claim.ttl()))
            .bind(claim.label())
            .bind(ask.ticket)
            .fetch_all(&mut *conn)
            .await?;
        if let [row] = rows.as_slice() {
            return Ok(Took::Granted(token(row.try_get(0)?)));
        }
        let left: Option<i64> = sqlx::query_scalar(self.sql.left.get())
            .bind(claim.name().as_str())
            .fetch_optional(conn)
            .await?
            .flatten();
        Ok(Took::Busy(left.filter(|&left| left > 0).map(span)))
    }

    async fn next(
        &self,
        conn: &mut SqliteConnection,
        name: &LockName,
        local: Local<'_>,
    ) -> sqlx::Result<Option<i64>> {
        if !(local.waits_for)(name) {
            return Ok(None);
        }
        sqlx::query_scalar(self.sql.next.get())
            .bind(name.as_str())
            .bind(local.client)
            .fetch_optional(conn)
            .await
            .map(Option::flatten)
    }

    /// Several statements that cost one commit. The transaction writes from its start, so it cannot fail half-way for
    /// a snapshot that has grown old.
    async fn begin(conn: &mut SqliteConnection) -> sqlx::Result<()> {
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(conn).await.map(|_| ())
    }

    async fn end<T>(conn: &mut SqliteConnection, outcome: sqlx::Result<T>) -> sqlx::Result<T> {
        let word = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
        sqlx::raw_sql(word).execute(conn).await?;
        outcome
    }
}

impl Dialect for Sqlite {
    type Conn = SqliteConnection;
    type Ear = ();

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("sqlite");
        promised.fencing = true;
        promised.fifo = true;
        promised.herd_free = true;
        promised.durable = true;
        promised.failover_safe = true;
        promised
    }

    async fn connect(&self) -> sqlx::Result<SqliteConnection> {
        self.connect.connect().await
    }

    fn verdict(&self, error: &dyn sqlx::error::DatabaseError) -> Verdict {
        // Extended codes have the primary code in their low byte: 5 is BUSY, 6 is LOCKED.
        let code = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
        match code & 0xff {
            5 | 6 => Verdict::Again,
            10 => Verdict::Broken,
            _ => Verdict::Fatal,
        }
    }

    async fn take(&self, conn: &mut SqliteConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if let [ask] = asks {
            return Ok(vec![self.take_one(conn, ask).await?]);
        }
        Self::begin(conn).await?;
        let outcome = async {
            let mut answers = Vec::with_capacity(asks.len());
            for ask in asks {
                answers.push(self.take_one(conn, ask).await?);
            }
            Ok(answers)
        };
        let outcome = outcome.await;
        Self::end(conn, outcome).await
    }

    async fn release(
        &self,
        conn: &mut SqliteConnection,
        claims: &[Claim],
        local: Local<'_>,
    ) -> sqlx::Result<Vec<Freed>> {
        let many = claims.len() > 1;
        if many {
            Self::begin(conn).await?;
        }
        let outcome = async {
            let mut answers = Vec::with_capacity(claims.len());
            for claim in claims {
                let released: Vec<i64> = sqlx::query_scalar(self.sql.release.get())
                    .bind(claim.name().as_str())
                    .bind(claim.owner().as_uuid())
                    .fetch_all(&mut *conn)
                    .await?;
                let released = !released.is_empty();
                let next = if released { self.next(conn, claim.name(), local).await? } else { None };
                answers.push(Freed { released, next });
            }
            Ok(answers)
        };
        let outcome = outcome.await;
        if many { Self::end(conn, outcome).await } else { outcome }
    }

    async fn renew(&self, conn: &mut SqliteConnection, grants: &[Grant]) -> sqlx::Result<Vec<Extension>> {
        let rows: Vec<_> = grants
            .iter()
            .map(|grant| {
                let claim = grant.claim();
                let owner = claim.owner().as_uuid().simple().to_string();
                (claim.name().as_str(), owner, micros(claim.ttl()))
            })
            .collect();
        let json = serde_json::to_string(&rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let renewed: Vec<Uuid> = sqlx::query_scalar(self.sql.renew.get()).bind(json).fetch_all(conn).await?;
        let renewed: std::collections::HashSet<Uuid> = renewed.into_iter().collect();
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim().owner().as_uuid());
        let answer = |grant| if is_renewed(grant) { Extension::Extended } else { Extension::Lost };
        Ok(grants.iter().map(answer).collect())
    }

    async fn enroll(&self, conn: &mut SqliteConnection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let tickets: Vec<i64> = sqlx::query_scalar(self.sql.enroll.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(SEAT_LIFE))
            .bind(claim.label())
            .fetch_all(conn)
            .await?;
        tickets.first().copied().ok_or(sqlx::Error::RowNotFound)
    }

    async fn stay(&self, conn: &mut SqliteConnection, tickets: &[i64]) -> sqlx::Result<Vec<i64>> {
        sqlx::query_scalar(self.sql.stay.get())
            .bind(json(tickets)?)
            .bind(micros(SEAT_LIFE))
            .fetch_all(conn)
            .await
    }

    async fn tidy(&self, conn: &mut SqliteConnection, tickets: &[i64]) -> sqlx::Result<()> {
        sqlx::query(self.sql.tidy.get()).bind(json(tickets)?).execute(conn).await.map(|_| ())
    }

    async fn leave(
        &self,
        conn: &mut SqliteConnection,
        claim: &Claim,
        local: Local<'_>,
    ) -> sqlx::Result<Freed> {
        let left = sqlx::query(self.sql.leave.get())
            .bind(claim.owner().as_uuid())
            .execute(&mut *conn)
            .await?
            .rows_affected();
        Ok(Freed { released: left > 0, next: self.next(conn, claim.name(), local).await? })
    }

    async fn turns(
        &self,
        conn: &mut SqliteConnection,
        client: Uuid,
        names: &[LockName],
    ) -> sqlx::Result<Vec<i64>> {
        let names: Vec<_> = names.iter().map(LockName::as_str).collect();
        let turns: Vec<Option<i64>> =
            sqlx::query_scalar(self.sql.turns.get()).bind(json(&names)?).bind(client).fetch_all(conn).await?;
        Ok(turns.into_iter().flatten().collect())
    }

    async fn version(&self, conn: &mut SqliteConnection) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar("PRAGMA data_version").fetch_optional(conn).await
    }

    async fn inspect(&self, conn: &mut SqliteConnection, name: &LockName) -> sqlx::Result<LockStatus> {
        let holder: Option<(i64, String, i64, i64)> =
            sqlx::query_as(self.sql.holder.get()).bind(name.as_str()).fetch_optional(&mut *conn).await?;
        let waiters: i64 =
            sqlx::query_scalar(self.sql.waiters.get()).bind(name.as_str()).fetch_one(conn).await?;
        let holders = holder.into_iter().map(|(number, label, left, held)| {
            Holder::new(token(number), label, Mode::Exclusive, span(left)).held_for(span(held))
        });
        Ok(LockStatus::new(name.clone(), holders.collect(), usize::try_from(waiters).unwrap_or(0)))
    }

    async fn force_release(
        &self,
        conn: &mut SqliteConnection,
        name: &LockName,
        local: Local<'_>,
    ) -> sqlx::Result<Freed> {
        let freed = sqlx::query(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(rand::random()))
            .execute(&mut *conn)
            .await?
            .rows_affected();
        Ok(Freed { released: freed > 0, next: self.next(conn, name, local).await? })
    }

    async fn purge(&self, conn: &mut SqliteConnection, idle: Duration) -> sqlx::Result<u64> {
        sqlx::query(self.sql.purge_queue.get()).execute(&mut *conn).await?;
        let purged = sqlx::query(self.sql.purge.get()).bind(micros(idle)).execute(conn).await?;
        Ok(purged.rows_affected())
    }

    async fn check(&self, conn: &mut SqliteConnection) -> sqlx::Result<()> {
        for check in &self.sql.check {
            sqlx::query(check.get()).fetch_optional(&mut *conn).await?;
        }
        Ok(())
    }

    async fn create(&self, conn: &mut SqliteConnection) -> sqlx::Result<()> {
        for statement in &self.sql.create {
            sqlx::query(statement.get()).execute(&mut *conn).await?;
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

fn json<T: serde::Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}
