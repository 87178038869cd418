//! Releases and renewals of a client, with a server whose answers a test chooses.

mod copies;
mod given_up;
mod renewals;
mod wakers;

use std::collections::{HashSet, VecDeque};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::book;
use crate::life::BEGUN;
use crate::system::lock;
use crate::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Locks, Loss,
    MemoryLock, Moment, Released, Renewal, Requirement, Result, TestClock,
};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server that answers releases as a test says, each after a pause, and as a usual one afterwards.
#[derive(Debug, Default)]
struct Chosen {
    inner: MemoryLock,
    answers: Mutex<VecDeque<(Duration, Released)>>,
    acquires: AtomicU32,
    releases: AtomicU32,
    /// Whether the connections never end.
    stays: AtomicBool,
    /// How often somebody listened for a loss.
    listened: AtomicU32,
    /// How often a grant is still to be doubted.
    doubts: AtomicU32,
    /// The clock, if leases end while somebody begins to listen.
    overruns: Mutex<Option<TestClock>>,
    /// Whether requests for locks are lost.
    loses: AtomicBool,
    /// Whether requests for locks are repeated, so that a copy of them may come later.
    repeats: AtomicBool,
    /// The claim whose request was repeated last.
    repeated: Mutex<Option<Claim>>,
    /// Names whose renewals have no answer.
    hung: Mutex<HashSet<LockName>>,
    /// How many renewals were asked for.
    renewals: AtomicU32,
    /// Whether renewals fail at once.
    refuses: AtomicBool,
}

