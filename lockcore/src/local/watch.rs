//! Turns that nobody uses are taken away.
//!
//! The task that has a turn may be one of a runtime that is not driven any more, or its future may be kept
//! without being polled. The others of its name must not wait for that. So while anybody waits, the keeper
//! looks at all turns from time to time. The queue only saves requests: a task whose turn was taken away
//! while it claims the lock goes on at the server, and so does the next.
//!
//! There may be many tasks that do not run. While nobody takes a turn that is free, more and more of them are
//! woken at once.
//!
//! A task that holds the lock for longer than a slice loses its turn, too, and keeps the lock. The next task
//! then takes a place in the queue of the server, as a task of another process would.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::queues::{ClaimTurn, LocalQueues, Names};
use super::slot::{Found, PICKED_UP, POLLED};
use crate::system::KEEPER;
use crate::{Clock, LockName, Moment};

/// The pause after a look is at least so many times as long as the look.
const PAUSE: u32 = 4;

/// The longest of these pauses. No more waiters are woken meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl LocalQueues {
    /// Looks at all turns from now on, as long as anybody waits.
    pub(super) fn begin_to_watch(self: &Arc<Self>) {
        // Without a keeper there is no client.
        let Ok(keeper) = KEEPER.get() else { return };
        let (queues, clock) = (Arc::downgrade(self), self.clock.clone());
        drop(keeper.spawn(async move { watch(&queues, &clock).await }));
    }

    /// Takes away the turns that nobody uses, and wakes more of those who wait for one that is free. Returns when
    /// to look again; `None`: nobody waits, so there is nothing to watch.
    pub(super) fn look_at_all(self: &Arc<Self>, now: Moment, turns: &mut u64) -> Option<Moment> {
        let (mut quiet, mut over, mut woken, mut spare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let next = {
            let mut names = self.names();
            // While turns come and go, this looks often, so that nobody has to wake the keeper for a turn.
            let busy = std::mem::replace(turns, names.last) != names.last;
            let mut next = now.after(if busy { PICKED_UP } else { POLLED });
            let Names { slots, watched, last, .. } = &mut *names;
            watched.retain(|name| {
                let Some(slot) = slots.get_mut(name).filter(|slot| slot.is_waited_for()) else {
                    return false;
                };
                match slot.look(now) {
                    Found::Nothing(by) => next = next.min(by),
                    Found::Woken(by, afterwards) => {
                        next = next.min(by);
                        woken.push(afterwards);
                    }
                    Found::Over => {
                        *last += 1;
                        let (pulse, lock) = slot.take(*last, now);
                        spare.extend(lock.map(|lock| (lock, ClaimTurn::new(self, name, *last, pulse))));
                    }
                    Found::Quiet(pulse) => quiet.push(pulse),
                    Found::PassOn => over.push((LockName::clone(name), slot.turn)),
                }
                true
            });
            let goes_on = !watched.is_empty();
            names.looks_at = goes_on.then_some(next);
            names.looks_at
        };
        // Outside of the mutex, which all of them take.
        for afterwards in woken {
            afterwards.run();
        }
        for (lock, turn) in spare {
            lock.release(Arc::new(turn));
        }
        for pulse in quiet {
            pulse.wake();
        }
        for (name, turn) in over {
            self.pass_on(&name, turn);
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
        let queues = LocalQueues::new(Sharing::Slices, clock.clone());
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
