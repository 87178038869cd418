//! Claims of all kinds for one name, while replies are lost: what holds the lock together is of one kind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use lockwell_core::backend::KEEP_EVERY;
use lockwell_core::{ErrorKind, LockGuard, Locks, Mode};
use testbed::{Proxy, Redis};
use tokio::task::JoinSet;

use crate::asking::{permit, queued};
use crate::redlock::nodes;
use crate::servers::{client, keys, on_disk, redis, until};

/// Those who hold the lock, by what they know.
#[derive(Default)]
struct Holders {
    now: Mutex<Vec<Mode>>,
    grants: AtomicUsize,
    refused: AtomicUsize,
}

impl Holders {
    /// One more holds it. Panics if it may not be together with the others.
    fn enter(&self, mode: Mode) {
        let mut now = self.now.lock().expect("no panic");
        now.push(mode);
        let together = match mode {
            Mode::Exclusive => 1,
            Mode::Permit { limit } => usize::try_from(limit.get()).expect("a small number"),
            _ => usize::MAX,
        };
        assert!(now.iter().all(|other| *other == mode) && now.len() <= together, "together: {now:?}");
        self.grants.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, mode: Mode) {
        let mut now = self.now.lock().expect("no panic");
        let at = now.iter().position(|other| *other == mode).expect("it has entered");
        now.swap_remove(at);
    }
}

async fn take(locks: &Locks, mode: Mode, wait: Duration) -> lockwell_core::Result<LockGuard> {
    match mode {
        Mode::Permit { limit } => locks.permit("a", limit.get()).wait(wait).await,
        Mode::Shared => locks.read("a").wait(wait).await,
        _ => locks.write("a").wait(wait).await,
    }
}

/// A client behind networks that lose replies, one to each server.
struct Unlucky {
    locks: Locks,
    proxies: Vec<Proxy>,
}

impl Unlucky {
    async fn new(servers: &[Redis], scheme: &str) -> Self {
        let mut proxies = Vec::new();
        for server in servers {
            proxies.push(Proxy::start(server.addr()).await.expect("a proxy"));
        }
        let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        Self { locks: client(&format!("{scheme}://{}", hosts.join(","))).await, proxies }
    }

    /// Claims and releases for this time, and counts the replies that were lost.
    async fn run(self, modes: Vec<Mode>, holders: Arc<Holders>, time: Duration) -> u64 {
        let start = Instant::now();
        while start.elapsed() < time {
            let mode = modes[rand::random_range(0..modes.len())];
            for proxy in &self.proxies {
                // Not at every node at a time.
                if rand::random_ratio(1, 3) {
                    proxy.drop_reply(rand::random_range(1..5));
                }
            }
            let wait = Duration::from_millis(rand::random_range(1..400));
            match take(&self.locks, mode, wait).await {
                Ok(guard) => {
                    holders.enter(mode);
                    tokio::time::sleep(Duration::from_millis(rand::random_range(0..8))).await;
                    assert!(guard.is_held(), "{guard:?}");
                    holders.leave(mode);
                    drop(guard.release().await);
                }
                Err(error) => {
                    let known = [ErrorKind::TimedOut, ErrorKind::Held];
                    let lost = [ErrorKind::Unreachable, ErrorKind::UnknownOutcome];
                    assert!(known.contains(&error.kind()) || lost.contains(&error.kind()), "{error:#}");
                    holders.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.proxies.iter().map(Proxy::dropped_replies).sum()
    }
}

async fn mixed(servers: &[Redis], scheme: &str, modes: &[Mode]) {
    let (holders, mut clients) = (Arc::<Holders>::default(), JoinSet::new());
    for _ in 0..6 {
        let one = Unlucky::new(servers, scheme).await;
        clients.spawn(one.run(modes.to_vec(), Arc::clone(&holders), Duration::from_secs(8)));
    }
    let lost: u64 = clients.join_all().await.iter().sum();
    let (grants, refused) = (holders.grants.load(Ordering::Relaxed), holders.refused.load(Ordering::Relaxed));
    println!("{scheme}: {grants} grants, {refused} claims refused, {lost} replies lost");
    assert!(grants > 20 && refused > 0 && lost > 10, "too little happened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_kind_holds_a_lock() {
    let Some(server) = redis().await else { return };
    let modes = [Mode::Exclusive, Mode::Shared, permit(2), permit(3)];
    mixed(std::slice::from_ref(&server), "redis", &modes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_writers_and_readers_do_not_hold_a_lock_of_redlock_together() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    mixed(&nodes, "redlock", &[Mode::Exclusive, Mode::Shared]).await;
}

/// A permit whose answer is lost, an exclusive lock, and another permit: whoever is first, the others wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_whose_answer_is_lost_and_a_lock() {
    let Some(server) = redis().await else { return };
    let (one, wait) = (client(&server.url()).await, Duration::from_millis(300));
    let mut lost = 0;
    for k in 1..=4 {
        let first = Unlucky::new(std::slice::from_ref(&server), "redis").await;
        first.proxies[0].drop_reply(k);
        let permit_of_first = take(&first.locks, permit(2), Duration::from_secs(5)).await;
        let lock = take(&one, Mode::Exclusive, wait).await;
        let second = take(&one, permit(2), wait).await;
        if let Ok(guard) = &permit_of_first {
            let error = lock.as_ref().expect_err("a permit is held");
            assert!(guard.is_held() && error.kind() == ErrorKind::TimedOut, "{error:#}");
            assert!(second.is_ok(), "two permits");
        }
        assert!(lock.is_err() || second.is_err(), "a lock and a permit");
        lost += first.proxies[0].dropped_replies();
        for guard in [permit_of_first, lock, second].into_iter().flatten() {
            guard.release().await.expect("held");
        }
        until("nothing is left", || keys(&server).is_empty()).await;
    }
    assert!(lost > 0, "nothing was lost");
}

/// The queue is lost while claims of two kinds wait in it: both get their turns, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_two_kinds_outlive_the_loss_of_their_queue() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let holder = one.lock("a").await.expect("a free lock");
    let mut waiting = Vec::new();
    for mode in [Mode::Exclusive, permit(2)] {
        let locks = two.clone();
        waiting.push(tokio::spawn(async move { take(&locks, mode, Duration::from_secs(60)).await }));
        queued(&one, "a", waiting.len()).await;
    }
    server
        .command(&["DEL", "lockwell:\u{1f}queue\u{1f}a", "lockwell:\u{1f}waiters\u{1f}a"])
        .expect("an answer");
    holder.release().await.expect("held");
    let (first, _, others) = select_all(waiting).await;
    let first = first.expect("no panic").expect("its turn comes");
    // Longer than a waiter waits before it asks again.
    tokio::time::sleep(KEEP_EVERY * 2).await;
    assert!(others.iter().all(|other| !other.is_finished()), "two kinds at once");
    first.release().await.expect("held");
    for other in others {
        other.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    }
}
