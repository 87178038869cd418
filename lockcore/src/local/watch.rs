//! Turns that nobody uses are taken away.
//!
//! The task that has a turn may be one of a runtime that is not driven any more, or its future may be kept
//! without being polled. The others of its name must not wait for that. So while anybody waits, the keeper
//! looks at all turns from time to time. The queue only saves requests: a task whose turn was taken away
//! while it claims the lock goes on at the server, and so does the next.
//!
//! There may be many tasks that do not run. While one after the other does not pick the turn up, more and
//! more of them are passed over at once.
//!
//! A task that holds the lock for longer than a slice loses its turn, too, and keeps the lock. The next task
//! then takes a place in the queue of the server, as a task of another process would.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::names::{Given, Names, PICKED_UP, Queue};
use super::pulse::Seen;
use super::queues::{LocalQueues, Turn};
use crate::system::KEEPER;
use crate::{Clock, LockName, Moment};

/// A claim that was not polled for this time is woken up. If it is not polled for this time again, its turn
/// goes to the next.
const POLLED: Duration = Duration::from_millis(500);

/// The pause after a look is at least so many times as long as the look.
const PAUSE: u32 = 4;

/// The longest of these pauses. Turns that nobody picks up are not taken back meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What a look at a queue has found.
enum Found {
    /// Nothing to do before this moment.
    Nothing(Moment),
    /// The turn was given too long ago, and is still there.
    NotPickedUp,
    /// The lock is held for longer than its slice.
    SliceOver,
    /// The claim is to be woken up.
    Quiet,
    /// It was woken up, and did nothing.
    Unused,
}

impl<V> Queue<V> {
    fn look(&mut self, now: Moment) -> Found {
        match &self.given {
            Some(given) if !given.delivery.is_settled() => {
                let by = given.since.after(PICKED_UP);
                return if now < by {
                    Found::Nothing(by)
                } else if given.delivery.is_given() {
                    Found::NotPickedUp
                } else {
                    // It is still on its way to the waiter.
                    Found::Nothing(now.after(PICKED_UP))
                };
            }
            _ => self.given = None,
        }
        if self.waiting() == 0 {
            return Found::Nothing(Moment::NEVER);
        }
        if let Some(until) = self.held_until {
            return if now >= until { Found::SliceOver } else { Found::Nothing(until) };
        }
        let polls = self.pulse.polls();
        if polls != self.seen.polls {
            self.seen = Seen { polls, since: now, woken: false };
        }
        let by = self.seen.since.after(POLLED);
        if now < by {
            return Found::Nothing(by);
        }
        let woken = std::mem::replace(&mut self.seen, Seen { polls, since: now, woken: true }).woken;
        if woken { Found::Unused } else { Found::Quiet }
    }
}

impl LocalQueues {
    /// Looks at all turns from now on, as long as anybody waits.
    pub(super) fn begin_to_watch(self: &Arc<Self>, clock: &Clock) {
        // Without a keeper there is no client.
        let Ok(keeper) = KEEPER.get() else { return };
        let (queues, clock) = (Arc::downgrade(self), clock.clone());
        drop(keeper.spawn(async move { watch(&queues, &clock).await }));
    }

