//! The hand-off of a held lock from one task to the next of the same process.

use std::sync::Arc;
use std::time::Duration;

use crate::background::{Book, Stub};
use crate::life::Left;
use crate::local::{ClaimTurn, HandedLock};
use crate::{Grant, Moment};

/// How often, and until when, the lock of a guard may still be handed on.
#[derive(Debug)]
pub(crate) struct Slice {
    turn: Arc<ClaimTurn>,
    /// How many more times, and until when.
    times: u32,
    until: Moment,
}

impl Slice {
    /// For a lock that was just claimed, if hand-offs are wanted. Otherwise the claim turn is passed on at
    /// once, and the next task claims at the server.
    pub(crate) fn new(turn: Arc<ClaimTurn>, book: &Book, grant: &Grant) -> Option<Self> {
        let (times, until) = slice(&turn, book.has_token_blocks(), grant);
        Self::until(turn, book, grant, times, until)
    }

    /// The same for a lock that may be handed on so many times, until this moment.
    pub(super) fn until(
        turn: Arc<ClaimTurn>,
        book: &Book,
        grant: &Grant,
        times: u32,
        until: Moment,
    ) -> Option<Self> {
        if turn.hand_off(book.has_token_blocks()).is_none() {
            grant.claim().pass_on();
            return None;
        }
        turn.note_held(until);
        Some(Self { turn, times, until })
    }

    /// Gives a lock whose hold has ended, with what is left of its lease, to the next task. If no task takes
    /// it, its claim is returned, and is to be released.
    pub(crate) fn to_next(&self, grant: &Grant, left: Left, stub: Stub) -> Option<Stub> {
        // The backend may have reserved fewer tokens than the claim wants: each task needs its own.
        let is_last = stub.book().has_token_blocks() && grant.token() == grant.last_token();
        if self.times == 0 || is_last || grant.claim().clock().has_passed(self.until) {
            return Some(stub);
        }
        // A transaction that has verified the lock may be open: the release has to wait for it.
        if !grant.hand_on() {
            return Some(stub);
        }
        let grant = grant.successor().renewed(left.sent, left.until);
        offer(&self.turn, stub, grant, self.times - 1, self.until)
    }
}

/// Gives the lock of a task that has left before it was granted to the next task, which takes over its place
/// and its token. If no task takes it, its claim is returned, and is to be released.
pub(crate) fn to_next_claimant(turn: &ClaimTurn, grant: &Grant, stub: Stub) -> Option<Stub> {
    let (times, until) = slice(turn, stub.book().has_token_blocks(), grant);
    stub.pass();
    offer(turn, stub, grant.clone(), times, until)
}

/// How often, and until when, a lock may be handed on that has been granted now.
///
/// A provisional lease is renewed a moment after each hold has begun, so never while short holds follow each
/// other. It is handed on for a third of what is left of it, like a lease that is renewed then.
fn slice(turn: &ClaimTurn, token_blocks: bool, grant: &Grant) -> (u32, Moment) {
    let (times, span) = turn.hand_off(token_blocks).unwrap_or_default();
    let now = grant.claim().clock().now();
    let longest = if grant.is_provisional() { grant.deadline().since(now) / 3 } else { Duration::MAX };
    (times, now.after(span.min(longest)))
}