#[async_trait]
impl DistributedLock for Chosen {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().promising([Requirement::LossPush])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.acquires.fetch_add(1, Ordering::SeqCst);
        if self.loses.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unreachable, "the request was lost"));
        }
        if self.repeats.load(Ordering::SeqCst) {
            claim.note_in_doubt();
            *lock(&self.repeated) = Some(claim.clone());
        }
        self.inner.acquire(claim).await
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        if grants.iter().any(|grant| lock(&self.hung).contains(grant.claim().name())) {
            std::future::pending::<()>().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            let refused = || Error::new(ErrorKind::Unreachable, "no connection");
            return grants.iter().map(|_| Renewal::Unknown(refused())).collect();
        }
        self.inner.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        let chosen = lock(&self.answers).pop_front();
        let Some((pause, answer)) = chosen else { return self.inner.release(claim).await };
        tokio::time::sleep(pause).await;
        Ok(answer)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.inner.force_release(name).await
    }

    async fn lost(&self, _: &Grant) {
        self.listened.fetch_add(1, Ordering::SeqCst);
        if let Some(clock) = lock(&self.overruns).take() {
            clock.advance(LEASE);
            return;
        }
        std::future::pending::<()>().await;
    }

    async fn doubted(&self, _: &Grant) {
        let left = self.doubts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn close(&self) {
        if self.stays.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

fn chosen(answers: impl IntoIterator<Item = (Duration, Released)>) -> (Arc<Chosen>, Locks) {
    let server = Arc::new(Chosen { answers: Mutex::new(answers.into_iter().collect()), ..Chosen::default() });
    let locks = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    (server, locks)
}

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_release_that_finds_nothing_says_lost() {
    let (_, locks) = chosen([(millis(20), Released::NotHeld)]);
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_release_in_doubt_is_one_where_the_lock_was_held() {
    // One answer is for the keeper, which releases what was held for too long.
    let (_, locks) = chosen([(Duration::ZERO, Released::InDoubt); 3]);
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    guard.release().await.expect("it was held until then");
    let lost = locks.lock("b").ttl(LEASE).max_hold(millis(10)).await.unwrap();
    lost.lost().await;
    assert_eq!(lost.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_lease_that_ended_by_itself_was_not_taken() {
    let clock = TestClock::new();
    let inner = MemoryLock::with_clock(clock.clock());
    let server = Chosen { inner, overruns: Mutex::new(Some(clock)), ..Chosen::default() };
    let guard = Locks::new(Arc::new(server)).unwrap().lock("a").ttl(LEASE).await.unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
}

#[tokio::test]
async fn a_drop_that_finds_nothing_is_not_repeated() {
    let (server, locks) = chosen([(millis(20), Released::NotHeld)]);
    drop(locks.lock("a").ttl(LEASE).await.unwrap());
    locks.close().await.unwrap();
    assert_eq!(server.releases.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_server_is_asked_for_a_lock_that_a_task_of_this_process_holds() {
    let (server, locks) = chosen([]);
    let other = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    for (client, acquires) in [(&locks, 2), (&other, 3)] {
        assert!(client.lock("a").try_now().await.unwrap().is_none(), "it is held");
        assert_eq!(server.acquires.load(Ordering::SeqCst), acquires);
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_caller_that_fails_again_and_again_is_slowed_down() {
    let (server, locks) = chosen([]);
    server.loses.store(true, Ordering::SeqCst);
    // None of these releases ends: the server must not have lost the request only to carry it out later.
    for _ in 0..=book::MANY {
        locks.lock("a").ttl(LEASE).try_now().await.unwrap_err();
    }
    let start = Moment::now();
    locks.lock("a").ttl(LEASE).try_now().await.unwrap_err();
    assert!(Moment::now().since(start) >= BEGUN);
    server.loses.store(false, Ordering::SeqCst);
    drop(locks.lock("a").ttl(LEASE).try_now().await.unwrap().expect("it is free"));
}

#[tokio::test]
async fn most_of_the_time_of_a_close_is_for_the_releases() {
    let (_, locks) = chosen([(millis(700), Released::Released)]);
    drop(locks.lock("a").ttl(LEASE).await.unwrap());
    locks.close_within(Duration::from_secs(4)).await.expect("the answer came in time");
}

#[tokio::test]
async fn a_close_waits_no_longer_than_it_may() {
    let (server, locks) = chosen([(LEASE, Released::Released), (LEASE, Released::Released)]);
    drop(locks.lock("a").ttl(LEASE).await.unwrap());
    let began = Moment::now();
    let limit = millis(500);
    locks.close_within(limit).await.unwrap_err();
    // Twelve times the limit would be six seconds.
    assert!(Moment::now().since(began) < limit * 8);
    assert!(server.releases.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn a_close_tells_releases_and_connections_apart() {
    let (server, locks) = chosen([]);
    server.stays.store(true, Ordering::SeqCst);
    let error = locks.close_within(millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert!(error.to_string().contains("the connections have not ended"), "{error}");
}

#[tokio::test]
async fn a_short_lease_beside_a_long_one_is_renewed_in_time() {
    let (_, locks) = chosen([]);
    let long = locks.lock("long").ttl(LEASE * 60).await.unwrap();
    // The sweep sleeps until the long one is due.
    tokio::time::sleep(millis(300)).await;
    let ttl = Duration::from_secs(3);
    let short = locks.lock("short").ttl(ttl).await.unwrap();
    tokio::time::sleep(ttl * 3 / 2).await;
    assert!(short.is_held() && long.is_held());
}

#[tokio::test]
async fn a_short_hold_listens_for_no_loss() {
    let (server, locks) = chosen([]);
    // A hold may take longer than the pause before listening, but not all of them do.
    for _ in 0..20 {
        let guard = locks.lock("a").ttl(LEASE).await.unwrap();
        tokio::time::sleep(millis(10)).await;
        guard.release().await.unwrap();
        assert_eq!(locks.stats().held, 0, "what was released is not renewed");
    }
    assert!(server.listened.load(Ordering::SeqCst) < 20);
    let held = locks.lock("a").ttl(LEASE).await.unwrap();
    let listened = server.listened.load(Ordering::SeqCst);
    while server.listened.load(Ordering::SeqCst) == listened {
        tokio::time::sleep(millis(5)).await;
    }
    assert!(held.is_held());
}

#[tokio::test]
async fn after_a_close_nothing_is_renewed() {
    let (_, locks) = chosen([]);
    let guard = locks.lock("a").ttl(millis(600)).await.unwrap();
    let stats = locks.clone();
    locks.close().await.unwrap();
    guard.lost().await;
    assert_eq!(stats.stats().renewals, 0);
}

#[tokio::test]
async fn a_doubt_is_settled_by_a_renewal_at_once() {
    let (server, locks) = chosen([]);
    server.doubts.store(1, Ordering::SeqCst);
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    let began = Moment::now();
    while locks.stats().renewals == 0 {
        assert!(Moment::now().since(began) < LEASE / 4, "the usual renewal would be later");
        tokio::time::sleep(millis(5)).await;
    }
    assert!(guard.is_held());
}

/// Drops a guard on a runtime that nobody drives afterwards.
fn dropped_without_a_driver(locks: &Locks) -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(locks.lock("a").ttl(LEASE).into_future()).unwrap();
    let inside = runtime.enter();
    drop(guard);
    drop(inside);
    runtime
}

#[tokio::test]
async fn the_keeper_releases_what_a_runtime_does_not_begin() {
    let (server, locks) = chosen([]);
    let dropping = locks.clone();
    let undriven = std::thread::spawn(move || dropped_without_a_driver(&dropping)).join().unwrap();
    let next = locks.lock("a").wait(LEASE / 4).await.expect("it is free long before the lease ends");
    assert_eq!(server.releases.load(Ordering::SeqCst), 1);
    next.release().await.unwrap();
    std::thread::spawn(move || drop(undriven)).join().unwrap();
}

#[tokio::test]
async fn the_keeper_believes_a_server_that_says_not_held() {
    let (server, locks) = chosen([(millis(1), Released::NotHeld)]);
    let dropping = locks.clone();
    let undriven = std::thread::spawn(move || dropped_without_a_driver(&dropping)).join().unwrap();
    while server.releases.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(millis(5)).await;
    }
    // A repetition would come within a tenth of a second.
    tokio::time::sleep(millis(700)).await;
    assert_eq!(server.releases.load(Ordering::SeqCst), 1);
    std::thread::spawn(move || drop(undriven)).join().unwrap();
}

#[tokio::test]
async fn a_release_that_has_begun_has_a_second() {
    let (server, locks) = chosen([(millis(400), Released::Released)]);
    drop(locks.lock("a").ttl(LEASE).await.unwrap());
    locks.close().await.unwrap();
    assert_eq!(server.releases.load(Ordering::SeqCst), 1, "the keeper did not ask as well");
}

#[tokio::test]
async fn a_close_does_not_wait_for_a_claim_that_was_denied_three_times() {
    let (server, locks) = chosen([]);
    server.loses.store(true, Ordering::SeqCst);
    locks.lock("a").ttl(LEASE).try_now().await.unwrap_err();
    locks.clone().close().await.expect("it was denied often enough");
    let asked = server.releases.load(Ordering::SeqCst);
    assert!(asked >= 3, "asked {asked} times");
    tokio::time::sleep(millis(1500)).await;
    // One may have been under way.
    assert!(server.releases.load(Ordering::SeqCst) <= asked + 1, "nothing is repeated after a close");
}

/// The caller's release finds nothing, since the keeper's has come before it. Or there was nothing to find.
#[tokio::test]
async fn the_answer_to_the_keeper_counts_as_well() {
    let answers = [(Released::Released, true), (Released::InDoubt, true), (Released::NotHeld, false)];
    for (keepers, is_released) in answers {
        let (server, locks) = chosen([(millis(1500), Released::NotHeld), (millis(10), keepers)]);
        let guard = locks.lock("a").ttl(LEASE).await.unwrap();
        let answer = guard.release().await;
        assert_eq!(server.releases.load(Ordering::SeqCst), 2, "the keeper asked after a second");
        assert_eq!(
            answer.map_err(|error| error.kind()),
            if is_released { Ok(()) } else { Err(ErrorKind::Lost) }
        );
    }
}

#[tokio::test]
async fn a_release_after_the_deadline_is_sent_all_the_same() {
    let clock = crate::TestClock::new();
    let inner = MemoryLock::with_clock(clock.clock());
    let server = Arc::new(Chosen { inner, ..Chosen::default() });
    lock(&server.answers).push_back((Duration::ZERO, Released::Released));
    let locks = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    clock.advance(LEASE);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(server.releases.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_closed_client_keeps_no_backend() {
    let (server, locks) = chosen([]);
    server.repeats.store(true, Ordering::SeqCst);
    let guard = locks.lock("a").ttl(LEASE * 60).await.unwrap();
    // The keeper sleeps until the first renewal.
    tokio::time::sleep(millis(200)).await;
    guard.release().await.unwrap();
    locks.close().await.unwrap();
    let began = Moment::now();
    while Arc::strong_count(&server) > 1 {
        assert!(Moment::now().since(began) < LEASE / 4, "the keeper has it still");
        tokio::time::sleep(millis(5)).await;
    }
}