    /// Takes away the turns that nobody uses. Returns when to look again; `None`: nobody waits, so there is
    /// nothing to watch.
    pub(super) fn look_at_all(self: &Arc<Self>, now: Moment, turns: &mut u64) -> Option<Moment> {
        let (mut late, mut quiet, mut over) = (Vec::new(), Vec::new(), Vec::new());
        let next = {
            let mut names = self.names();
            // While turns come and go, this looks often, so that nobody has to wake the keeper for a turn.
            let busy = std::mem::replace(turns, names.last()) != names.last();
            let mut next = now.after(if busy { PICKED_UP } else { POLLED });
            let Names { queues, watched, .. } = &mut *names;
            watched.retain(|name| {
                let Some(queue) = queues.get_mut(name) else { return false };
                if queue.waiting() == 0 && queue.given.is_none() {
                    return false;
                }
                match queue.look(now) {
                    Found::Nothing(by) => next = next.min(by),
                    Found::NotPickedUp => late.extend(queue.given.take()),
                    Found::Quiet => quiet.push(Arc::clone(&queue.pulse)),
                    Found::SliceOver | Found::Unused => over.push((LockName::clone(name), queue.turn)),
                }
                true
            });
            let goes_on = !watched.is_empty();
            names.looks_at = goes_on.then_some(next);
            names.looks_at
        };
        // Outside of the mutex, which all of them take.
        for Given { delivery, misses, .. } in late {
            let misses = misses.saturating_add(1);
            match delivery.take_back() {
                Some(Turn::Claim(turn)) => turn.pass_on_after(misses),
                // The lock itself goes to the next as long as its slice lasts.
                Some(Turn::Handed(turn, lock)) if now < lock.until => drop(lock.offer(&turn, misses)),
                turn => drop(turn),
            }
        }
        for pulse in quiet {
            pulse.wake();
        }
        for (name, turn) in over {
            self.pass_on(&name, turn, 0);
        }
        next
    }
}

async fn watch(queues: &Weak<LocalQueues>, clock: &Clock) {
    let mut turns = 0;
    loop {
        let Some(queues) = queues.upgrade() else { return };
        let began = clock.now();
        let Some(next) = queues.look_at_all(began, &mut turns) else { return };
        // The thread of the keeper renews leases, too, and has most of its time for them, however many names
        // there are. A sleep until a moment that has passed would not even let other tasks run. The thread
        // may have had no processor meanwhile, so the pause is short.
        let now = clock.now();
        let pause = (now.since(began) * PAUSE).min(LONGEST_PAUSE);
        if !pause.is_zero() {
            // The clock of a test may stand still from now on.
            let longest = tokio::time::sleep(LONGEST_PAUSE);
            tokio::select! {
                () = clock.sleep_until(now.after(pause)) => (),
                () = longest => (),
            }
        }
        let earlier = queues.look_earlier.notified();
        tokio::select! {
            () = clock.sleep_until(next) => (),
            () = earlier => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Context;

    use futures_util::FutureExt;

    use super::super::sharing::Sharing;
    use super::*;
    use crate::system::waker;
    use crate::{Claim, Mode, TestClock, Wait};

    #[tokio::test]
    async fn a_look_that_takes_long_is_followed_by_a_pause() {
        let test = TestClock::new();
        let clock = test.clock();
        let queues = LocalQueues::new(Sharing::Slices);
        // The keeper does not look.
        queues.names().looks_at = Some(clock.now());
        let claims = [Wait::No, Wait::Forever, Wait::Forever, Wait::Forever].map(|wait| {
            let name = LockName::new("a").unwrap();
            let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(10), wait, "test".into());
            claim.with_clock(clock.clone())
        });
        let turn = queues.turn(&claims[0]).await;
        let woken = Arc::new(AtomicU32::new(0));
        let slow = waker({
            let (woken, test) = (Arc::clone(&woken), test.clone());
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
                test.advance(Duration::from_millis(3));
            }
        });
        let mut tasks: Vec<_> = claims[1..].iter().map(|claim| Box::pin(queues.turn(claim))).collect();
        for task in &mut tasks {
            assert!(task.as_mut().poll(&mut Context::from_waker(&slow)).is_pending());
        }
        drop(turn);
        let weak = Arc::downgrade(&queues);
        let mut watching = pin!(watch(&weak, &clock));
        for looks in 1..=2 {
            assert!(watching.as_mut().now_or_never().is_none(), "two wait");
            // One of them was woken before the looks.
            assert_eq!(woken.load(Ordering::SeqCst), 1 + looks, "nothing else runs between two looks");
            test.advance(Duration::from_millis(3) * PAUSE);
        }
    }
}
