//! What a session inherits from its role, its database, the server's file or a pooler, and how it is kept from changing what our
//! statements mean.
//!
//! * Tables are written with their schema. Where the address names none, it is looked up once, in the schemas that the user's
//!   own search path names; two tables of that name are an error, since another user may find the other one.
//! * Everything else, functions and operators too, is found in `pg_catalog` alone, whatever the search path says.
//! * A connection of our own is told so when it is opened. Where something in between does not pass that on, each
//!   statement says so itself, with its arguments written into it: then nothing depends on the session.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};

use crate::error::misconfigured;
use crate::table::Table;

/// For a session of our own. Time-outs are lockwell's business. Setting one in each statement costs more than most of it. Not `default_transaction_read_only`: who sets that, before
/// a switchover for one, does not want new grants. Not `synchronous_commit`: see `DURABLE` in the statements.
const OURS: [(&str, &str); 8] = [
    ("search_path", "pg_catalog,pg_temp"),
    ("default_transaction_isolation", "read committed"),
    ("statement_timeout", "0"),
    // A transaction that has verified a lock holds its row, and nobody else must wait for that.
    ("lock_timeout", "50ms"),
    ("idle_in_transaction_session_timeout", "0"),
    // Rows that a policy hides are an error. Otherwise a lock that is held could look free.
    ("row_security", "off"),
    ("plan_cache_mode", "auto"),
    // Ours: it shows whether these have arrived.
    ("lockwell.session", "ours"),
];

/// The same for one statement, which is sent behind it in one message: both are one transaction.
pub(super) const FOR_ONE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '50ms'; \
     SET LOCAL row_security = off; ";

/// Whether the session is ours, and whether somebody has used it before. What not all versions know is set here.
const LOOK: &str = "SELECT coalesce(current_setting('lockwell.session', true), '') = 'ours',
    EXISTS (SELECT 1 FROM pg_prepared_statements WHERE left(name, 7) = 'sqlx_s_'),
    CASE WHEN current_setting('lockwell.session', true) = 'ours'
        AND current_setting('idle_session_timeout', true) <> '0'
        THEN set_config('idle_session_timeout', '0', false) END,
    CASE WHEN current_setting('lockwell.session', true) = 'ours' AND current_setting('transaction_timeout', true) <> '0'
        THEN set_config('transaction_timeout', '0', false) END";

/// How to get a session.
pub(super) struct Session {
    plain: PgConnectOptions,
    ours: PgConnectOptions,
    /// Whether a session is not ours alone, so that each statement must say all. Once that is known it stays so.
    shared: AtomicBool,
}

impl Session {
    pub(super) fn new(plain: PgConnectOptions, pooled: bool) -> Self {
        let ours = plain.clone().options(OURS);
        Self { plain, ours, shared: AtomicBool::new(pooled) }
    }

    /// Whether each statement must say all.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    pub(super) fn note_shared(&self) {
        if !self.shared.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "a pooler gives us sessions that are not ours alone: statements have their arguments and settings in \
                 them; pooled=true in the address says so from the start"
            );
        }
    }

    /// Whether an error says that the sessions are not what we took them for.
    pub(super) fn is_mistaken(&self, code: &str) -> bool {
        // No such prepared statement; there is one already; it has other parameters.
        !self.is_shared() && matches!(code, "26000" | "42P05" | "08P01")
    }

    /// The options for connections.
    pub(super) fn options(&self) -> &PgConnectOptions {
        if self.is_shared() { &self.plain } else { &self.ours }
    }

    pub(super) async fn connect(&self) -> sqlx::Result<PgConnection> {
        if !self.is_shared() {
            match self.ours.connect().await {
                Ok(mut conn) => {
                    self.look(&mut conn).await?;
                    return Ok(conn);
                }
                // PgBouncer does not take the settings, and others say so in their own way.
                Err(sqlx::Error::Database(error))
                    if matches!(error.code().as_deref(), Some("08P01" | "0A000" | "22023" | "42704")) =>
                {
                    tracing::debug!(%error, "settings are not taken");
                }
                Err(error) => return Err(error),
            }
            let conn = self.plain.connect().await?;
            self.note_shared();
            return Ok(conn);
        }
        self.plain.connect().await
    }

    /// Makes sure that a new session is ours: it has our settings, and no prepared statements yet.
    pub(super) async fn look(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        let look = AssertSqlSafe(format!("SET LOCAL search_path = pg_catalog, pg_temp; {LOOK}"));
        let row = sqlx::raw_sql(look).fetch_one(conn).await?;
        let (is_ours, is_used): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !is_ours || is_used {
            self.note_shared();
        }
        Ok(())
    }

    /// The schema of a table: the one of the user's search path that has it or, if there is none, the first.
    pub(super) async fn schema(&self, table: &Table) -> sqlx::Result<String> {
        let mut conn = self.plain.connect().await?;
        // The only thing that is asked under the user's own search path.
        let path = "SELECT pg_catalog.unnest(pg_catalog.current_schemas(false))";
        let mut path = texts(&sqlx::raw_sql(path).fetch_all(&mut conn).await?)?;
        path.retain(|schema| schema != "pg_catalog" && !schema.starts_with("pg_temp"));
        // Both sides are plain: the name by `Table`, and the schemas are compared here.
        let having = AssertSqlSafe(format!(
            "{FOR_ONE} SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relname = '{}'",
            table.folded()
        ));
        let having = texts(&sqlx::raw_sql(having).fetch_all(&mut conn).await?)?;
        let found: Vec<_> = path.iter().filter(|schema| having.contains(schema)).collect();
        if found.len() > 1 {
            return Err(misconfigured(format!(
                "the schemas {found:?} of this user's search path have a table {}: write table=SCHEMA.NAME",
                table.folded()
            )));
        }
        let text = match found.first().copied().or(path.first()) {
            None => "the search path of this user names no schema: write table=SCHEMA.NAME".to_owned(),
            Some(schema) if schema.contains(['$', '\'']) => {
                format!("a schema whose name has a $ or a ' in it cannot be used: {schema}")
            }
            Some(schema) => return Ok(schema.clone()),
        };
        Err(misconfigured(text))
    }
}

fn texts(rows: &[PgRow]) -> sqlx::Result<Vec<String>> {
    rows.iter().map(|row| row.try_get(0)).collect()
}
