//! Releases that are repeated: for claims whose requests may arrive late, and by the keeper.

use super::*;
use crate::background::caller_release::CallerRelease;
use crate::background::releases::{AcquireStatus, Releases, longest_pause};
use crate::system::KEEPER;
use crate::telemetry::Telemetry;
use crate::{Mode, Wait};

fn claim(ttl: Duration) -> Claim {
    Claim::new(LockName::new("a").unwrap(), Mode::Exclusive, ttl, Wait::No, "test".into())
}

/// The releases of a client of this server.
fn releases(server: &Arc<Chosen>) -> Arc<Releases> {
    let backend = Arc::clone(server) as Arc<dyn DistributedLock>;
    Releases::new(&backend, &Telemetry::new("test"), &KEEPER.get().unwrap())
}

/// Waits until something is so, for a quarter of a lease at most.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Moment::now();
    while !is_so() {
        assert!(Moment::now().since(began) < LEASE / 4, "{what}");
        tokio::time::sleep(millis(5)).await;
    }
}

#[tokio::test]
async fn what_a_late_copy_of_a_request_takes_is_released() {
    let (server, locks) = chosen([]);
    server.repeats.store(true, Ordering::SeqCst);
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    let claim = guard.grant().claim().clone();
    guard.release().await.unwrap();
    server.inner.acquire(&claim).await.unwrap().expect("the copy finds the lock free");
    let other = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    let next = other.lock("a").wait(LEASE / 4).await;
    assert!(next.expect("it is free long before the lease of the copy ends").is_held());
}

#[tokio::test]
async fn what_a_late_copy_of_a_refused_request_takes_is_released() {
    let (server, locks) = chosen([]);
    let other = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap();
    let held = other.lock("a").ttl(LEASE).await.unwrap();
    server.repeats.store(true, Ordering::SeqCst);
    assert!(locks.lock("a").ttl(LEASE).try_now().await.unwrap().is_none());
    let claim = lock(&server.repeated).take().expect("it was repeated");
    held.release().await.unwrap();
    server.inner.acquire(&claim).await.unwrap().expect("the copy finds the lock free");
    let next = other.lock("a").wait(LEASE / 4).await;
    assert!(next.expect("it is free long before the lease of the copy ends").is_held());
}

#[tokio::test]
async fn copies_are_expected_until_their_lease_has_ended() {
    let clock = TestClock::new();
    let inner = MemoryLock::with_clock(clock.clock());
    let server = Arc::new(Chosen { inner, ..Chosen::default() });
    let releases = releases(&server);
    let claim = claim(LEASE).with_clock(clock.clock());
    releases.watch_for_copies(&claim);
    assert_eq!(releases.copies(), 0, "its requests had answers");
    claim.note_in_doubt();
    releases.watch_for_copies(&claim);
    assert_eq!(releases.copies(), 1);
    // In steps that are together shorter than the lease.
    let released_again = || {
        clock.advance(millis(20));
        server.releases.load(Ordering::SeqCst) > 1
    };
    until("it is released again", released_again).await;
    assert_eq!(releases.copies(), 1, "its lease has not ended");
    let forgotten = || {
        clock.advance(LEASE);
        releases.copies() == 0
    };
    until("no copy is expected any more", forgotten).await;
}

#[tokio::test]
async fn after_a_close_no_copies_are_expected() {
    let (server, _) = chosen([]);
    let releases = releases(&server);
    let claim = claim(LEASE);
    claim.note_in_doubt();
    releases.watch_for_copies(&claim);
    releases.close();
    until("no copy is expected any more", || releases.copies() == 0).await;
}

#[tokio::test]
async fn the_keeper_repeats_the_release_of_a_short_lease() {
    let answers = [Released::NotHeld, Released::NotHeld, Released::Released];
    let (server, _) = chosen(answers.map(|answer| (Duration::ZERO, answer)));
    let releases = releases(&server);
    drop(CallerRelease::new(&releases, claim(Duration::from_secs(1)), AcquireStatus::Unanswered));
    until("all answers were asked for", || server.releases.load(Ordering::SeqCst) == 3).await;
    assert_eq!(releases.drain(&Clock::system().limit(LEASE / 4)).await, 0);
}

#[test]
fn releases_are_repeated_eight_times_in_a_lease_or_every_two_seconds() {
    let seconds = Duration::from_secs;
    assert_eq!(longest_pause(&claim(seconds(80))), seconds(10));
    assert_eq!(longest_pause(&claim(seconds(1))), seconds(2));
}
