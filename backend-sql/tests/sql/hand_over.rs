//! A release on PostgreSQL grants the lock to the first who waits for it, in its one statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::Locks;
use testbed::{Postgres, Proxy, if_installed};

use crate::servers::{Kind, client, options, postgres, wait_for};

/// How long a message is under way.
const WAY: Duration = Duration::from_millis(40);

/// A client that is far from the server.
async fn far(table: &str) -> Option<(Proxy, Locks)> {
    let server = postgres().await?;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(Kind::Postgres, &(server.url_via(proxy.addr()) + "?table=" + table)).await;
    Some((proxy, locks))
}

/// From the beginning of the release until the other has the lock: there with the release, and back with the
/// notification.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_takes_one_round_trip() {
    let (Some((near, one)), Some((far, two))) = (far("far").await, far("far").await) else { return };
    let mut shortest = Duration::MAX;
    for (turn, (holder, waiter)) in [(&one, &two), (&two, &one)].repeat(4).into_iter().enumerate() {
        let guard = holder.lock("a").await.expect("a free lock");
        let waiting = tokio::spawn(waiter.lock("a").into_future());
        wait_for(holder, "a", 1).await;
        // Notifications are heard by then.
        tokio::time::sleep(WAY * 8).await;
        let released = Instant::now();
        let releasing = tokio::spawn(guard.release());
        let next = waiting.await.expect("no panic").expect("its turn");
        // The first one is without a delay, and its waiter has not heard anything before it entered.
        if turn > 0 {
            shortest = shortest.min(released.elapsed());
        }
        releasing.await.expect("no panic").expect("held");
        assert!(next.is_held());
        next.release().await.expect("held");
        for proxy in [&near, &far] {
            proxy.delay(WAY);
        }
    }
    println!("{shortest:?} with {WAY:?} each way");
    assert!(shortest >= WAY * 2, "there and back takes so long: {shortest:?}");
    assert!(shortest < WAY * 3, "{shortest:?}");
}

/// What is refused, and what enters the queue, by round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_one_statement_and_a_place_one_more() {
    let Some((proxy, locks)) = far("refused").await else { return };
    let guard = locks.lock("a").await.expect("a free lock");
    assert!(locks.lock("a").try_now().await.expect("an answer").is_none());
    let before = proxy.turns();
    for _ in 0..20 {
        assert!(locks.lock("a").try_now().await.expect("an answer").is_none());
    }
    assert_eq!(proxy.turns() - before, 20, "round trips of 20 refusals");
    guard.release().await.expect("held");
    let before = proxy.turns();
    for _ in 0..20 {
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
    }
    assert_eq!(proxy.turns() - before, 40, "round trips of 20 locks that are taken and released");
}

/// The round trips in four seconds of ten and of three hundred waiters of one client, which is behind the
/// proxy.
pub(crate) async fn heartbeats(holder: &Locks, proxy: &Proxy, locks: &Locks) -> Vec<u64> {
    let mut turns = Vec::new();
    for many in [10_usize, 300] {
        let guard = holder.lock("a").ttl(Duration::from_mins(1)).await.expect("a free lock");
        let waiting: Vec<_> = (0..many).map(|_| tokio::spawn(locks.lock("a").into_future())).collect();
        wait_for(holder, "a", many).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = proxy.turns();
        tokio::time::sleep(Duration::from_secs(4)).await;
        turns.push(proxy.turns() - before);
        // All of them leave at once.
        let before = proxy.turns();
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        wait_for(holder, "a", 0).await;
        println!("{many}: {} round trips for leaving", proxy.turns() - before);
        guard.release().await.expect("held");
    }
    turns
}

/// Ten and three hundred waiters of one client look alike to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_heartbeat_serves_all_waiters() {
    let Some((proxy, locks)) = far("alike").await else { return };
    let holder = client(Kind::Postgres, &(postgres().await.expect("it runs").url() + "?table=alike")).await;
    let turns = heartbeats(&holder, &proxy, &locks).await;
    assert!(turns.iter().all(|turns| *turns < 16), "{turns:?} round trips in four seconds");
}

/// Many clients on few names, some of whom leave the queue: nobody is lost, and nobody holds beside another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_lost_in_a_crowd() {
    let Some(server) = postgres().await else { return };
    let url = server.url() + "?table=crowd";
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(client(Kind::Postgres, &url).await);
    }
    let longest = crowd(clients, 150).await;
    assert!(longest < Duration::from_secs(4), "{longest:?}");
}

/// Each client takes so many turns. Returns the longest wait.
pub(crate) async fn crowd(clients: Vec<Locks>, turns: usize) -> Duration {
    let held: Arc<[AtomicU64; 3]> = Arc::default();
    let mut tasks = Vec::new();
    let began = Instant::now();
    for (n, locks) in clients.into_iter().enumerate() {
        let held = Arc::clone(&held);
        tasks.push(tokio::spawn(async move {
            let (mut longest, mut last) = (Duration::ZERO, [0; 3]);
            for turn in 0..turns {
                let at = (n + turn) % 3;
                let began = Instant::now();
                let request = locks.lock(format!("name {at}")).into_future();
                let guard = if (n + turn).is_multiple_of(10) {
                    tokio::time::timeout(Duration::from_millis(3), request).await.ok()
                } else {
                    Some(request.await)
                };
                let Some(guard) = guard else { continue };
                let guard = guard.expect("its turn");
                longest = longest.max(began.elapsed());
                assert!(guard.token().get() > last[at], "tokens rise");
                last[at] = guard.token().get();
                assert_eq!(held[at].fetch_add(1, Ordering::SeqCst), 0, "two hold one lock");
                tokio::task::yield_now().await;
                held[at].fetch_sub(1, Ordering::SeqCst);
                guard.release().await.expect("held");
            }
            longest
        }));
    }
    let mut longest = Duration::ZERO;
    for task in tasks {
        longest = longest.max(task.await.expect("no task fails"));
    }
    println!("the longest wait: {longest:?}, all: {:?}", began.elapsed());
    longest
}

/// Also the first hand-over of a connection, which prepares its statements. The text of a message that fails
/// has the owner id in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_log_has_nothing_of_it() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    let log = || std::fs::read_to_string(server.folder().join("log")).expect("a log");
    for durability in ["disk", "grace&longest_ttl=4s"] {
        let url = format!("{}?table=quiet_{}&durability={durability}", server.url(), &durability[..4]);
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        // Whoever makes the tables may have errors.
        one.lock("a").through_grace().await.expect("a free lock").release().await.expect("held");
        let before = log().len();
        for (holder, waiter) in [(&one, &two), (&two, &one)].repeat(3) {
            let guard = holder.lock("a").await.expect("a free lock");
            let waiting = tokio::spawn(waiter.lock("a").into_future());
            wait_for(holder, "a", 1).await;
            guard.release().await.expect("held");
            waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        }
        let told = log().split_off(before);
        assert!(!told.contains("ERROR") && !told.contains("STATEMENT"), "{told}");
    }
}
