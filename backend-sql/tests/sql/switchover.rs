//! A replica takes over in good order, and the server that was the primary goes on as a replica.

use std::time::Duration;

use lockwell_core::{ErrorKind, Locks};
use testbed::{MariaDb, Postgres, Proxy, if_installed};

use crate::servers::{Kind, client, options};

/// Takes and releases a lock, alone and together.
async fn use_locks(locks: &Locks) {
    for name in ["a", "b"] {
        locks.lock(name).await.expect("a free lock").release().await.expect("held");
    }
    locks.read("c").await.expect("a free lock").release().await.expect("held");
}

/// The client connects to the old primary, which is a replica by then, before the address leads to the new
/// one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_replica_of_postgres() {
    let Some(old) = if_installed(Postgres::start_with(&options()).await) else { return };
    let Some(new) = if_installed(old.start_standby(&options()).await) else { return };
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let locks = client(Kind::Postgres, &old.url_via(proxy.addr())).await;
    use_locks(&locks).await;
    let guard = locks.lock("held").ttl(Duration::from_secs(30)).await.expect("a free lock");

    // The primary writes all out to its replica before it ends.
    old.stop().await.expect("it ends");
    new.promote().await.expect("it takes writes");
    old.follow(new.addr()).expect("settings");
    old.restart().await.expect("it starts");
    for _ in 0..2 {
        let error = locks.lock("a").await.expect_err("a replica");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("replica"), "{error:#}");
    }
    proxy.redirect(new.addr());
    use_locks(&locks).await;
    assert!(locks.lock("held").try_now().await.expect("an answer").is_none(), "the grant is known there");
    assert!(guard.is_held());
    guard.release().await.expect("held");
}

/// The old primary is set to be read only under connections that live on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_replica_of_mariadb() {
    let numbered = |number: &str| options().setting("server-id", number);
    let Some(old) = if_installed(MariaDb::start_with(&numbered("1").setting("log-bin", "log")).await) else {
        return;
    };
    let new = MariaDb::start_with(&numbered("2")).await.expect("starts");
    if old.admin_sql("SELECT VERSION()").await.expect("an answer").contains("MariaDB") {
        let follow = format!(
            "CHANGE MASTER TO master_host='127.0.0.1', master_port={}, master_user='root', \
             master_use_gtid=slave_pos; START SLAVE",
            old.addr().port()
        );
        new.admin_sql(&follow).await.expect("it follows");
    } else {
        return;
    }
    // An administrator may write all the same.
    old.admin_sql("CREATE USER app@'%'; GRANT ALL ON lockwell.* TO app@'%'").await.expect("a user");
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let locks = client(Kind::MariaDb, &old.url_via(proxy.addr()).replace("root@", "app@")).await;
    use_locks(&locks).await;
    let guard = locks.lock("held").ttl(Duration::from_secs(30)).await.expect("a free lock");

    old.admin_sql("SET GLOBAL read_only = 1").await.expect("no more writes");
    let error = locks.lock("a").await.expect_err("read only");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    let position = old.admin_sql("SELECT @@gtid_binlog_pos").await.expect("a position");
    let wait = format!("SELECT MASTER_GTID_WAIT('{}', 60)", position.trim());
    assert_eq!(new.admin_sql(&wait).await.expect("an answer").trim(), "0", "the replica has all");
    new.admin_sql("STOP SLAVE; RESET SLAVE ALL").await.expect("it takes writes");
    proxy.redirect(new.addr());
    use_locks(&locks).await;
    assert!(locks.lock("held").try_now().await.expect("an answer").is_none(), "the grant is known there");
    guard.release().await.expect("held");
}
