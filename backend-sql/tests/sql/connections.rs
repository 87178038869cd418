//! How long connections live.

use std::time::{Duration, Instant};

use testbed::{MariaDb, if_installed};

use crate::servers::{Kind, client, options, postgres, wait_for};

/// The connections go with the last client of their runtime, those of the keeper and of waiters included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_outlives_its_client() {
    let Some(server) = postgres().await else { return };
    server.admin_sql("CREATE ROLE leaver LOGIN SUPERUSER").await.expect("a role");
    let url = server.url().replace("postgres@", "leaver@") + "?table=left";
    for purge in ["", "&purge_after=4s"] {
        let url = format!("{url}{purge}");
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        let guard = one.lock("a").ttl(Duration::from_millis(900)).await.expect("a free lock");
        let waiting = tokio::spawn(two.lock("a").into_future());
        // Renewed meanwhile, and purged.
        tokio::time::sleep(Duration::from_secs(3)).await;
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        drop((one, two));
        let began = Instant::now();
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'leaver'";
        loop {
            let left = server.admin_sql(sql).await.expect("a count");
            if left.trim() == "0" {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(15), "{} connections are left", left.trim());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The server logs a connection that breaks off. A client that waits has two more than one that holds a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_logs_no_end_of_a_client_that_is_closed() {
    // From 4 on it logs each `KILL QUERY` like that.
    let options = options().setting("log_warnings", "3");
    let Some(server) = if_installed(MariaDb::start_with(&options).await) else { return };
    let log = || std::fs::read_to_string(server.folder().join("log")).expect("a log");
    for _ in 0..3 {
        let (one, two) =
            (client(Kind::MariaDb, &server.url()).await, client(Kind::MariaDb, &server.url()).await);
        let guard = one.lock("a").ttl(Duration::from_secs(4)).await.expect("a free lock");
        let waiting = tokio::spawn(two.lock("a").into_future());
        wait_for(&one, "a", 1).await;
        // The keeper renews it meanwhile, over a connection of its own.
        tokio::time::sleep(Duration::from_secs(2)).await;
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        one.close().await.expect("closed");
        two.close().await.expect("closed");
    }
    // The server notices the end of a connection by itself.
    let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'";
    let end = Instant::now() + Duration::from_mins(1);
    while server.admin_sql(count).await.expect("an administrator").trim() != "1" {
        assert!(Instant::now() < end, "connections stay open");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(!log().contains("Aborted connection"), "{}", log());
}
