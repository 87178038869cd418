//! A session inherits settings from its role, its database, the server's configuration or a pooler. This
//! module keeps them from changing the meaning of our statements.
//!
//! * Tables are written with their schema. Where the address names none, it is looked up once, in the search
//!   path. Two tables of that name are an error, and so is a schema that is in the path of this user alone:
//!   another user may find, or make, another table.
//! * Everything else, including functions and operators, is found in `pg_catalog` only, whatever the search
//!   path says.
//! * A connection gets these settings when it is opened. Where a pooler does not pass them on, each statement
//!   sets them itself, with its arguments written into it. Then nothing depends on the session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx_core::row::Row;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_postgres::{PgConnectOptions, PgConnection, PgRow};

use crate::dialect::error::misconfigured;
use crate::sql::login::Login;
use crate::sql::table::Table;
use crate::words::span;

/// The settings of a session of our own. Lockwell has its own time limits; setting them in each statement
/// would cost more than most statements. `default_transaction_read_only` is not set: an administrator who
/// sets it, for example before a switchover, wants no new grants. `synchronous_commit` is not set either: see
/// `durable` in the statements.
const OURS: [(&str, &str); 8] = [
    ("search_path", "pg_catalog,pg_temp"),
    ("default_transaction_isolation", "read committed"),
    ("statement_timeout", "0"),
    // A transaction that has verified a lock keeps its row locked, and other requests must not wait for it.
    ("lock_timeout", "50ms"),
    ("idle_in_transaction_session_timeout", "0"),
    // Rows that a policy hides are an error. Otherwise a lock that is held could look free.
    ("row_security", "off"),
    ("plan_cache_mode", "auto"),
    // A setting of lockwell's own: it shows whether the others have arrived.
    ("lockwell.session", "ours"),
];

/// The same for one statement, which is sent after these in one message. All of them are one transaction.
pub(super) const FOR_ONE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '50ms'; \
     SET LOCAL row_security = off; ";

/// Begins a transaction of several messages, which locks rows or tables. The server ends it if the next
/// message does not come, since this process was stopped or cut off. Elsewhere this time limit is off.
pub(super) const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// Whether the session is ours, and whether another client has used it before. It also sets what not all
/// versions have.
const INSPECT: &str = "SELECT coalesce(current_setting('lockwell.session', true), '') = 'ours',
    EXISTS (SELECT 1 FROM pg_prepared_statements WHERE left(name, 7) = 'sqlx_s_'),
    CASE WHEN current_setting('lockwell.session', true) = 'ours'
        AND current_setting('idle_session_timeout', true) <> '0'
        THEN set_config('idle_session_timeout', '0', false) END,
    CASE WHEN current_setting('lockwell.session', true) = 'ours' AND current_setting('transaction_timeout', true) <> '0'
        THEN set_config('transaction_timeout', '0', false) END";

/// What tells a session from all others of the server, earlier ones as well.
const NAME: &str = "(pid::text || '.' || (extract(epoch FROM backend_start) * 1000000)::bigint)";

/// The name of this session.
pub(super) async fn name(conn: &mut PgConnection) -> sqlx_core::Result<Option<String>> {
    let sql = format!("SELECT {NAME} FROM pg_stat_activity WHERE pid = pg_backend_pid()");
    sqlx_core::query_scalar::query_scalar(AssertSqlSafe(sql)).fetch_optional(conn).await
}

/// Whether the session with this name has not ended its statement.
pub(super) async fn is_busy(conn: &mut PgConnection, name: &str) -> sqlx_core::Result<bool> {
    let sql = format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND {NAME} = $1)");
    sqlx_core::query_scalar::query_scalar(AssertSqlSafe(sql)).bind(name).fetch_one(conn).await
}

/// How to get a session.
pub(super) struct Session {
    plain: Login<PgConnectOptions>,
    ours: Login<PgConnectOptions>,
    /// Whether sessions are shared with other clients, so that each statement must set everything. It never
    /// becomes false again.
    shared: AtomicBool,
}

impl Session {
    pub(super) fn new(plain: Login<PgConnectOptions>, pooled: bool) -> Self {
        let ours = plain.with(|options| options.options(OURS));
        Self { plain, ours, shared: AtomicBool::new(pooled) }
    }

    /// Whether each statement must set everything.
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

    /// Whether an error shows that sessions are shared with other clients.
    pub(super) fn is_mistaken(&self, code: &str) -> bool {
        // No such prepared statement; there is one already; it has other parameters.
        !self.is_shared() && matches!(code, "26000" | "42P05" | "08P01")
    }

    /// Connects by what has these options.
    pub(super) async fn reach<T, F>(&self, open: impl Fn(PgConnectOptions) -> F) -> sqlx_core::Result<T>
    where
        F: Future<Output = sqlx_core::Result<T>>,
    {
        if self.is_shared() { self.plain.reach(open).await } else { self.ours.reach(open).await }
    }

