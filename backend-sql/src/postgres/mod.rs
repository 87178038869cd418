//! PostgreSQL.

mod address;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockcore::seats::SEAT_LIFE;
use lockcore::{Capabilities, Claim, Grant, Holder, LockName, LockStatus, Mode, Result, ServerUrl};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use sqlx::{ConnectOptions, Row};
use uuid::Uuid;

use self::statements::Statements;
use crate::dialect::{Ask, Dialect, Extension, Freed, Local, Took, Verdict, micros, span, token};
use crate::lock::SqlLock;
use crate::options::Options;
use crate::verify::{Record, verify_trait};

verify_trait!(PostgresVerify, sqlx::Postgres, "postgres", "PostgreSQL");

/// Locks in a table of a PostgreSQL database.
pub type PostgresLock = SqlLock<Postgres>;

/// The PostgreSQL dialect.
pub struct Postgres {
    connect: PgConnectOptions,
    listen: bool,
    sql: Statements,
}

impl PostgresLock {
    /// Connects to the database of this address, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode` and `sslrootcert` as for
    /// libpq; `listen=false` for a pooler in transaction mode, which cannot carry notifications: waiters then ask.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &["listen", "sslmode", "sslrootcert"])?;
        let connect = address::options(url)?;
        let sql = Statements::new(&options.table);
        let record = Arc::new(Record { backend: "postgres", verify: sql.verify.clone() });
        let listen = url.parsed("listen", "true or false")?.unwrap_or(true);
        Self::open(Postgres { connect, listen, sql }, options, record).await
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({}:{})", self.connect.get_host(), self.connect.get_port())
    }
}

/// The name on which a client is notified. The statements build the same one.
fn channel(client: Uuid) -> String {
    format!("lockwell_{}", client.simple())
}

impl Postgres {
    async fn take_many(&self, conn: &mut PgConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let rows: Vec<(Option<i64>, Option<i64>)> = sqlx::query_as(self.sql.take_many.get())
            .bind(names(asks.iter().map(|ask| &ask.claim)))
            .bind(owners(asks.iter().map(|ask| &ask.claim)))
            .bind(asks.iter().map(|ask| micros(ask.claim.ttl())).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| ask.claim.label()).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| ask.ticket).collect::<Vec<_>>())
            .fetch_all(conn)
            .await?;
        let answer = |(taken, left): (Option<i64>, Option<i64>)| match taken {
            Some(number) => Took::Granted(token(number)),
            None => Took::Busy(left.filter(|&left| left > 0).map(span)),
        };
        Ok(rows.into_iter().map(answer).collect())
    }

    async fn release_one(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        local: Local<'_>,
    ) -> sqlx::Result<Freed> {
        let next: Option<Option<i64>> = sqlx::query_scalar(self.sql.release.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(local.client)
            .fetch_optional(conn)
            .await?;
        Ok(Freed { released: next.is_some(), next: next.flatten() })
    }

    async fn call_next(
        &self,
        conn: &mut PgConnection,
        name: &LockName,
        local: Local<'_>,
    ) -> sqlx::Result<Option<i64>> {
        let row = sqlx::query(self.sql.call_next.get())
            .bind(name.as_str())
            .bind(local.client)
            .fetch_optional(conn)
            .await?;
        row.map_or(Ok(None), |row| row.try_get(0))
    }
}

fn names<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<&'a str> {
    claims.map(|claim| claim.name().as_str()).collect()
}

fn owners<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Uuid> {
    claims.map(|claim| claim.owner().as_uuid()).collect()
}

