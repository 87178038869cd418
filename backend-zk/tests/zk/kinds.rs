//! Locks of two kinds with one name.

use std::time::Duration;

use lockwell_core::Moment;
use testbed::{Direction, Proxy, ZooKeeper};
use zookeeper_client::Client;

use crate::servers::{client, hold, options, secs, single};

/// A claim of another kind that has no answer yet holds the lock when it is the first. So nobody behind it may
/// hold the lock at that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_do_not_meet_after_a_lost_answer() {
    let Some(server) = single(&options()).await else { return };
    for writer in [true, false] {
        kinds_do_not_meet(&server, writer).await;
    }
}

/// The queue is a permit, a writer, a permit; or a reader, a permit, a reader.
async fn kinds_do_not_meet(server: &ZooKeeper, writer: bool) {
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (far, near) = (client(&format!("zk://{}", proxy.addr())).await, client(&server.url()).await);
    let name = if writer { "writer" } else { "reader" };
    hold(&far, "warm").await.release().await.expect("held");
    let outer = || if writer { near.permit(name, 2) } else { near.read(name) };
    let first = outer().await.expect("a free lock");
    proxy.blackhole(Direction::ToClient);
    let request = if writer { far.lock(name) } else { far.permit(name, 2) };
    let other = tokio::spawn(request.wait(secs(60)).into_future());
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let folder = format!("/lockwell/{name}");
    let end = Moment::now().after(secs(20));
    while witness.list_children(&folder).await.expect("a folder").len() < 2 {
        assert!(!end.has_passed(), "the claim does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut second = tokio::spawn(outer().wait(secs(60)).into_future());
    while witness.list_children(&folder).await.expect("a folder").len() < 3 {
        assert!(!end.has_passed(), "the third does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.release().await.expect("held");
    proxy.heal();
    // The one in the middle is the first now.
    let guard = other.await.expect("no panic").expect("it is the first");
    // The last one waits until the name is free for its kind.
    let waits = tokio::time::timeout(secs(1), &mut second).await;
    assert!(waits.is_err(), "it is held beside a lock of another kind: {waits:?}");
    guard.release().await.expect("held");
    second.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    let left = witness.list_children(&folder).await.expect("a folder");
    assert!(left.is_empty(), "{left:?}");
}
