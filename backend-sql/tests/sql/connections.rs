//! How long connections live.

use std::time::{Duration, Instant};

use crate::servers::{Kind, client, postgres};

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
