//! Database servers.

use std::time::Duration;

use lockwell::conformance::Need;

use super::servers::{OneServer, Purge, missing, options};
use super::targets::Started;

pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, Link, Permits, Process, Purge, Server, Shared,
        TokenBlocks,
    };
    vec![
        Shared,
        Permits,
        Downgrade,
        Fencing,
        TokenBlocks,
        Fifo,
        Counted,
        Durable,
        Process,
        Server,
        Link,
        Purge,
    ]
}

#[cfg(feature = "postgres")]
pub(crate) async fn postgres() -> Started {
    use lockwell::sql::PostgresLock;
    let options = options().setting("max_connections", "300");
    let postgres = testbed::Postgres::start_with(&options).await.map_err(|error| missing(&error))?;
    let server = testbed::Server::clone(&postgres);
    let purge: Purge = |url| {
        Box::pin(async move {
            let lock = PostgresLock::connect(&url.parse().expect("an address")).await.expect("a connection");
            lock.purge(Duration::ZERO).await.expect("a purge");
        })
    };
    Ok(OneServer::new(server, offers(), Box::new(move |addr| postgres.url_via(addr)), Some(purge)))
}

#[cfg(feature = "mysql")]
pub(crate) async fn mariadb() -> Started {
    use lockwell::sql::MySqlLock;
    let mariadb = testbed::MariaDb::start_with(&options()).await.map_err(|error| missing(&error))?;
    let server = testbed::Server::clone(&mariadb);
    let purge: Purge = |url| {
        Box::pin(async move {
            let lock = MySqlLock::connect(&url.parse().expect("an address")).await.expect("a connection");
            lock.purge(Duration::ZERO).await.expect("a purge");
        })
    };
    Ok(OneServer::new(server, offers(), Box::new(move |addr| mariadb.url_via(addr)), Some(purge)))
}
