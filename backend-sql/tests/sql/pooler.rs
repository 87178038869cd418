//! PostgreSQL behind a pooler in transaction mode. The conformance suite runs there, too.

use std::time::Duration;

use testbed::{Durability, Options, PgBouncer, if_installed};

use crate::servers::{Kind, client, postgres, session};

/// A pooler with one connection to the server, for all clients together.
async fn pooler(options: Options) -> Option<PgBouncer> {
    let options = options.durability(Durability::OsCache).setting("default_pool_size", "1");
    if_installed(PgBouncer::start_with(postgres().await?, &options).await)
}

/// Without `pooled=true`, a pooler that shares sessions is noticed: nothing rests on a session then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_noticed_before_anything_is_locked() {
    let ignoring = Options::new().setting("ignore_startup_parameters", "options");
    for options in [Options::new(), ignoring] {
        let Some(pooler) = pooler(options).await else { return };
        let url = pooler.url() + "?table=unnoticed";
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        for locks in [&one, &two, &one, &two] {
            locks.lock("a").await.expect("a free lock").release().await.expect("held");
            locks.read("b").await.expect("a free lock").release().await.expect("held");
        }
        // What is left of us at the server is nothing that others could meet.
        let found = "SELECT name::text FROM pg_prepared_statements WHERE left(name, 7) = 'sqlx_s_'";
        let left =
            sqlx::raw_sql(found).fetch_all(&mut session(&pooler.url()).await).await.expect("an answer").len();
        assert_eq!(left, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_their_waiters_share_one_connection() {
    let Some(pooler) = pooler(Options::new()).await else { return };
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
