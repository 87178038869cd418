//! The servers, started once for all tests of this file.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwell_core::{Claim, DistributedLock, LockName, Locks, Mode, Result, Wait};
use lockwell_sql::{MySqlLock, PostgresLock, SqliteLock};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection};
use testbed::{Durability, MariaDb, Options, Postgres, Proxy, if_installed, is_installed};
use tokio::sync::OnceCell;

/// One kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MariaDb,
}

pub(crate) const ALL: [Kind; 3] = [Kind::Sqlite, Kind::Postgres, Kind::MariaDb];

pub(crate) async fn postgres() -> Option<&'static Postgres> {
    static SERVER: OnceCell<Option<Postgres>> = OnceCell::const_new();
    // Each test says so, not only the first one.
    if !is_installed(Postgres::installed()) {
        return None;
    }
    SERVER.get_or_init(|| async { if_installed(Postgres::start_with(&options()).await) }).await.as_ref()
}

pub(crate) async fn mariadb() -> Option<&'static MariaDb> {
    static SERVER: OnceCell<Option<MariaDb>> = OnceCell::const_new();
    if !is_installed(MariaDb::installed()) {
        return None;
    }
    SERVER.get_or_init(|| async { if_installed(MariaDb::start_with(&options()).await) }).await.as_ref()
}

pub(crate) fn options() -> Options {
    Options::new().durability(Durability::OsCache)
}

/// The address of a database of this kind, with a table of its own. `None` where the server is not installed.
pub(crate) async fn url(kind: Kind, table: &str) -> Option<String> {
    let base = match kind {
        Kind::Postgres => postgres().await?.url(),
        Kind::MariaDb => mariadb().await?.url(),
        Kind::Sqlite => {
            let folder = tempfile::tempdir().expect("a folder").keep();
            format!("sqlite://{}/locks.db", folder.display())
        }
    };
    Some(format!("{base}?table={table}"))
}

pub(crate) async fn backend(kind: Kind, url: &str) -> Result<Arc<dyn DistributedLock>> {
    let url = url.parse()?;
    Ok(match kind {
        Kind::Sqlite => Arc::new(SqliteLock::connect(&url).await?),
        Kind::Postgres => Arc::new(PostgresLock::connect(&url).await?),
        Kind::MariaDb => Arc::new(MySqlLock::connect(&url).await?),
    })
}

/// Runs statements as an administrator, beside lockwell, and returns what a query has found.
pub(crate) async fn admin(kind: Kind, url: &str, sql: &str) -> String {
    match kind {
        Kind::Postgres => postgres().await.expect("it runs").admin_sql(sql).await.expect("an administrator"),
        Kind::MariaDb => mariadb().await.expect("it runs").admin_sql(sql).await.expect("an administrator"),
        Kind::Sqlite => {
            let address = url.split('?').next().expect("an address").to_owned() + "?mode=rwc";
            let mut connection = SqliteConnection::connect(&address).await.expect("a connection");
            let rows =
                sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await.expect("a statement");
            let first = rows.first().map(|row| row.try_get_unchecked::<String, _>(0).expect("a text"));
            connection.close().await.expect("closed");
            first.unwrap_or_default()
        }
    }
}

/// The table of those who wait.
pub(crate) fn waiters(kind: Kind, table: &str) -> String {
    let suffix = if kind == Kind::Sqlite { "queue" } else { "waiters" };
    format!("{table}_{suffix}")
}

/// The column of the end of a lease.
pub(crate) fn ends(kind: Kind) -> &'static str {
    if kind == Kind::Postgres { "ends_at" } else { "expires_at" }
}

/// How many rows a table has.
pub(crate) async fn count(kind: Kind, url: &str, table: &str) -> String {
    let sql = format!("SELECT CAST(count(*) AS CHAR(9)) FROM {table}");
    admin(kind, url, &sql).await.trim().to_owned()
}

/// Waits until it has so many.
pub(crate) async fn until_count(kind: Kind, url: &str, table: &str, rows: usize, within: Duration) {
    let end = Instant::now() + within;
    while count(kind, url, table).await != rows.to_string() {
        assert!(Instant::now() < end, "{kind:?}: never {rows} rows of {table}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A network that fails on demand. `None`: there is no network.
pub(crate) async fn proxy(kind: Kind) -> Option<Proxy> {
    let upstream = match kind {
        Kind::Sqlite => return None,
        Kind::Postgres => postgres().await?.addr(),
        Kind::MariaDb => mariadb().await?.addr(),
    };
    Some(Proxy::start(upstream).await.expect("a proxy"))
}

/// The address of the same database by way of the proxy.
pub(crate) fn through(url: &str, proxy: &Proxy) -> String {
    let (scheme, rest) = url.split_once("://").expect("an address");
    let (before, path) = rest.split_once('/').expect("a database");
    let user = before.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}{}/{path}", proxy.addr())
}

/// By when a backend that is asked to renew must answer.
pub(crate) fn soon() -> lockwell_core::Moment {
    lockwell_core::Moment::now().after(std::time::Duration::from_secs(5))
}

/// A connection of the test itself, through a pooler or not.
pub(crate) async fn session(url: &str) -> PgConnection {
    let options: PgConnectOptions = url.split('?').next().expect("an address").parse().expect("options");
    // Poolers do not know this one.
    options.extra_float_digits(None).connect().await.expect("a connection")
}

/// A client with connections of its own.
pub(crate) async fn client(kind: Kind, url: &str) -> Locks {
    // These tests are about the queue of the server.
    Locks::new(backend(kind, url).await.expect("a connection")).expect("a keeper").server_order()
}

/// Waits until so many wait for a lock.
pub(crate) async fn wait_for(locks: &Locks, name: &str, waiters: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    while locks.inspect(name).await.expect("an answer").waiters != waiters {
        assert!(Instant::now() < end, "never {waiters} waiters");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A claim that nobody looks after: its holder is as good as dead.
pub(crate) fn claim(name: &str, mode: Mode, ttl: Duration) -> Claim {
    Claim::new(LockName::new(name).expect("a good name"), mode, ttl, Wait::No, "dead".into())
}

pub(crate) fn permit(limit: u32) -> Mode {
    Mode::Permit { limit: NonZeroU32::new(limit).expect("not zero") }
}