    pub(super) async fn connect(&self) -> sqlx_core::Result<PgConnection> {
        if !self.is_shared() {
            match self.ours.connect().await {
                Ok(mut conn) => {
                    self.inspect(&mut conn).await?;
                    return Ok(conn);
                }
                // PgBouncer refuses the settings; other poolers have other errors for that.
                Err(sqlx_core::Error::Database(error))
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

    /// Checks that a new session is ours: it has our settings, and no prepared statements yet.
    pub(super) async fn inspect(&self, conn: &mut PgConnection) -> sqlx_core::Result<()> {
        let inspect = AssertSqlSafe(format!("SET LOCAL search_path = pg_catalog, pg_temp; {INSPECT}"));
        let row = sqlx_core::raw_sql::raw_sql(inspect).fetch_one(conn).await?;
        let (is_ours, is_used): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !is_ours || is_used {
            self.note_shared();
        }
        Ok(())
    }

    /// The table with its schema, and what is known of it.
    pub(super) async fn find(&self, table: &Table) -> sqlx_core::Result<(Table, Found)> {
        let mut conn = self.plain.connect().await?;
        let schema = match table.schema() {
            Some(schema) => schema,
            None => schema(&mut conn, table).await?,
        };
        let table = table.in_schema(&schema);
        let columns = AssertSqlSafe(format!(
            "{FOR_ONE} {}",
            table.fill(
                "SELECT to_regclass('{locks}') IS NOT NULL, EXISTS (SELECT 1 FROM pg_attribute a
                     WHERE a.attrelid = to_regclass('{state}') AND a.attname = 'lazy_since' AND NOT a.attisdropped)"
            )
        ));
        let row = sqlx_core::raw_sql::raw_sql(columns).fetch_one(&mut conn).await?;
        let found = match (row.try_get(0)?, row.try_get(1)?) {
            (false, _) => Found::None,
            (true, false) => return Err(misconfigured(OLD_TABLES)),
            (true, true) => {
                let state = table.fill("SELECT longest_ttl, lazy_since IS NOT NULL FROM {state}");
                let state = AssertSqlSafe(format!("{FOR_ONE} {state}"));
                let row = sqlx_core::raw_sql::raw_sql(state).fetch_optional(&mut conn).await?;
                match row {
                    Some(row) if row.try_get(1)? => Found::Lazy(span(row.try_get(0)?)),
                    _ => Found::Durable,
                }
            }
        };
        Ok((table, found))
    }
}

/// Nothing is made beside such tables: earlier releases would take it for theirs.
const OLD_TABLES: &str = "the lock tables are those of an earlier release, or lack the one that ends with _state: end all programs \
                          that use them and drop them, or name others by the option `table`. Some hours after a crash with durability=grace \
                          their tokens are ahead of the clock, and would fall: if they have a table that ends with _state, wait until the \
                          server's clock, in microseconds since 1970, has passed token_bound in it";

/// The tables that a database has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    None,
    /// On which no grant is lazy.
    Durable,
    /// On which grants may be, with leases of this length at most.
    Lazy(Duration),
}

/// The schema of a table: the one of the user's search path that has it or, if there is none, the first.
async fn schema(conn: &mut PgConnection, table: &Table) -> sqlx_core::Result<String> {
    // Only this statement uses the user's own search path.
    let path = "SELECT pg_catalog.unnest(pg_catalog.current_schemas(false)), current_user, setting, source
        FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path'";
    let rows = sqlx_core::raw_sql::raw_sql(path).fetch_all(&mut *conn).await?;
    let mut path = texts(&rows)?;
    path.retain(|schema| schema != "pg_catalog" && !schema.starts_with("pg_temp"));
    // Both sides are plain: the name by `Table`, and the schemas are compared here.
    let having = AssertSqlSafe(format!(
        "{FOR_ONE} SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relname = '{}'",
        table.folded()
    ));
    let having = texts(&sqlx_core::raw_sql::raw_sql(having).fetch_all(conn).await?)?;
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
        Some(schema) if is_of_one_user(&rows, schema)? => format!(
            "the schema {schema} is in the search path of this user alone, and another user would have other locks: write \
             table={schema}.{table}, or one that all users share, in the address of each"
        ),
        Some(schema) => return Ok(schema.clone()),
    };
    Err(misconfigured(text))
}

/// Whether other users of the database do not find this schema of the path.
fn is_of_one_user(rows: &[PgRow], schema: &str) -> sqlx_core::Result<bool> {
    let Some(row) = rows.first() else { return Ok(false) };
    let (user, path, source): (String, String, String) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let is_for_all =
        ["default", "environment variable", "configuration file", "command line", "global", "database"]
            .contains(&&*source);
    Ok(!is_for_all || (path.contains("$user") && user == schema))
}

fn texts(rows: &[PgRow]) -> sqlx_core::Result<Vec<String>> {
    rows.iter().map(|row| row.try_get(0)).collect()
}
