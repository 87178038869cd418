//! The servers, started once for all tests of this file.

use std::sync::Arc;

use backend_sql::{MySqlLock, PostgresLock, SqliteLock};
use lockcore::{DistributedLock, Locks, Result};
use testbed::{Durability, MariaDb, Options, Postgres};
use tokio::sync::OnceCell;

/// One kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MariaDb,
}

pub(crate) async fn postgres() -> Option<&'static Postgres> {
    static SERVER: OnceCell<Postgres> = OnceCell::const_new();
    if missing(Postgres::installed()) {
        return None;
    }
    let start = || async { Postgres::start_with(&options()).await.expect("PostgreSQL starts") };
    Some(SERVER.get_or_init(start).await)
}

pub(crate) async fn mariadb() -> Option<&'static MariaDb> {
    static SERVER: OnceCell<MariaDb> = OnceCell::const_new();
    if missing(MariaDb::installed()) {
        return None;
    }
    let start = || async { MariaDb::start_with(&options()).await.expect("MariaDB starts") };
    Some(SERVER.get_or_init(start).await)
}

fn options() -> Options {
    Options::new().durability(Durability::OsCache)
}

fn missing(installed: Result<(), testbed::Error>) -> bool {
    let Err(reason) = installed else { return false };
    assert!(!testbed::servers_required(), "{reason}");
    eprintln!("not tested: {reason}");
    true
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

/// A client with connections of its own.
pub(crate) async fn client(kind: Kind, url: &str) -> Locks {
    Locks::new(backend(kind, url).await.expect("a connection"))
}
