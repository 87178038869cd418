//! Releases that are repeated: for claims whose requests may arrive late, and by the keeper.

use super::*;
use crate::background::Book;
use crate::life::Act;
use crate::{Mode, Wait};

fn claim(ttl: Duration) -> Claim {
    Claim::new(LockName::new("a").unwrap(), Mode::Exclusive, ttl, Wait::No, "test".into())
}

/// The claims of a client of this server.
fn book(server: &Arc<Chosen>) -> Arc<Book> {
    Book::start(Arc::clone(server) as Arc<dyn DistributedLock>).unwrap()
}

/// The server has confirmed the release of this claim.
fn released(book: &Arc<Book>, claim: &Claim) {
    let stub = book.adopt(claim);
    book.step(claim, Act::Released);
    drop(stub);
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
    let book = book(&server);
    let claim = claim(LEASE).with_clock(clock.clock());
    released(&book, &claim);
    assert_eq!(book.copies(), 0, "its requests had answers");
    claim.note_in_doubt();
    released(&book, &claim);
    assert_eq!(book.copies(), 1);
    // In steps that are together shorter than the lease.
    let released_again = || {
        clock.advance(millis(20));
        server.releases.load(Ordering::SeqCst) > 1
    };
    until("it is released again", released_again).await;
    assert_eq!(book.copies(), 1, "its lease has not ended");
    let forgotten = || {
        clock.advance(LEASE);
        book.copies() == 0
    };
    until("no copy is expected any more", forgotten).await;
}

#[tokio::test]
async fn after_a_close_no_copies_are_expected() {
    let (server, _) = chosen([]);
    let book = book(&server);
    let claim = claim(LEASE);
    claim.note_in_doubt();
    released(&book, &claim);
    book.close_releases();
    until("no copy is expected any more", || book.copies() == 0).await;
}

#[tokio::test]
async fn the_keeper_repeats_the_release_of_a_short_lease() {
    let answers = [Released::NotHeld, Released::NotHeld, Released::Released];
    let (server, _) = chosen(answers.map(|answer| (Duration::ZERO, answer)));
    let book = book(&server);
    drop(book.adopt(&claim(Duration::from_secs(1))));
    until("all answers were asked for", || server.releases.load(Ordering::SeqCst) == 3).await;
    assert_eq!(book.drain(&Clock::system().limit(LEASE / 4)).await, 0);
}