fn offer(turn: &ClaimTurn, stub: Stub, grant: Grant, times: u32, until: Moment) -> Option<Stub> {
    let lock = HandedLock { stub: Some(stub), grant, times, until };
    turn.offer(lock)?.stub.take()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Context;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::slice;
    use crate::local::{LocalQueues, Sharing, Turn};
    use crate::system::waker;
    use crate::{
        Acquire, Claim, Clock, ErrorKind, FencingToken, Grant, HandOff, LockGuard, LockName, Locks,
        MemoryLock, Mode, Moment, TestClock, Wait,
    };

    const LONG: Duration = Duration::from_secs(60);

    /// A lock that was handed on to the first of two tasks, which did not pick it up.
    struct Offered {
        /// The grant of the task that has handed the lock on.
        before: Grant,
        first: Pin<Box<Acquire>>,
        second: Pin<Box<Acquire>>,
    }

    /// Hands a lock on, in a slice of this time, and waits until the second task gets something. Then the
    /// clock stands still, so that the second one may take its time.
    async fn offered(span: Duration) -> Offered {
        let clock = TestClock::new();
        let server = Arc::new(MemoryLock::with_clock(clock.clock()));
        let locks = Locks::new(server).unwrap().hand_off(1000, span);
        let held = locks.lock("a").await.unwrap();
        let before = held.grant().clone();
        let (first, _) = waits(&locks);
        let (second, woken) = waits(&locks);
        drop(held);
        clock.advance(Duration::from_millis(10));
        while !woken.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Offered { before, first, second }
    }

    /// A request that was polled once, and whether it was woken since then.
    fn waits(locks: &Locks) -> (Pin<Box<Acquire>>, Arc<AtomicBool>) {
        let woken = Arc::new(AtomicBool::new(false));
        let notes = Arc::clone(&woken);
        let waker = waker(move || notes.store(true, Ordering::SeqCst));
        let mut request = Box::pin(locks.lock("a").wait(LONG).into_future());
        assert!(request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
        (request, woken)
    }

    /// The lock of a task that waits while this guard is dropped.
    async fn after(locks: &Locks, guard: LockGuard) -> LockGuard {
        let mut next = Box::pin(locks.lock("a").wait(LONG).into_future());
        assert!(next.as_mut().now_or_never().is_none(), "it is held");
        let next = tokio::spawn(next);
        drop(guard);
        next.await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_provisional_lease_is_not_handed_on_to_its_end() {
        let queues = LocalQueues::new(Sharing::Chosen(HandOff::new(1000, LONG)), Clock::system());
        let name = LockName::new("a").unwrap();
        let claim = Claim::new(name, Mode::Exclusive, LONG * 9, Wait::No, "test".into());
        let Ok(Some(Turn::Claim(turn))) = queues.turn(&claim).await else { panic!("nobody has the turn") };
        let now = Moment::now();
        let grant = Grant::new(&claim, FencingToken::new(2000), now);
        assert!(slice(&turn, true, &grant).1 >= now.after(LONG));
        let left = Duration::from_secs(3);
        let (times, until) = slice(&turn, true, &grant.provisional(now.after(left)));
        assert!(times == 1000 && until < now.after(left / 2), "{times} times, for {:?}", until.since(now));
    }

    #[test]
    fn a_provisional_lease_is_a_whole_one_after_a_renewal() {
        let name = LockName::new("a").unwrap();
        let claim = Claim::new(name, Mode::Exclusive, LONG, Wait::No, "test".into());
        let (now, ends) = (Moment::now(), Moment::now().after(LONG / 20));
        let grant = Grant::new(&claim, FencingToken::new(1), now).provisional(ends);
        // As it is handed on, before it was renewed and after that.
        assert!(grant.successor().renewed(now, ends).is_provisional());
        assert!(!grant.successor().renewed(now, now.after(LONG)).is_provisional());
    }

    #[tokio::test]
    async fn a_lock_that_is_not_picked_up_goes_to_the_next_with_its_token() {
        let Offered { before, first, second } = offered(LONG).await;
        let guard = second.await.unwrap();
        assert_eq!(guard.grant().claim().owner(), before.claim().owner(), "it was not released");
        assert_eq!(guard.token().get(), before.token().get() + 1);
        drop((first, guard));
    }

    #[tokio::test]
    async fn a_lock_on_its_way_is_taken_by_an_earlier_task_that_runs() {
        let Offered { before, mut first, mut second } = offered(LONG).await;
        let guard = first.as_mut().now_or_never().expect("the second one does not run yet").unwrap();
        assert_eq!(guard.grant().claim().owner(), before.claim().owner(), "it was not released");
        assert_eq!(guard.token().get(), before.token().get() + 1);
        assert!(second.as_mut().now_or_never().is_none(), "it is held");
        drop(guard);
        let guard = second.await.unwrap();
        assert_eq!(guard.token().get(), before.token().get() + 2);
    }

    #[tokio::test]
    async fn a_lock_that_is_not_picked_up_in_its_slice_is_released() {
        let Offered { before, first, second } = offered(Duration::from_millis(5)).await;
        let guard = second.await.unwrap();
        assert_ne!(guard.grant().claim().owner(), before.claim().owner(), "others had no turn");
        assert!(guard.token() > before.last_token());
        drop((first, guard));
    }

    /// Two clients of a server with a clock that stands still; the second one has the order of the server.
    fn clients(clock: &TestClock) -> (Locks, Locks) {
        let server = Arc::new(MemoryLock::with_clock(clock.clock()));
        (Locks::new(server.clone()).unwrap(), Locks::new(server).unwrap().server_order())
    }

    /// Drops the guard. The lock goes to the other client, and not to the next task of this one.
    async fn goes_to(other: Pin<Box<Acquire>>, guard: LockGuard, mut next: Pin<Box<Acquire>>) {
        drop(guard);
        let guard = tokio::time::timeout(LONG / 3, other).await.expect("its turn comes").unwrap();
        assert!(next.as_mut().now_or_never().is_none(), "the other client holds it");
        drop(guard);
        drop(next.await.unwrap());
    }

    #[tokio::test]
    async fn others_have_their_turn_after_the_last_hand_off() {
        let (one, two) = clients(&TestClock::new());
        let one = one.hand_off(5, LONG);
        let mut guard = one.lock("a").await.unwrap();
        let (other, _) = waits(&two);
        for times in 0..5 {
            let claim = guard.grant().claim().clone();
            guard = after(&one, guard).await;
            assert_eq!(guard.grant().claim().owner(), claim.owner(), "handed on {times} times only");
        }
        goes_to(other, guard, waits(&one).0).await;
    }

    #[tokio::test]
    async fn others_have_their_turn_after_a_slice_and_one_holder() {
        let clock = TestClock::new();
        let (one, two) = clients(&clock);
        let held = one.lock("a").await.unwrap();
        // Tokens are reserved for those that wait when the next one claims the lock.
        let [(first, _), (second, _), (third, _)] = [(); 3].map(|()| waits(&one));
        drop(held);
        let first = first.await.unwrap();
        let (other, _) = waits(&two);
        let claim = first.grant().claim().clone();
        clock.advance(Duration::from_millis(1));
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(second.grant().claim().owner(), claim.owner(), "it is within the slice");
        clock.advance(Duration::from_millis(1));
        goes_to(other, second, third).await;
    }

    /// Those before it were answered by this process, and the server had confirmed the lock in this slice.
    #[tokio::test]
    async fn the_last_task_of_a_slice_learns_that_the_lock_was_taken_away() {
        let clock = TestClock::new();
        let (one, two) = clients(&clock);
        let span = Duration::from_millis(20);
        let one = one.hand_off(1000, span);
        let held = one.lock("a").await.unwrap();
        let [(first, _), (second, _)] = [(); 2].map(|()| waits(&one));
        let owner = held.grant().claim().owner();
        assert_eq!(two.force_release("a").await.unwrap(), 1);
        let others = two.lock("a").try_now().await.unwrap().expect("it is free");
        held.release().await.expect("it is passed on, within the slice");
        let first = first.await.unwrap();
        assert_eq!(first.grant().claim().owner(), owner, "it was passed on");
        clock.advance(span);
        assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
        others.release().await.expect("it is held");
        drop(second.await.unwrap());
    }

    #[tokio::test]
    async fn a_lock_that_something_depends_on_is_not_handed_on() {
        let locks = Locks::in_memory().hand_off(1000, LONG);
        let mut guard = locks.lock("a").await.unwrap();
        let stale = loop {
            let stale = guard.grant().clone();
            guard = after(&locks, guard).await;
            // On a machine that is busy, it may have come from the server.
            if guard.grant().claim().owner() == stale.claim().owner() {
                break stale;
            }
        };
        assert_eq!(stale.bind().unwrap_err().kind(), ErrorKind::Lost);
        for _ in 0..2 {
            guard.grant().bind().expect("it is held");
        }
        let claim = guard.grant().claim().clone();
        let guard = after(&locks, guard).await;
        assert_ne!(guard.grant().claim().owner(), claim.owner(), "it was handed on");
        let reader = guard.downgrade().await.unwrap();
        reader.grant().bind().expect("it is held");
    }
}
