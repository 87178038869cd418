//! What an ensemble and a network can do to a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockcore::{ErrorKind, Moment};
use testbed::{Direction, Proxy};
use zookeeper_client::Client;

use crate::servers::{client, ensemble, hold, options, queued, single, url};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The holder's server loses its leader and does not know it for longer than the session lasts. The holder must not
/// believe in its lock when the next one gets it, though its own server goes on answering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_a_cut_off_follower_stops_in_time() {
    // An island of five seconds, and sessions of two.
    let options = options().setting("tickTime", "500").setting("syncLimit", "10").setting("initLimit", "20");
    let Some(servers) = ensemble(&options).await else { return };
    for round in 0..3 {
        let name = format!("island-{round}");
        let follower = servers.followers().await.expect("an answer")[0];
        let leader = servers.leader().await.expect("an answer");
        let one = client(&url(servers.addresses()[follower])).await;
        let two = client(&url(servers.addresses()[leader])).await;
        let guard = one.lock(name.as_str()).ttl(secs(2)).await.expect("a free lock");
        let heir = tokio::spawn({
            let request = two.lock(name.as_str()).ttl(secs(2)).wait(secs(30));
            async move {
                let guard = request.await.expect("its turn comes");
                (Moment::now(), guard)
            }
        });
        queued(&two, &name, 1).await;
        tokio::time::sleep(secs(3) + Duration::from_millis(137) * round).await;
        assert!(guard.is_held(), "lost without a fault: {:?}", guard.standing());
        let cut = Moment::now();
        servers.isolate(follower).expect("links");
        guard.lost().await;
        let told = Moment::now();
        let (granted, next) = heir.await.expect("no panic");
        println!(
            "round {round}: told {:?} after the cut, the heir came {:?} after it",
            told.since(cut),
            granted.since(cut)
        );
        assert!(told <= granted, "both believed for {:?}", told.since(granted));
        assert!(told.since(cut) >= Duration::from_millis(800), "given up too soon");
        servers.rejoin(follower).expect("links");
        next.release().await.expect("held");
        servers.ready().await.expect("an ensemble");
    }
}

/// The leader is killed again and again. All who wait are served, never two at a time, and tokens rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed_under_load() {
    const KILLS: usize = 2;
    // An election that goes wrong at first is repeated after the time of `initLimit`.
    let options = options().setting("syncLimit", "10").setting("initLimit", "15");
    let Some(servers) = ensemble(&options).await else { return };
    let (last, inside, grants) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut workers = Vec::new();
    for _ in 0..3 {
        let locks = client(&servers.url()).await;
        for _ in 0..4 {
            let (locks, last, inside) = (locks.clone(), Arc::clone(&last), Arc::clone(&inside));
            let (grants, stop) = (Arc::clone(&grants), Arc::clone(&stop));
            workers.push(tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let guard =
                        locks.lock("load").ttl(secs(15)).wait(secs(60)).await.expect("no waiter is lost");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                    let before = last.swap(guard.token().get(), Ordering::SeqCst);
                    assert!(before < guard.token().get(), "token {} after {before}", guard.token());
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    assert!(guard.is_held(), "lost: {:?}", guard.standing());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    grants.fetch_add(1, Ordering::SeqCst);
                    if let Err(error) = guard.release().await {
                        assert!(error.is_retryable(), "{error:#}");
                    }
                }
            }));
        }
    }
    for _ in 0..KILLS {
        tokio::time::sleep(secs(4)).await;
        let leader = servers.leader().await.expect("a leader");
        let before = grants.load(Ordering::SeqCst);
        servers.servers()[leader].kill().expect("killed");
        let killed = Moment::now();
        let electing = tokio::spawn({
            let servers = servers.clone();
            async move {
                while servers.leader().await.is_err()
                    || servers.followers().await.is_ok_and(|it| it.is_empty())
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Moment::now().since(killed)
            }
        });
        while grants.load(Ordering::SeqCst) < before + 12 {
            assert!(Moment::now().since(killed) < secs(20), "nobody is served any more");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let served = Moment::now().since(killed);
        let elected = electing.await.expect("no panic");
        println!(
            "leader killed; another serves {elected:?} later, and twelve have been served after {served:?}"
        );
        servers.servers()[leader].restart().await.expect("started");
        servers.ready().await.expect("an ensemble");
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.expect("no worker fails");
    }
    println!("{} grants", grants.load(Ordering::SeqCst));
}

/// The session expires while the claim holds, while it waits, and while its node is being made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_expire() {
    let Some(server) = single(&options()).await else { return };
    let two = client(&server.url()).await;
    for way in [Direction::Both, Direction::ToClient, Direction::ToServer] {
        let proxy = Proxy::start(server.addr()).await.expect("a proxy");
        let one = client(&url(proxy.addr())).await;
        let ttl = secs(1);
        // Holding.
        let held = one.lock("held").ttl(ttl).await.expect("a free lock");
        // Waiting.
        let other = hold(&two, "waiting").await;
        let waiting = tokio::spawn(one.lock("waiting").ttl(ttl).wait(secs(40)).into_future());
        queued(&two, "waiting", 1).await;
        proxy.blackhole(way);
        // Making its node.
        let making = tokio::spawn(one.lock("making").ttl(ttl).wait(secs(40)).into_future());
        let heir = two.lock("held").wait(secs(20)).await.expect("the session expires");
        assert!(!held.is_held(), "both believe");
        tokio::time::sleep(ttl * 3).await;
        proxy.heal();
        let made = making.await.expect("no panic").expect("a free lock");
        assert!(made.is_held());
        let token = other.token();
        other.release().await.expect("held");
        let waited = waiting.await.expect("no panic").expect("its turn comes");
        assert!(waited.token() > token);
        let error = held.release().await.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
        assert!(heir.is_held(), "the old holder freed the heir's lock");
        for guard in [made, waited, heir] {
            let name = guard.name().to_string();
            guard.release().await.expect("held");
            queued(&two, &name, 0).await;
            hold(&two, &name).await.release().await.expect("held");
        }
    }
}

/// An operator deletes everything, those who wait included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_queue_is_deleted() {
    let Some(server) = single(&options()).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let operator = Client::connect(&server.addr().to_string()).await.expect("a client");
    let held = one.lock("gone").ttl(secs(3)).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("gone").wait(secs(20)).into_future());
    queued(&one, "gone", 1).await;
    let mut nodes = operator.list_children("/lockwell/gone").await.expect("a folder");
    // The last first: the waiter must hear of its own end, not of the holder's.
    nodes.sort_by_key(|name| std::cmp::Reverse(name[name.len() - 10..].to_owned()));
    for node in nodes {
        operator.delete(&format!("/lockwell/gone/{node}"), None).await.expect("deleted");
    }
    operator.delete("/lockwell/gone", None).await.expect("deleted");
    let error = waiting.await.expect("no panic").expect_err("its place was deleted");
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error:#}");
    assert_eq!(held.lost().await, lockcore::Loss::Taken);
    let next = hold(&two, "gone").await;
    assert!(next.token() > held.token());
}
