//! PostgreSQL behind a pooler in transaction mode. The conformance suite runs there, too.

use std::time::Duration;

use lockcore::ErrorKind;
use testbed::{Durability, Options, PgBouncer};

use crate::servers::{Kind, backend, client, missing, postgres};

/// A pooler with one connection to the server, for all clients together.
async fn pooler() -> Option<PgBouncer> {
    if missing(PgBouncer::installed()) {
        return None;
    }
    let options = Options::new().durability(Durability::OsCache).setting("default_pool_size", "1");
    let pooler = PgBouncer::start_with(postgres().await?, &options).await;
    Some(pooler.expect("the pooler starts"))
}

#[tokio::test]
async fn it_is_noticed_before_anything_is_locked() {
    let Some(pooler) = pooler().await else { return };
    let error =
        backend(Kind::Postgres, &(pooler.url() + "?table=unnoticed")).await.expect_err("shared sessions");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    assert!(format!("{error:#}").contains("set pooled=true"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_their_waiters_share_one_connection() {
    let Some(pooler) = pooler().await else { return };
    let url = pooler.url() + "?table=shared&pooled=true";
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let locks = client(Kind::Postgres, &url).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let request = locks.lock("a'b\\c").ttl(Duration::from_secs(3)).label("O'Brien\\");
                let guard = request.wait(Duration::from_mins(1)).await.expect("its turn comes");
                tokio::time::sleep(Duration::from_millis(5)).await;
                guard.release().await.expect("held");
            }
            let guard =
                locks.lock_all(["x", "y", "it's"]).wait(Duration::from_mins(1)).await.expect("all three");
            guard.release().await.expect("held");
        }));
    }
    for task in tasks {
        task.await.expect("no task fails");
    }
}
