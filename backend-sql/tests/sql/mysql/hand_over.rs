//! A release on MySQL and MariaDB grants the lock to the first who waits for it, and tells it, in its one
//! message.

use std::time::{Duration, Instant};

use lockwell_core::Locks;
use testbed::{MariaDb, Proxy};

use super::{RELEASES, can_be_granted, connect, options, servers, start};
use crate::hand_over::{crowd, heartbeats};
use crate::servers::{Kind, client, wait_for};

/// How long a message is under way.
const WAY: Duration = Duration::from_millis(40);

/// A client that is far from the server.
async fn far(server: &MariaDb, table: &str) -> (Proxy, Locks) {
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(Kind::MariaDb, &format!("{}?table={table}", server.url_via(proxy.addr()))).await;
    (proxy, locks)
}

/// From the beginning of the release until the other has the lock: there with the release, and back with the
/// grant, which the parked connection brings. The goal is 1.6 round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_takes_one_round_trip() {
    for server in servers().await {
        let ((near, one), (away, two)) = (far(server, "far").await, far(server, "far").await);
        let mut took = Vec::new();
        for (turn, (holder, waiter)) in [(&one, &two), (&two, &one)].repeat(5).into_iter().enumerate() {
            let guard = holder.lock("a").await.expect("a free lock");
            let waiting = {
                let request = waiter.lock("a").into_future();
                tokio::spawn(async move { request.await.map(|guard| (guard, Instant::now())) })
            };
            wait_for(holder, "a", 1).await;
            // The waiter's connection is parked by then.
            tokio::time::sleep(WAY * 8).await;
            let released = Instant::now();
            guard.release().await.expect("held");
            let (next, at) = waiting.await.expect("no panic").expect("its turn");
            assert!(next.is_held());
            next.release().await.expect("held");
            // The first two are without a delay: each finds out whether it may send a kill itself.
            if turn > 1 {
                took.push(at.duration_since(released));
            }
            for proxy in [&near, &away] {
                proxy.delay(if turn > 0 { WAY } else { Duration::ZERO });
            }
        }
        took.sort_unstable();
        println!("{server:?}: {took:?} with {WAY:?} each way");
        assert!(took[0] >= WAY * 2, "there and back takes so long: {took:?}");
        // The shortest, since the others tell how busy the machine is. Two messages would take 2.2 round
        // trips.
        assert!(took[0] < WAY * 16 / 5, "{took:?}");
        assert!(took[took.len() / 2] < WAY * 4, "{took:?}");
    }
}

/// What is refused is one round trip, and what enters the queue another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_one_message_and_a_place_one_more() {
    const MANY: u64 = 12;
    for server in servers().await {
        let (holder, (proxy, locks)) = (connect(server, "places").await, far(server, "places").await);
        let mut guards = Vec::new();
        for n in 0..MANY {
            guards.push(holder.lock(format!("{n}")).ttl(Duration::from_mins(1)).await.expect("a free lock"));
        }
        // The statements are prepared, and the connection is parked.
        let first = tokio::spawn(locks.lock("0").into_future());
        wait_for(&holder, "0", 1).await;
        assert!(locks.lock("1").try_now().await.expect("an answer").is_none());
        let mut names = Vec::new();
        for n in 1..MANY {
            names.push(format!("{n}"));
            assert!(locks.lock(format!("{n}")).try_now().await.expect("an answer").is_none());
        }
        let before = proxy.turns();
        for name in &names {
            assert!(locks.lock(name.as_str()).try_now().await.expect("an answer").is_none());
        }
        let refused = proxy.turns() - before;
        let before = proxy.turns();
        let mut waiting = vec![first];
        for name in &names {
            waiting.push(tokio::spawn(locks.lock(name.as_str()).into_future()));
            wait_for(&holder, name, 1).await;
        }
        let entered = proxy.turns() - before;
        println!("{server:?}: {MANY} - 1 refusals: {refused} round trips; as many places: {entered}");
        // The parked connection speaks once a second, and looks are heartbeats.
        assert!(refused <= MANY + 3, "{refused} round trips for {MANY} refusals");
        assert!(entered <= 2 * MANY + 6, "{entered} round trips for {MANY} places");
        for guard in guards {
            guard.release().await.expect("held");
        }
        for one in waiting {
            one.await.expect("no panic").expect("its turn").release().await.expect("held");
        }
    }
}

/// Ten and three hundred waiters of one client look alike to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_heartbeat_serves_all_waiters() {
    for server in servers().await {
        let (holder, (proxy, locks)) = (connect(server, "alike").await, far(server, "alike").await);
        let turns = heartbeats(&holder, &proxy, &locks).await;
        // Each for itself, three hundred would need nine hundred. On a busy machine there are some more than
        // one a second.
        assert!(turns.iter().all(|turns| *turns < 100), "{server:?}: {turns:?} round trips in four seconds");
    }
}

/// A waiter that the network has cut off is granted the lock, as it has shown heartbeats, and does not come
/// for it. That lease is short, and then the next one's turn comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grant_of_one_that_is_gone_lapses() {
    for server in servers().await {
        let (one, (proxy, two), three) =
            (connect(server, "gone").await, far(server, "gone").await, connect(server, "gone").await);
        let guard = one.lock("a").await.expect("a free lock");
        let gone = tokio::spawn(two.lock("a").into_future());
        wait_for(&one, "a", 1).await;
        let waiting = tokio::spawn(three.lock("a").into_future());
        wait_for(&one, "a", 2).await;
        can_be_granted(server, "gone", 2).await;
        proxy.cut();
        gone.abort();
        let released = Instant::now();
        guard.release().await.expect("held");
        let status = one.inspect("a").await.expect("an answer");
        assert_eq!(status.holders.len(), 1, "the release has granted it: {status:?}");
        assert!(status.holders[0].ttl_left <= Duration::from_secs(3), "for a moment: {status:?}");
        let next = waiting.await.expect("no panic").expect("its turn");
        let waited = released.elapsed();
        println!("{server:?}: the next one has it after {waited:?}");
        assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(8), "{waited:?}");
        next.release().await.expect("held");
    }
}

/// One that leaves the queue passes on what a release has granted to it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grant_of_one_that_gives_up_passes_on() {
    for server in servers().await {
        let (one, two, three) =
            (connect(server, "given").await, connect(server, "given").await, connect(server, "given").await);
        let mut longest = Duration::ZERO;
        for turn in 0..12_u64 {
            let guard = one.lock("a").await.expect("a free lock");
            let leaving = tokio::spawn(two.lock("a").into_future());
            wait_for(&one, "a", 1).await;
            let waiting = tokio::spawn(three.lock("a").into_future());
            wait_for(&one, "a", 2).await;
            let released = Instant::now();
            let releasing = tokio::spawn(guard.release());
            tokio::time::sleep(Duration::from_micros(turn * 300)).await;
            leaving.abort();
            releasing.await.expect("no panic").expect("held");
            // It may have it by now: then its guard is dropped.
            drop(leaving.await);
            waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
            longest = longest.max(released.elapsed());
        }
        println!("{server:?}: the longest wait behind one that gave up: {longest:?}");
        assert!(longest < Duration::from_millis(2500), "{longest:?}");
    }
}

/// Many clients on few names, some of whom leave the queue: nobody is lost, and nobody holds beside another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_lost_in_a_crowd() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(connect(&server, "crowd").await);
        }
        let longest = crowd(clients, 80).await;
        assert!(longest < Duration::from_secs(6), "{release}: {longest:?}");
    }
}
