//! What a client hears late, or not at all, is no proof.

use std::future::IntoFuture;
use std::time::Duration;

use lockwell_core::{Claim, DistributedLock, LeaseState, Mode, Moment, Released, Result, Wait};
use testbed::{Direction, Proxy};
use zookeeper_client::Client;

use crate::servers::{client, connect, hold, options, queued, secs, single, url};
use crate::wire::end_session;

/// The session ends and another gets the lock; then the first request of the release is lost along with its
/// connection. The node is not there any more when the release is repeated, and that does not prove that the
/// release deleted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_lost_is_not_called_released() {
    let Some(server) = single(&options()).await else { return };
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (far, near) = (connect(&url(proxy.addr())).await.1, client(&server.url()).await);
    let name = "doubt".try_into().expect("a name");
    let claim = Claim::new(name, Mode::Exclusive, secs(30), Wait::No, "far".into());
    // Held when the release begins, and its answer is lost.
    far.acquire(&claim).await.expect("an answer").expect("a free lock");
    proxy.blackhole(Direction::ToClient);
    let released = release_in_doubt(&far, &claim, &proxy).await;
    assert!(matches!(released, Ok(Released::Released | Released::InDoubt)), "{released:?}");
    hold(&near, "doubt").await.release().await.expect("held");

    let claim = Claim::new(claim.name().clone(), Mode::Exclusive, secs(30), Wait::No, "far".into());
    far.acquire(&claim).await.expect("an answer").expect("a free lock");
    let node = witness.list_children("/lockwell/doubt").await.expect("a folder").remove(0);
    let stat =
        witness.check_stat(&format!("/lockwell/doubt/{node}")).await.expect("an answer").expect("a node");
    proxy.blackhole(Direction::Both);
    end_session(server.addr(), stat.ephemeral_owner).await;
    let other = hold(&near, "doubt").await;
    let released = release_in_doubt(&far, &claim, &proxy).await;
    assert_ne!(released.expect("an answer"), Released::Released);
    assert!(other.is_held());
    other.release().await.expect("held");
}

/// Releases while the network swallows, and mends the network when the request is on its way.
async fn release_in_doubt(lock: &lockwell_zk::ZkLock, claim: &Claim, proxy: &Proxy) -> Result<Released> {
    let mending = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.heal();
    };
    tokio::join!(lock.release(claim), mending).0
}

/// The first that a waiter hears of the end of its session is that its node was deleted, as it can happen to
/// a process that was stopped for so long. It cannot ask any more on that connection. Nobody took it out of
/// the queue, so it queues again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_hears_of_its_node_before_the_end_of_its_session() {
    let Some(server) = single(&options()).await else { return };
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (far, near) = (client(&url(proxy.addr())).await, client(&server.url()).await);
    let held = hold(&near, "stopped").await;
    let waiting = tokio::spawn(far.lock("stopped").wait(secs(90)).into_future());
    queued(&near, "stopped", 1).await;
    // The watches are set by the time that another request is answered.
    hold(&far, "other").await.release().await.expect("held");
    let mut nodes = witness.list_children("/lockwell/stopped").await.expect("a folder");
    nodes.sort_by_key(|name| name[name.len() - 10..].to_owned());
    let node = format!("/lockwell/stopped/{}", nodes[1]);
    let session = witness.check_stat(&node).await.expect("an answer").expect("a node").ephemeral_owner;
    proxy.blackhole(Direction::ToServer);
    let told = proxy.bytes(Direction::ToClient);
    witness.delete(&node, None).await.expect("deleted");
    let end = Moment::now().after(secs(20));
    while proxy.bytes(Direction::ToClient) == told {
        assert!(!end.has_passed(), "nobody tells the waiter");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    end_session(server.addr(), session).await;
    proxy.heal();
    queued(&near, "stopped", 1).await;
    let token = held.token();
    held.release().await.expect("held");
    let guard = waiting.await.expect("no panic").expect("its turn comes");
    assert!(guard.token() > token);
    guard.release().await.expect("held");
}

/// The session has ended, and the client has not heard of it, as after a pause of its process. The servers
/// are well, so a request that does not wait gets its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_does_not_wait_outlives_its_session() {
    let Some(server) = single(&options()).await else { return };
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let far = client(&url(proxy.addr())).await;
    let held = hold(&far, "ended").await;
    let node = witness.list_children("/lockwell/ended").await.expect("a folder").remove(0);
    let stat =
        witness.check_stat(&format!("/lockwell/ended/{node}")).await.expect("an answer").expect("a node");
    held.release().await.expect("held");
    proxy.blackhole(Direction::Both);
    end_session(server.addr(), stat.ephemeral_owner).await;
    let mending = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.heal();
    };
    let (granted, ()) = tokio::join!(far.lock("ended").try_now().into_future(), mending);
    granted.expect("an answer").expect("a free lock").release().await.expect("held");
}

/// The connection of one session hangs. What a client holds by another session is renewed in the same call,
/// and is not in doubt for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_hangs_puts_no_other_in_doubt() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&url(proxy.addr())).await;
    let hangs = locks.lock("hangs").ttl(secs(24)).await.expect("a free lock");
    proxy.hold_back();
    let kept = locks.lock("kept").ttl(secs(30)).await.expect("a free lock");
    let began = Moment::now();
    let mut doubted = None;
    // A renewal may take five seconds, and is overdue after three and a half.
    while doubted.is_none_or(|since| Moment::now().since(since) < secs(4)) {
        assert!(Moment::now().since(began) < secs(20), "nobody asks for it");
        assert_eq!(kept.lease_state(), LeaseState::Held, "after {:?}", Moment::now().since(began));
        if hangs.lease_state() == LeaseState::Suspect {
            doubted.get_or_insert_with(Moment::now);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(hangs.is_held(), "{hangs:?}");
    proxy.deliver();
    for guard in [kept, hangs] {
        guard.release().await.expect("held");
    }
}
