//! PostgreSQL.

mod address;
mod call;
mod group_statements;
mod groups;
mod locks;
mod statements;

use std::fmt;
use std::sync::Arc;

use lockcore::{Capabilities, Claim, Result, ServerUrl};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use uuid::Uuid;

use self::call::{Call, Style};
use self::group_statements::GroupStatements;
use self::statements::Statements;
use crate::database::{Database, Verdict};
use crate::lock::SqlLock;
use crate::options::Options;
use crate::table::Sql;
use crate::verify::{Record, verify_trait};

verify_trait!(PostgresVerify, sqlx::Postgres, "postgres", "PostgreSQL");

/// Locks in a table of a PostgreSQL database.
pub type PostgresLock = SqlLock<Postgres>;

/// The PostgreSQL dialect.
pub struct Postgres {
    connect: PgConnectOptions,
    /// Whether each transaction may be carried out on another of a pooler's connections.
    pooled: bool,
    sql: Statements,
    groups: GroupStatements,
}

impl PostgresLock {
    /// Connects to the database of this address, `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases; `sslmode`, `sslrootcert`, `sslcert` and
    /// `sslkey` as for libpq; `pooled=true` for a pooler in transaction mode, which carries no notifications, and may
    /// carry no prepared statements: every statement then has its arguments in its text, and waiters ask.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &[&["pooled", "sslmode"], &address::FILES[..]].concat())?;
        let connect = address::options(url)?;
        let (sql, groups) = (Statements::new(&options.table), GroupStatements::new(&options.table));
        let record = Arc::new(Record { backend: "postgres", verify: sql.verify.clone() });
        let pooled = url.parsed("pooled", "true or false")?.unwrap_or(false);
        Self::open(Postgres { connect, pooled, sql, groups }, options, record).await
    }
}

impl Postgres {
    fn statement<'a>(&self, sql: &'a Sql) -> Call<'a> {
        Call::new(sql, if self.pooled { Style::Written } else { Style::Prepared })
    }
}

/// A new session has no prepared statements. If this one has, a pooler has given us another client's, and our statements
/// would be mistaken for that one's.
async fn refuse_shared_session(conn: &mut PgConnection) -> sqlx::Result<()> {
    let found = sqlx::raw_sql("SELECT 1 FROM pg_prepared_statements WHERE left(name, 7) = 'sqlx_s_' LIMIT 1");
    if found.fetch_optional(conn).await?.is_none() {
        return Ok(());
    }
    let text = "a pooler in transaction mode gives us the sessions of others: set pooled=true in the address";
    Err(sqlx::Error::Configuration(text.into()))
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

fn names<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<&'a str> {
    claims.map(|claim| claim.name().as_str()).collect()
}

fn owners<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Uuid> {
    claims.map(|claim| claim.owner().as_uuid()).collect()
}

impl Database for Postgres {
    type Conn = PgConnection;
    type Subscription = PgListener;

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("postgres");
        promised.shared = true;
        promised.permits = true;
        promised.downgrade = true;
        promised.fencing = true;
        promised.token_blocks = true;
        promised.fifo = true;
        promised.push = !self.pooled;
        promised.herd_free = true;
        promised.across_hosts = true;
        promised.durable = true;
        promised
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let mut conn = self.connect.connect().await?;
        if !self.pooled {
            refuse_shared_session(&mut conn).await?;
        }
        Ok(conn)
    }

    fn verdict(&self, error: &dyn sqlx::error::DatabaseError) -> Verdict {
        match error.code().as_deref().unwrap_or_default() {
            // Serialization failure, deadlock; a claim that was asked for twice at the same time.
            "40001" | "40P01" | "23505" => Verdict::Again,
            // Lock not available: the lock timeout.
            "55P03" => Verdict::Blocked,
            // The server is shutting down, starting, or full; the connection failed; a pooler has lost the server.
            "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "08000" | "08003" | "08006" | "08P01" => {
                Verdict::Broken
            }
            // A write on a replica; a replica's refusal to look at an unlogged table.
            "25006" | "0A000" => Verdict::ReadOnly,
            _ => Verdict::Fatal,
        }
    }

    async fn check(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for check in &self.sql.check {
            self.statement(check).execute(&mut *conn).await?;
        }
        // A pooler shows only now that this connection has prepared something and is idle. Without a connection to
        // spare, the keeper's will be refused.
        match self.connect().await {
            Err(error @ sqlx::Error::Configuration(_)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn create(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for statement in self.sql.create.iter().chain(&self.sql.upgrade) {
            match self.statement(statement).execute(&mut *conn).await {
                // Two processes that create the same table at once: one of them trips over the catalogue.
                Err(sqlx::Error::Database(error))
                    if matches!(error.code().as_deref(), Some("23505" | "42P07" | "42710" | "42701")) => {}
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

    async fn version(&self, _: &mut PgConnection) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, client: Uuid) -> sqlx::Result<Option<PgListener>> {
        if self.pooled {
            return Ok(None);
        }
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(self.connect.clone());
        let mut subscription = PgListener::connect_with(&pool).await?;
        subscription.listen(&channel(client)).await?;
        Ok(Some(subscription))
    }

    async fn notification(subscription: &mut PgListener) -> sqlx::Result<Option<i64>> {
        // Nothing means that the connection was lost; the listener makes a new one.
        Ok(subscription.try_recv().await?.and_then(|heard| heard.payload().parse().ok()))
    }
}