impl Dialect for Postgres {
    type Conn = PgConnection;
    type Ear = PgListener;

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("postgres");
        promised.fencing = true;
        promised.fifo = true;
        promised.push = self.listen;
        promised.herd_free = true;
        promised.across_hosts = true;
        promised.durable = true;
        promised
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        self.connect.connect().await
    }

    fn verdict(&self, error: &dyn sqlx::error::DatabaseError) -> Verdict {
        match error.code().as_deref().unwrap_or_default() {
            // Serialization failure, deadlock.
            "40001" | "40P01" => Verdict::Again,
            // Lock not available: the lock timeout.
            "55P03" => Verdict::Blocked,
            // The server is shutting down, starting, or full; the connection failed.
            "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "08000" | "08003" | "08006" => Verdict::Broken,
            _ => Verdict::Fatal,
        }
    }

    async fn take(&self, conn: &mut PgConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if let [Ask { claim, ticket }] = asks {
            let taken: Option<i64> = sqlx::query_scalar(self.sql.take.get())
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(ticket)
                .fetch_optional(&mut *conn)
                .await?;
            if let Some(number) = taken {
                return Ok(vec![Took::Granted(token(number))]);
            }
        }
        // Many claims; or one that was refused, or whose row does not exist yet.
        self.take_many(conn, asks).await
    }

    async fn release(
        &self,
        conn: &mut PgConnection,
        claims: &[Claim],
        local: Local<'_>,
    ) -> sqlx::Result<Vec<Freed>> {
        if let [claim] = claims {
            return Ok(vec![self.release_one(conn, claim, local).await?]);
        }
        let rows: Vec<(i64, Option<i64>)> = sqlx::query_as(self.sql.release_many.get())
            .bind(names(claims.iter()))
            .bind(owners(claims.iter()))
            .bind(local.client)
            .fetch_all(&mut *conn)
            .await?;
        let mut answers = vec![Freed::default(); claims.len()];
        for (n, next) in rows {
            let at = usize::try_from(n - 1).unwrap_or(usize::MAX);
            if let Some(answer) = answers.get_mut(at) {
                *answer = Freed { released: true, next };
            }
        }
        // A row that was passed over is locked by a transaction, or is not ours: ask for it alone.
        for (claim, answer) in claims.iter().zip(&mut answers) {
            if !answer.released {
                *answer = self.release_one(conn, claim, local).await?;
            }
        }
        Ok(answers)
    }

    async fn renew(&self, conn: &mut PgConnection, grants: &[Grant]) -> sqlx::Result<Vec<Extension>> {
        let rows: Vec<(bool, bool)> = sqlx::query_as(self.sql.renew.get())
            .bind(names(grants.iter().map(Grant::claim)))
            .bind(owners(grants.iter().map(Grant::claim)))
            .bind(grants.iter().map(|grant| micros(grant.claim().ttl())).collect::<Vec<_>>())
            .fetch_all(conn)
            .await?;
        let answer = |row| match row {
            (true, _) => Extension::Extended,
            (false, true) => Extension::Blocked,
            (false, false) => Extension::Lost,
        };
        Ok(rows.into_iter().map(answer).collect())
    }

    async fn enroll(&self, conn: &mut PgConnection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        sqlx::query_scalar(self.sql.enroll.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(SEAT_LIFE))
            .bind(claim.label())
            .fetch_one(conn)
            .await
    }

    async fn stay(&self, conn: &mut PgConnection, tickets: &[i64]) -> sqlx::Result<Vec<i64>> {
        sqlx::query_scalar(self.sql.stay.get()).bind(tickets).bind(micros(SEAT_LIFE)).fetch_all(conn).await
    }

    async fn tidy(&self, conn: &mut PgConnection, tickets: &[i64]) -> sqlx::Result<()> {
        sqlx::query(self.sql.tidy.get()).bind(tickets).execute(conn).await.map(|_| ())
    }

    async fn leave(&self, conn: &mut PgConnection, claim: &Claim, local: Local<'_>) -> sqlx::Result<Freed> {
        let left = sqlx::query(self.sql.leave.get())
            .bind(claim.owner().as_uuid())
            .execute(&mut *conn)
            .await?
            .rows_affected();
        // A statement of its own, which sees all places that were taken before we left.
        let next = self.call_next(conn, claim.name(), local).await?;
        Ok(Freed { released: left > 0, next })
    }

    async fn turns(
        &self,
        conn: &mut PgConnection,
        client: Uuid,
        names: &[LockName],
    ) -> sqlx::Result<Vec<i64>> {
        let names: Vec<_> = names.iter().map(LockName::as_str).collect();
        sqlx::query_scalar(self.sql.turns.get()).bind(names).bind(client).fetch_all(conn).await
    }

    async fn version(&self, _: &mut PgConnection) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn inspect(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<LockStatus> {
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
        conn: &mut PgConnection,
        name: &LockName,
        local: Local<'_>,
    ) -> sqlx::Result<Freed> {
        let freed: Option<i64> = sqlx::query_scalar(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(rand::random()))
            .fetch_optional(&mut *conn)
            .await?;
        Ok(Freed { released: freed.is_some(), next: self.call_next(conn, name, local).await? })
    }

    async fn purge(&self, conn: &mut PgConnection, idle: Duration) -> sqlx::Result<u64> {
        sqlx::query(self.sql.purge_queue.get()).execute(&mut *conn).await?;
        Ok(sqlx::query(self.sql.purge.get()).bind(micros(idle)).execute(conn).await?.rows_affected())
    }

    async fn check(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for check in &self.sql.check {
            sqlx::query(check.get()).fetch_optional(&mut *conn).await?;
        }
        Ok(())
    }

    async fn create(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for statement in &self.sql.create {
            match sqlx::query(statement.get()).execute(&mut *conn).await {
                // Two processes that create the same table at once: one of them trips over the catalogue.
                Err(sqlx::Error::Database(error))
                    if matches!(error.code().as_deref(), Some("23505" | "42P07" | "42710")) => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        self.sql.ddl()
    }

    async fn listen(&self, client: Uuid) -> sqlx::Result<Option<PgListener>> {
        if !self.listen {
            return Ok(None);
        }
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(self.connect.clone());
        let mut ear = PgListener::connect_with(&pool).await?;
        ear.listen(&channel(client)).await?;
        Ok(Some(ear))
    }

    async fn hear(ear: &mut PgListener) -> sqlx::Result<Option<i64>> {
        // Nothing means that the connection was lost; the listener makes a new one.
        Ok(ear.try_recv().await?.and_then(|heard| heard.payload().parse().ok()))
    }
}
