//! Logins that a server refuses in other words than a wrong password.

use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Result};
use lockwell_sql::{MySqlLock, PostgresLock};
use testbed::{MariaDb, if_installed};

use crate::servers::{mariadb, options, postgres};

/// Far less than the time for which an answer that may pass is waited for.
const AT_ONCE: Duration = Duration::from_secs(30);

/// The login ends at once, and the error says what to do.
async fn is_refused<L>(login: impl Future<Output = Result<L>>, words: &str) {
    let login = tokio::time::timeout(AT_ONCE, Box::pin(login)).await;
    let error: Error =
        login.unwrap_or_else(|_| panic!("{words}: it is tried again")).err().expect("a refusal");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Refused, false), "{error:#}");
    assert!(error.to_string().contains(words), "{error:#}");
}

#[tokio::test]
async fn mariadb_refuses_a_locked_account_and_an_expired_password() {
    let Some(server) = mariadb().await else { return };
    let sql = "CREATE USER login_locked@'%' ACCOUNT LOCK;
               CREATE USER login_old@'%' IDENTIFIED BY 'x' PASSWORD EXPIRE;
               GRANT ALL ON lockwell.* TO login_locked@'%', login_old@'%'";
    server.admin_sql(sql).await.expect("an administrator");
    for (user, words) in [("login_locked", "ACCOUNT UNLOCK"), ("login_old:x", "has expired")] {
        let url = server.url().replace("root@", &format!("{user}@")) + "?table=logins&timeout=60s";
        is_refused(MySqlLock::connect(&url.parse().expect("an address")), words).await;
    }
}

/// An account of any host would let all hosts in, so this takes a server of its own.
#[tokio::test]
async fn mariadb_refuses_a_host_that_no_account_is_for() {
    let Some(server) = if_installed(MariaDb::start_with(&options()).await) else { return };
    let sql = "CREATE USER ann@'192.0.2.1'; DELETE FROM mysql.global_priv WHERE host <> '192.0.2.1';
               FLUSH PRIVILEGES";
    server.admin_sql(sql).await.expect("an administrator");
    let url = server.url() + "?table=logins&timeout=60s";
    is_refused(MySqlLock::connect(&url.parse().expect("an address")), "from this host").await;
}

#[tokio::test]
async fn postgres_refuses_a_closed_database_and_a_role_without_login() {
    let Some(server) = postgres().await else { return };
    server.admin_sql("CREATE ROLE login_not; CREATE DATABASE login_closed").await.expect("an administrator");
    let close = "ALTER DATABASE login_closed ALLOW_CONNECTIONS false";
    server.admin_sql(close).await.expect("an administrator");
    for (user, database, words) in
        [("login_not", "postgres", "no LOGIN"), ("postgres", "login_closed", "ALLOW_CONNECTIONS")]
    {
        let url = format!("postgres://{user}@{}/{database}?table=logins&timeout=60s", server.addr());
        is_refused(PostgresLock::connect(&url.parse().expect("an address")), words).await;
    }
}
