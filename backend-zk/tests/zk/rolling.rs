//! Every server of an ensemble is restarted in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::servers::{client, ensemble, lasting, options};

const TTL: Duration = Duration::from_secs(30);

/// A lock that is held stays held, and all who wait for another are served, never two at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_rolling_restart_loses_nothing() {
    let options = options().setting("syncLimit", "10").setting("initLimit", "15");
    let Some(servers) = ensemble(&options).await else { return };
    let keeper = lasting(&servers.url()).await;
    let kept = keeper.lock("kept").ttl(TTL).await.expect("a free lock");
    let (stop, inside, grants) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for _ in 0..3 {
        let locks = lasting(&servers.url()).await;
        let (stop, inside, grants) = (Arc::clone(&stop), Arc::clone(&inside), Arc::clone(&grants));
        workers.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let guard = locks.lock("busy").ttl(TTL).wait(TTL * 4).await.expect("no waiter is lost");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(guard.is_held(), "lost: {:?}", guard.lease_state());
                inside.fetch_sub(1, Ordering::SeqCst);
                grants.fetch_add(1, Ordering::SeqCst);
                if let Err(error) = guard.release().await {
                    assert!(error.is_retryable(), "{error:#}");
                }
            }
        }));
    }
    for server in servers.servers() {
        let before = grants.load(Ordering::SeqCst);
        server.stop().await.expect("stopped");
        server.restart().await.expect("started");
        servers.ready().await.expect("an ensemble");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(kept.is_held(), "{:?}", kept.lease_state());
        println!("{} grants meanwhile", grants.load(Ordering::SeqCst) - before);
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.expect("no worker fails");
    }
    let other = client(&servers.url()).await;
    assert!(other.lock("kept").try_now().await.expect("an answer").is_none(), "both hold");
    kept.release().await.expect("held");
}
