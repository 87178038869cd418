//! Turns that nobody uses are taken away.
//!
//! The task that has a turn may be one of a runtime that is not driven any more, or its future may be kept
//! without being polled. The others of its name must not wait for that. So while anybody waits, the keeper
//! looks at all turns from time to time. The queue only saves requests: a task whose turn was taken away
//! while it claims the lock goes on at the server, and so does the next.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::pulse::Seen;
use super::queues::{LocalQueues, Queue};
use crate::system::KEEPER;
use crate::{Clock, LockName, Moment};

/// A turn that has not been picked up after this time goes to the next.
const PICKED_UP: Duration = Duration::from_millis(100);
/// A claim that was not polled for this time is woken up. If it is not polled for this time again, its turn
/// goes to the next.
const POLLED: Duration = Duration::from_secs(1);

/// What a look at a queue has found.
enum Found {
    Nothing,
    /// The turn was given long ago, and is still there.
    NotPickedUp,
    /// The claim is to be woken up.
    Quiet,
    /// It was woken up, and did nothing.
    Unused,
}

impl<T> Queue<T> {
    fn look(&mut self, now: Moment) -> Found {
        match &self.given {
            Some((since, delivery)) if delivery.is_given() => {
                return if now.since(*since) >= PICKED_UP { Found::NotPickedUp } else { Found::Nothing };
            }
            _ => self.given = None,
        }
        let polls = self.pulse.polls();
        if self.pulse.is_held() || self.waiters.is_empty() || polls != self.seen.polls {
            self.seen = Seen { polls, since: now, woken: false };
            return Found::Nothing;
        }
        if now.since(self.seen.since) < POLLED {
            return Found::Nothing;
        }
        let woken = std::mem::replace(&mut self.seen, Seen { polls, since: now, woken: true }).woken;
        if woken { Found::Unused } else { Found::Quiet }
    }
}

impl<T: Send + 'static> LocalQueues<T> {
    /// Looks at all turns from now on, as long as anybody waits.
    pub(super) fn begin_to_watch(self: &Arc<Self>, clock: &Clock) {
        // Without a keeper there is no client.
        let Ok(keeper) = KEEPER.get() else { return };
        let (queues, clock) = (Arc::downgrade(self), clock.clone());
        drop(keeper.spawn(async move { watch(&queues, &clock).await }));
    }

    /// Takes away the turns that nobody uses. False: nobody waits, so there is nothing to watch.
    fn look_at_all(self: &Arc<Self>, now: Moment) -> bool {
        let (mut late, mut quiet, mut unused) = (Vec::new(), Vec::new(), Vec::new());
        let goes_on = {
            let mut names = self.names();
            let mut goes_on = false;
            for (name, queue) in &mut names.queues {
                goes_on |= !queue.waiters.is_empty() || queue.given.is_some();
                match queue.look(now) {
                    Found::Nothing => (),
                    Found::NotPickedUp => late.extend(queue.given.take()),
                    Found::Quiet => quiet.push(Arc::clone(&queue.pulse)),
                    Found::Unused => unused.push((LockName::clone(name), queue.turn)),
                }
            }
            names.watched = goes_on;
            goes_on
        };
        // Outside of the lock, which all of them take.
        for (_, delivery) in late {
            drop(delivery.take_back());
        }
        for pulse in quiet {
            pulse.wake();
        }
        for (name, turn) in unused {
            self.pass_on(&name, turn);
        }
        goes_on
    }
}

async fn watch<T: Send + 'static>(queues: &Weak<LocalQueues<T>>, clock: &Clock) {
    loop {
        clock.sleep(PICKED_UP).await;
        let Some(queues) = queues.upgrade() else { return };
        if !queues.look_at_all(clock.now()) {
            return;
        }
    }
}
