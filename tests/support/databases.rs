//! Database servers.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "postgres")]
use lockwell::conformance::Missing;
use lockwell::conformance::{Need, OneServer};
use testbed::Release;

use super::servers::options;
use super::targets::Started;

pub(crate) fn offers() -> Vec<Need> {
    [&super::servers::offers()[..], &[Need::Purge]].concat()
}

/// Those of a server that has grace periods.
#[cfg(feature = "postgres")]
pub(crate) fn offers_of_grace() -> Vec<Need> {
    [&offers()[..], &[Need::Grace]].concat()
}

#[cfg(feature = "postgres")]
async fn start_postgres(release: &'static Release) -> Result<testbed::Postgres, Missing> {
    let options = options().release(release).setting("max_connections", "300");
    Ok(testbed::Postgres::start_with(&options).await?)
}

#[cfg(feature = "postgres")]
async fn purge_postgres(url: String) {
    let url = url.parse().expect("an address");
    let lock = lockwell::sql::PostgresLock::connect(&url).await.expect("a connection");
    lock.purge(Duration::ZERO).await.expect("a purge");
}

#[cfg(feature = "postgres")]
pub(crate) async fn postgres(release: &'static Release, options_of_url: &'static str) -> Started {
    one_postgres(release, options_of_url, offers()).await
}

#[cfg(feature = "postgres")]
pub(crate) async fn postgres_grace(release: &'static Release, options_of_url: &'static str) -> Started {
    one_postgres(release, options_of_url, offers_of_grace()).await
}

#[cfg(feature = "postgres")]
async fn one_postgres(release: &'static Release, options_of_url: &'static str, offers: Vec<Need>) -> Started {
    let postgres = start_postgres(release).await?;
    if offers.contains(&Need::Grace) {
        // The first grants wait for the disk for a while.
        let locks = lockwell::connect(postgres.url() + options_of_url).await.expect("a connection");
        locks.lock("first").await.expect("a free lock").release().await.expect("held");
        locks.close().await.expect("closed");
        let is_old = "UPDATE lockwell_locks_state SET lazy_since = 0";
        postgres.admin_sql(is_old).await.expect("an administrator");
    }
    let (door, server) = (postgres.addr(), testbed::Server::clone(&postgres));
    let url = move |addr| postgres.url_via(addr) + options_of_url;
    Ok(Arc::new(OneServer::new(offers, door, server, url, lockwell::connect).purged_by(purge_postgres)))
}

/// PostgreSQL behind a pooler in transaction mode, which the address tells of with `options_of_url` or not.
/// What is stopped and started again is the server, not the pooler.
#[cfg(feature = "postgres")]
pub(crate) async fn pooled(release: &'static Release, options_of_url: &'static str) -> Started {
    let mut pooler = Release::named("pgbouncer1.18");
    if release.is_fetched() {
        pooler = Release::named("pgbouncer1.26");
    }
    testbed::PgBouncer::installed()?;
    let postgres = start_postgres(release).await?;
    let pooler = testbed::PgBouncer::start_with(&postgres, &options().release(pooler)).await?;
    let (door, server) = (pooler.addr(), testbed::Server::clone(&postgres));
    // The pooler lives as long as this.
    let url = move |addr| pooler.postgres().url_via(addr) + options_of_url;
    Ok(Arc::new(OneServer::new(offers(), door, server, url, lockwell::connect).purged_by(purge_postgres)))
}

#[cfg(feature = "mysql")]
pub(crate) async fn mariadb(release: &'static Release) -> Started {
    use lockwell::sql::MySqlLock;
    let mariadb = testbed::MariaDb::start_with(&options().release(release)).await?;
    let (door, server) = (mariadb.addr(), testbed::Server::clone(&mariadb));
    let url = move |addr| mariadb.url_via(addr);
    let purge = async |url: String| {
        let lock = MySqlLock::connect(&url.parse().expect("an address")).await.expect("a connection");
        lock.purge(Duration::ZERO).await.expect("a purge");
    };
    Ok(Arc::new(OneServer::new(offers(), door, server, url, lockwell::connect).purged_by(purge)))
}
