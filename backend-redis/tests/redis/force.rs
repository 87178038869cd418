//! What an operator frees by force.

use std::time::Duration;

use testbed::Proxy;

use crate::asking::queued;
use crate::servers::{client, redis};

/// The answer to the operator's request is lost, and the waiter gets the lock. The request is repeated.
#[tokio::test]
async fn force_that_is_repeated_leaves_the_successor_alone() {
    let Some(server) = redis().await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let operator = client(&format!("redis://{}?timeout=3s", proxy.addr())).await;
    let locks = client(&server.url()).await;
    let ttl = Duration::from_secs(20);
    // The script is known to the server from now on.
    let guard = locks.lock("b").ttl(ttl).await.expect("a free lock");
    assert_eq!(operator.force_release("b").await.expect("an answer"), 1);
    drop(guard);
    let held = locks.lock("a").ttl(ttl).await.expect("a free lock");
    let waiting = tokio::spawn(locks.lock("a").ttl(ttl).into_future());
    queued(&locks, "a", 1).await;
    let third = tokio::spawn(client(&server.url()).await.lock("a").ttl(ttl).into_future());
    queued(&locks, "a", 2).await;
    // The first answer says who holds the lock.
    proxy.drop_reply(2);
    assert_eq!(operator.force_release("a").await.expect("an answer"), 1);
    assert_eq!(proxy.dropped_replies(), 1);
    let successor = waiting.await.expect("no panic").expect("its turn");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!third.is_finished(), "two hold the lock");
    successor.release().await.expect("nobody has freed it");
    third.await.expect("no panic").expect("its turn").release().await.expect("held");
    drop(held);
}
