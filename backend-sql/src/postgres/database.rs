//! The connections and tables of PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Capabilities, Finding, Requirement};
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_postgres::{PgConnection, PgListener, PgPoolOptions};
use uuid::Uuid;

use super::driver::{Conn, Postgres};
use super::session::{self, FOR_ONE};
use crate::dialect::answers::meaning;
use crate::dialect::database::{Database, promised};
use crate::dialect::error::{misconfigured, tables_locked};
use crate::ids::AsUuid;
use crate::words::{ErrorClass, Notification};

/// How long creating or checking the tables waits for other users of them. All later users wait meanwhile.
const SCHEMA_LOCK_TIMEOUT: &str = "2s";

async fn run_with_lock_timeout(sql: &str, conn: &mut PgConnection) -> sqlx_core::Result<()> {
    let text = format!("{FOR_ONE} SET LOCAL lock_timeout = '{SCHEMA_LOCK_TIMEOUT}'; {sql}");
    match sqlx_core::raw_sql::raw_sql(AssertSqlSafe(text)).execute(conn).await {
        Err(sqlx_core::Error::Database(error)) if error.code().as_deref() == Some("55P03") => {
            Err(tables_locked(SCHEMA_LOCK_TIMEOUT))
        }
        done => done.map(drop),
    }
}

/// Makes a table.
pub(super) async fn make(sql: &str, conn: &mut PgConnection) -> sqlx_core::Result<()> {
    match run_with_lock_timeout(sql, conn).await {
        // Two processes create the same table at once: one of them gets an error of the catalogue.
        Err(sqlx_core::Error::Database(error))
            if matches!(error.code().as_deref(), Some("23505" | "42P07" | "42710")) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The name on which a client is notified. The statements build the same one.
fn channel(client: Uuid) -> String {
    format!("lockwell_{}", client.simple())
}

impl Database for Postgres {
    // A claim that enters a queue sends two messages.
    const PARTS: u8 = 2;

    type Conn = Conn;
    type Subscription = PgListener;

    fn capabilities(&self) -> Capabilities {
        let mut promised =
            promised("postgres").promising([Requirement::AcrossHosts, Requirement::VerifyInPostgres]);
        if let Some(longest) = self.grace.lazy {
            let (shortest, longest) = (promised.min_ttl(), promised.max_ttl().min(longest));
            promised = promised.with_ttl(shortest, longest).bounded_by("longest_ttl in the address");
        }
        if self.pooled || self.session.is_shared() {
            // Without notifications, all waiters poll.
            return promised;
        }
        promised.promising([Requirement::Push, Requirement::HerdFree])
    }

    async fn connect(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Conn> {
        let mut conn = Conn::new(self.session.connect().await?, waiters);
        self.look_again(&mut conn).await?;
        Ok(conn)
    }

    async fn session(&self, conn: &mut Conn) -> sqlx_core::Result<Option<String>> {
        // A pooler would give the session to others.
        if self.session.is_shared() { Ok(None) } else { session::name(conn).await }
    }

    async fn is_busy(&self, conn: &mut Conn, session: &str) -> sqlx_core::Result<bool> {
        session::is_busy(conn, session).await
    }

    fn class_of(&self, error: &dyn sqlx_core::error::DatabaseError) -> ErrorClass {
        match error.code().as_deref().unwrap_or_default() {
            code if self.session.is_mistaken(code) => {
                self.session.note_shared();
                ErrorClass::Broken
            }
            _ => meaning(error).0,
        }
    }

    async fn check(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        let found: Option<(bool, bool)> = self.statement(&self.sql.forgets).row(&mut *conn).await?;
        let (is_lost, has_records) = found.ok_or(sqlx_core::Error::RowNotFound)?;
        self.hints.note_records(has_records);
        for check in self.sql.checks() {
            // Others may be making the tables at this moment.
            run_with_lock_timeout(check.text(), conn).await?;
        }
        self.check_grace(conn).await?;
        if is_lost {
            return Err(misconfigured(
                "the table of locks or of members is UNLOGGED: a crash of the server would empty it, and locks that are \
                 held would be granted again",
            ));
        }
        // A pooler may show only now that this connection has prepared something and is idle.
        if !self.session.is_shared() {
            drop(self.connect(&conn.waiters).await);
        }
        Ok(())
    }

    async fn create(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        for statement in self.sql.tables() {
            make(statement.text(), conn).await?;
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        self.sql.ddl()
    }

    async fn version(&self, _: &mut Conn) -> sqlx_core::Result<Option<i64>> {
        Ok(None)
    }

    async fn subscribe(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Option<PgListener>> {
        // A connection that a pooler shares would stay subscribed, and deliver notifications to its next
        // user.
        if self.pooled || self.session.is_shared() {
            return Ok(None);
        }
        let subscribing = self.session.reach(|options| {
            let session = Arc::clone(&self.session);
            let pool = PgPoolOptions::new().max_connections(1).after_connect(move |conn, _| {
                let session = Arc::clone(&session);
                Box::pin(
                    async move { if session.is_shared() { Ok(()) } else { session.inspect(conn).await } },
                )
            });
            async move { PgListener::connect_with(&pool.connect_lazy_with(options)).await }
        });
        let mut subscription = subscribing.await?;
        subscription.eager_reconnect(false);
        subscription.listen(&channel(waiters.client().as_uuid())).await?;
        Ok(Some(subscription))
    }

    async fn probe(&self, conn: &mut Conn, number: i64) -> sqlx_core::Result<bool> {
        let (channel, number) = (channel(conn.client()), number.to_string());
        self.statement(&self.sql.notify_client).bind(&*channel).bind(&*number).execute(conn).await?;
        Ok(true)
    }

    async fn notification(subscription: &mut PgListener) -> sqlx_core::Result<Option<Notification>> {
        // `None` means that the connection was lost.
        Ok(subscription.try_recv().await?.and_then(|message| Notification::parse(message.payload())))
    }

    async fn names(&self, conn: &mut Conn) -> sqlx_core::Result<Vec<String>> {
        self.statement(&self.sql.names).values(conn).await
    }

    async fn examine(&self, conn: &mut Conn) -> sqlx_core::Result<Vec<Finding>> {
        self.findings(conn).await
    }

    async fn grace_left(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Duration>> {
        self.closed_for(conn).await
    }

    async fn begin_grace(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Duration>> {
        self.make_mark_by_hand(conn).await
    }
}
