//! Database servers.

use std::time::Duration;

use lockwell::conformance::Need;
use testbed::Release;

use super::servers::{OneServer, Purge, missing, options};
use super::targets::{Missing, Started};

pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, Link, LongestWait, Permits, Process, Purge, Server,
        Shared, TokenBlocks,
    };
    vec![
        Shared,
        Permits,
        Downgrade,
        Fencing,
        TokenBlocks,
        Fifo,
        Counted,
        LongestWait,
        Durable,
        Process,
        Server,
        Link,
        Purge,
    ]
}

#[cfg(feature = "postgres")]
async fn start_postgres(release: &'static Release) -> Result<testbed::Postgres, Missing> {
    let options = options().release(release).setting("max_connections", "300");
    testbed::Postgres::start_with(&options).await.map_err(|error| missing(&error))
}

#[cfg(feature = "postgres")]
const PURGE_POSTGRES: Purge = |url| {
    Box::pin(async move {
        let url = url.parse().expect("an address");
        let lock = lockwell::sql::PostgresLock::connect(&url).await.expect("a connection");
        lock.purge(Duration::ZERO).await.expect("a purge");
    })
};

#[cfg(feature = "postgres")]
pub(crate) async fn postgres(release: &'static Release) -> Started {
    let postgres = start_postgres(release).await?;
    let server = testbed::Server::clone(&postgres);
    let url_via = Box::new(move |addr| postgres.url_via(addr));
    Ok(OneServer::new(server, offers(), url_via, Some(PURGE_POSTGRES)))
}

/// PostgreSQL behind a pooler in transaction mode, which the address tells of with `options_of_url` or not. What is stopped and started again is the server, not the pooler.
#[cfg(feature = "postgres")]
pub(crate) async fn pooled(release: &'static Release, options_of_url: &'static str) -> Started {
    let mut pooler = Release::named("pgbouncer1.18");
    if release.is_newer() {
        pooler = Release::named("pgbouncer1.26");
    }
    testbed::PgBouncer::installed().map_err(|error| missing(&error))?;
    let postgres = start_postgres(release).await?;
    let pooler = testbed::PgBouncer::start_with(&postgres, &options().release(pooler)).await;
    let pooler = pooler.map_err(|error| missing(&error))?;
    let (door, server) = (pooler.addr(), testbed::Server::clone(&postgres));
    // The pooler lives as long as this.
    let url_via = Box::new(move |addr| pooler.postgres().url_via(addr) + options_of_url);
    Ok(OneServer::behind(door, server, offers(), url_via, Some(PURGE_POSTGRES)))
}

#[cfg(feature = "mysql")]
pub(crate) async fn mariadb(release: &'static Release) -> Started {
    use lockwell::sql::MySqlLock;
    let options = options().release(release);
    let mariadb = testbed::MariaDb::start_with(&options).await.map_err(|error| missing(&error))?;
    let server = testbed::Server::clone(&mariadb);
    let purge: Purge = |url| {
        Box::pin(async move {
            let lock = MySqlLock::connect(&url.parse().expect("an address")).await.expect("a connection");
            lock.purge(Duration::ZERO).await.expect("a purge");
        })
    };
    Ok(OneServer::new(server, offers(), Box::new(move |addr| mariadb.url_via(addr)), Some(purge)))
}
