//! PostgreSQL.

mod address;
mod bound;
mod claims;
mod examine;
mod groups;
mod hand_over;
mod locks;
mod session;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Backoff, Hot};
use lockcore::{Capabilities, Claim, Moment, Operation, Requirement, Result, ServerUrl};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgListener, PgPoolOptions};
use uuid::Uuid;

pub(crate) use self::examine::ddl;

use self::bound::{BoundStatement, Style};
use self::session::{FOR_ONE, Session};
use self::statements::Statements;
use crate::dialect::database::{Database, ErrorClass};
use crate::dialect::{Notification, block, micros};
use crate::dialect::error::{class_of, fatal, misconfigured, no_answer, tables_locked};
use crate::ids::AsUuid;
use crate::lock::SqlLock;
use crate::sql::options::{Options, SOCKET};
use crate::sql::table::Sql;
use crate::dialect::verify::{Record, verify_trait};

verify_trait!(PostgresVerify, sqlx::Postgres, "postgres", "PostgreSQL");

/// Locks in a table of a PostgreSQL database.
pub type PostgresLock = SqlLock<Postgres>;

/// The PostgreSQL dialect.
pub struct Postgres {
    /// The address for messages.
    address: String,
    session: Arc<Session>,
    /// Whether the address says that a pooler carries no notifications.
    pooled: bool,
    sql: Statements,
    hot: Hot,
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
        let options = Options::read(url, &[&["pooled", "sslmode", SOCKET], &address::FILES[..]].concat())?;
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
        let record = Arc::new(Record { backend: "postgres", verify: postgres.sql.verify.clone() });
        Self::open(postgres, options, record).await
    }
}

impl Postgres {
    fn statement<'a>(&self, sql: &'a Sql) -> BoundStatement<'a> {
        BoundStatement::new(sql, if self.session.is_shared() { Style::Inline } else { Style::Prepared })
    }

    /// A statement that takes several locks: its first parameters say for each claim what it asks for.
    fn taking<'a>(
        &self,
        sql: &'a Sql,
        claims: impl Iterator<Item = &'a Claim> + Clone,
    ) -> BoundStatement<'a> {
        self.statement(sql)
            .bind(names(claims.clone()))
            .bind(owners(claims.clone()))
            .bind(ttls(claims.clone()))
            .bind(labels(claims.clone()))
            .bind(tokens(claims))
    }

    /// The schema of the tables.
    async fn schema(&self, options: &Options) -> Result<String> {
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

/// How long creating or checking the tables waits for other users of them. All later users wait meanwhile.
const SCHEMA_LOCK_TIMEOUT: &str = "2s";

async fn run_with_lock_timeout(sql: &Sql, conn: &mut PgConnection) -> sqlx::Result<()> {
    let text = format!("{FOR_ONE} SET LOCAL lock_timeout = '{SCHEMA_LOCK_TIMEOUT}'; {}", sql.text());
    match sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await {
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55P03") => {
            Err(tables_locked(SCHEMA_LOCK_TIMEOUT))
        }
        done => done.map(drop),
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.address)
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

fn labels<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<&'a str> {
    claims.map(Claim::label).collect()
}

fn ttls<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<i64> {
    claims.map(|claim| micros(claim.ttl())).collect()
}

fn tokens<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<i64> {
    claims.map(block).collect()
}

impl Database for Postgres {
    type Conn = PgConnection;
    type Subscription = PgListener;

    fn capabilities(&self) -> Capabilities {
        let promised = Capabilities::minimal("postgres").promising([
            Requirement::Shared,
            Requirement::Permits,
            Requirement::Downgrade,
            Requirement::Fencing,
            Requirement::TokenBlocks,
            Requirement::Fifo,
            Requirement::AcrossHosts,
            Requirement::Durable,
        ]);
        if self.pooled || self.session.is_shared() {
            // Without notifications, all waiters poll.
            return promised;
        }
        promised.promising([Requirement::Push, Requirement::HerdFree])
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        self.session.connect().await
    }

    fn class_of(&self, error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        match error.code().as_deref().unwrap_or_default() {
            code if self.session.is_mistaken(code) => {
                self.session.note_shared();
                ErrorClass::Broken
            }
            // Serialization failure, deadlock; a claim that was asked for twice at the same time; a statement that took
            // longer than the server allows.
            "40001" | "40P01" | "23505" | "57014" => ErrorClass::Again,
            // Lock not available: the lock timeout.
            "55P03" => ErrorClass::Blocked,
            // The server is shutting down, starting, or full; the connection failed; a pooler has lost the server; a
            // transaction was left open.
            "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "08000" | "08003" | "08006" | "08P01"
            | "25P02" | "25P03" | "25P04" => ErrorClass::Broken,
            // A write on a replica; a replica's refusal to look at an unlogged table.
            "25006" | "0A000" => ErrorClass::ReadOnly,
            _ => ErrorClass::Fatal,
        }
    }

    async fn check(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for check in self.sql.checks() {
            // Others may be making the tables at this moment.
            run_with_lock_timeout(check, conn).await?;
        }
        let lost: bool = self.statement(&self.sql.forgets).only_value(&mut *conn).await?;
        if lost {
            return Err(misconfigured(
                "the table of locks or of members is UNLOGGED: a crash of the server would empty it, and locks that are \
                 held would be granted again",
            ));
        }
        // A pooler may show only now that this connection has prepared something and is idle.
        if !self.session.is_shared() {
            drop(self.connect().await);
        }
        Ok(())
    }

    async fn create(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        for statement in self.sql.tables() {
            match run_with_lock_timeout(statement, conn).await {
                // Two processes create the same table at once: one of them gets an error of the catalogue.
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

    async fn version(&self, _: &mut PgConnection) -> sqlx::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, client: Uuid) -> sqlx::Result<Option<PgListener>> {
        // A connection that a pooler shares would stay subscribed, and deliver notifications to its next user.
        if self.pooled || self.session.is_shared() {
            return Ok(None);
        }
        let session = Arc::clone(&self.session);
        let pool = PgPoolOptions::new().max_connections(1).after_connect(move |conn, _| {
            let session = Arc::clone(&session);
            Box::pin(async move { if session.is_shared() { Ok(()) } else { session.inspect(conn).await } })
        });
        let pool = pool.connect_lazy_with(self.session.options().clone());
        let mut subscription = PgListener::connect_with(&pool).await?;
        subscription.eager_reconnect(false);
        subscription.listen(&channel(client)).await?;
        Ok(Some(subscription))
    }

    async fn probe(&self, conn: &mut PgConnection, client: Uuid, number: i64) -> sqlx::Result<bool> {
        let (channel, number) = (channel(client), number.to_string());
        self.statement(&self.sql.notify_client).bind(&*channel).bind(&*number).execute(conn).await?;
        Ok(true)
    }

    async fn notification(subscription: &mut PgListener) -> sqlx::Result<Option<Notification>> {
        // `None` means that the connection was lost.
        Ok(subscription.try_recv().await?.and_then(|message| Notification::parse(message.payload())))
    }
}
