//! The option that changes how a database is asked.

use std::time::Duration;

use crate::servers::{Kind, client, url, wait_for};

/// Free, held, new and contended locks; alone and in batches; by two clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_behind_a_pooler_that_carries_nothing_over() {
    let Some(url) = url(Kind::Postgres, "pooled").await else { return };
    let url = format!("{url}&pooled=true");
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let mut last = None;
    for _ in 0..20 {
        for locks in [&one, &two] {
            let guard = locks.lock("a").await.expect("a free lock");
            assert!(Some(guard.token()) > last, "tokens rise");
            last = Some(guard.token());
            assert!(one.lock("a").try_now().await.expect("an answer").is_none());
            guard.release().await.expect("held");
        }
    }
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").wait(Duration::from_secs(20)).into_future());
    wait_for(&one, "a", 1).await;
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    let writer = one.write("a").await.expect("a free lock");
    let readers: Vec<_> = [&one, &two, &two]
        .map(|locks| tokio::spawn(locks.read("a").wait(Duration::from_secs(20)).into_future()))
        .into();
    wait_for(&one, "a", readers.len()).await;
    writer.release().await.expect("held");
    let mut together = Vec::new();
    for reader in readers {
        together.push(reader.await.expect("no panic").expect("they come in together"));
    }
    let waiting = tokio::spawn(one.permit("slots", 1).wait(Duration::from_secs(20)).into_future());
    let slot = waiting.await.expect("no panic").expect("a free permit");
    let waiting = tokio::spawn(two.permit("slots", 1).wait(Duration::from_secs(20)).into_future());
    wait_for(&one, "slots", 1).await;
    slot.release().await.expect("held");
    together.push(waiting.await.expect("no panic").expect("its turn comes"));
    for guard in together {
        guard.release().await.expect("held");
    }
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let locks = one.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = locks.lock(format!("name {n}")).await.expect("a free lock");
                    guard.release().await.expect("held");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task fails");
    }
}
