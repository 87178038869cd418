//! The leases of one client, and the task on the keeper thread that renews them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;

use super::caller_release::CallerRelease;
use super::releases::{AcquireStatus, Releases};
use super::renewal::{Batch, Renewer, batches};
use crate::lease::{Advice, Event, HeldLock};
use crate::system::{OwnRuntime, lock};
use crate::telemetry::Telemetry;
use crate::{Claim, Clock, DistributedLock, LeaseState, Loss, Moment};

/// Only for a lock that is held for longer than this does the client listen for losses. Without the pause,
/// each lock would cost two switches between threads.
const LISTEN_AFTER: Duration = Duration::from_millis(50);
/// The pause after a backend has reported a doubt, before it is asked for the next.
const DOUBTED_AGAIN: Duration = Duration::from_millis(100);

/// The leases of one client.
///
/// The task that renews them runs while there are any. It sleeps until the earliest moment at which a lease
/// is due; a new lease wakes it only if it is due earlier, which is rare: so taking and releasing a lock
/// costs no switch between threads.
#[derive(Debug)]
pub(super) struct LeaseSet {
    backend: Arc<dyn DistributedLock>,
    clock: Clock,
    keeper: OwnRuntime,
    releases: Arc<Releases>,
    renewer: Renewer,
    table: Mutex<Table>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Entry {
    held: Arc<HeldLock>,
    /// When to begin to listen for losses and doubts that the backend reports.
    listens: Option<Moment>,
}

#[derive(Debug)]
struct Table {
    leases: Slab<Entry>,
    /// When the task wakes up next; `None` while it does not run.
    wakes: Option<Moment>,
    closed: bool,
}

/// What a sweep over the leases has found.
#[derive(Default)]
struct Swept {
    due: Batch,
    /// Claims of holds that have reached a limit.
    over: Vec<Claim>,
    changes: Vec<(Arc<HeldLock>, LeaseState)>,
    listening: Batch,
    /// When to sweep next; `None` when no lease is left.
    wakes: Option<Moment>,
}

/// Renews leases for as long as there are any, from the moment at which the first is due. It does not keep
/// the client, and so the backend, while it sleeps: a client that nobody uses any more ends at once.
///
/// It does not look before that moment: a lock that is held for a short time would be gone already, this
/// would end, and the next lock would start it again.
async fn run(leases: &Weak<LeaseSet>, clock: &Clock, changed: &Notify, mut wakes: Moment) {
    loop {
        tokio::select! {
            () = clock.sleep_until(wakes) => (),
            () = changed.notified() => (),
        }
        let Some(leases) = leases.upgrade() else { return };
        let swept = leases.sweep();
        let next = swept.wakes;
        leases.act(swept);
        drop(leases);
        // If a sweep takes longer than the time until the next one, the sleep ends at once, and the renewals
        // that have begun here would never run.
        tokio::task::yield_now().await;
        match next {
            Some(next) => wakes = next,
            None => return,
        }
    }
}

impl LeaseSet {
    pub(super) fn new(
        backend: &Arc<dyn DistributedLock>,
        telemetry: &Arc<Telemetry>,
        keeper: &OwnRuntime,
        releases: &Arc<Releases>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock: backend.clock(),
            renewer: Renewer::new(backend, telemetry),
            backend: Arc::clone(backend),
            keeper: keeper.clone(),
            releases: Arc::clone(releases),
            table: Mutex::new(Table { leases: Slab::new(), wakes: None, closed: false }),
            changed: Arc::default(),
        })
    }

    /// Begins to renew a lease. `loss_push`: the backend reports losses.
    pub(super) fn insert(self: &Arc<Self>, held: &Arc<HeldLock>, loss_push: bool) {
        // A grant that was under way for long may be due at once; the task then wakes at once.
        // The clock of a test may stand still.
        let pause = if self.clock.is_system() { LISTEN_AFTER } else { Duration::ZERO };
        let listens = loss_push.then(|| self.clock.now().after(pause));
        let due = held.first_due().min(listens.unwrap_or(Moment::NEVER));
        let start = {
            let mut table = lock(&self.table);
            let slot = table.leases.insert(Entry { held: Arc::clone(held), listens });
            held.slot().store(slot, Ordering::Relaxed);
            match table.wakes {
                Some(wakes) if wakes <= due => false,
                Some(_) => {
                    table.wakes = Some(due);
                    self.changed.notify_one();
                    false
                }
                None => {
                    table.wakes = Some(due);
                    true
                }
            }
        };
        if start {
            let (leases, clock, changed) =
                (Arc::downgrade(self), self.clock.clone(), Arc::clone(&self.changed));
            drop(self.keeper.spawn(async move { run(&leases, &clock, &changed, due).await }));
        }
    }

    /// Stops renewing a lease.
    pub(super) fn remove(&self, held: &HeldLock) {
        // Under the lock: otherwise the sweep could free the slot in between, and another lease move in.
        let mut table = lock(&self.table);
        let slot = held.slot().swap(usize::MAX, Ordering::Relaxed);
        if slot != usize::MAX {
            table.leases.try_remove(slot);
        }
    }

    /// Renews nothing any more. What is held is lost at its deadline.
    pub(super) fn close(&self) {
        lock(&self.table).closed = true;
    }

    pub(super) fn sweep_again(&self) {
        self.changed.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.table).leases.len()
    }

    /// Steps every lease: ends those past their deadline, finds those to be renewed.
    fn sweep(&self) -> Swept {
        let mut swept = Swept::default();
        let mut table = lock(&self.table);
        let (now, closed) = (self.clock.now(), table.closed);
        let mut wakes = Moment::NEVER;
        table.leases.retain(|_, Entry { held, listens }| {
            match *listens {
                Some(at) if at <= now => {
                    *listens = None;
                    swept.listening.push(Arc::clone(held));
                }
                Some(at) => wakes = wakes.min(at),
                None => (),
            }
            let (mut advice, change) = held.step(now, Event::Tick);
            if let Some(state) = change {
                swept.changes.push((Arc::clone(held), state));
            }
            if advice == Advice::Renew && closed {
                advice = Advice::Sleep(held.lease().deadline());
            } else if advice == Advice::Renew {
                swept.due.push(Arc::clone(held));
                advice = held.step(now, Event::Sent).0;
            }
            match advice {
                Advice::Sleep(until) => wakes = wakes.min(until),
                Advice::Renew => wakes = now,
                Advice::Done => {
                    // The guard may still be there; its slot is free for another.
                    held.slot().store(usize::MAX, Ordering::Relaxed);
                    if matches!(held.lease_state(), LeaseState::Lost(Loss::HeldTooLong | Loss::NoProgress)) {
                        swept.over.push(held.grant().claim().clone());
                    }
                    return false;
                }
            }
            true
        });
        table.wakes = (!table.leases.is_empty()).then_some(wakes);
        swept.wakes = table.wakes;
        swept
    }

    /// Acts on what a sweep has found, outside of the lock of the table, since it wakes tasks of the
    /// application.
    fn act(self: &Arc<Self>, swept: Swept) {
        for batch in batches(swept.due, self.clock.now()) {
            let leases = Arc::clone(self);
            drop(self.keeper.spawn(async move {
                leases.renewer.renew(batch).await;
                // These leases may be due earlier than the task was going to wake.
                leases.sweep_again();
            }));
        }
        for held in swept.listening {
            let leases = Arc::clone(self);
            drop(self.keeper.spawn(async move { leases.listen(&held).await }));
        }
        for (held, state) in swept.changes {
            held.announce(state);
        }
        // The lease at the server is still alive, but nobody relies on it any more.
        for claim in swept.over {
            self.release_after(claim.lock_delay(), claim, AcquireStatus::Answered);
        }
    }

    /// Releases a claim after this time.
    pub(super) fn release_after(self: &Arc<Self>, delay: Duration, claim: Claim, outcome: AcquireStatus) {
        let leases = Arc::clone(self);
        drop(self.keeper.spawn(async move {
            leases.clock.sleep(delay).await;
            // Dropping it hands it to the keeper.
            drop(CallerRelease::new(&leases.releases, claim, outcome));
        }));
    }

    /// Steps a lease by the losses and doubts that the backend reports, until the lease ends.
    async fn listen(&self, held: &HeldLock) {
        let lost = std::pin::pin!(self.backend.lost(held.grant()));
        let doubted = async {
            loop {
                self.backend.doubted(held.grant()).await;
                // A lease in doubt keeps the time of its next try.
                if held.lease_state() == LeaseState::Held {
                    let event =
                        self.renewer.doubt(held, rand::random(), "the connection is down", Duration::MAX);
                    held.on(self.clock.now(), event);
                    self.sweep_again();
                }
                // A connection that stays down is one doubt, not a busy loop.
                self.clock.sleep(DOUBTED_AGAIN).await;
            }
        };
        tokio::select! {
            () = lost => {
                let now = self.clock.now();
                // The server has no lease either that has ended by itself.
                held.on(now, Event::Tick);
                held.on(now, Event::Gone);
            }
            () = doubted => (),
            _ = held.ended() => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::Background;
    use super::*;
    use crate::contract::PassOn;
    use crate::lease::Limits;
    use crate::{FencingToken, Grant, LockName, MemoryLock, Mode, TestClock, Wait};

    /// It takes a second to pass on.
    #[derive(Debug)]
    struct SlowTurn(TestClock);

    impl PassOn for SlowTurn {
        fn pass_on(&self) {
            self.0.advance(Duration::from_secs(1));
        }
    }

    #[tokio::test]
    async fn other_tasks_run_between_two_sweeps_that_take_long() {
        let test = TestClock::new();
        let clock = test.clock();
        let background = Background::start(Arc::new(MemoryLock::with_clock(clock.clone()))).unwrap();
        let leases = &background.leases;
        // Each sweep finds that one more of them has ended.
        leases.close();
        for secs in 1..=3 {
            let (name, ttl) = (LockName::new(secs.to_string()).unwrap(), Duration::from_secs(secs));
            let claim = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "test".into());
            let claim = claim.with_clock(clock.clone());
            claim.turn().put(Arc::new(SlowTurn(test.clone())));
            let grant = Grant::new(&claim, FencingToken::new(1), clock.now());
            let held = Arc::new(HeldLock::new(grant, Limits::default(), &background.telemetry));
            // The keeper does not sweep.
            let slot = lock(&leases.table).leases.insert(Entry { held: Arc::clone(&held), listens: None });
            held.slot().store(slot, Ordering::Relaxed);
        }
        test.advance(Duration::from_secs(1));
        let (weak, changed) = (Arc::downgrade(leases), Arc::clone(&leases.changed));
        let mut running = Box::pin(run(&weak, &clock, &changed, clock.now()));
        for left in [2, 1] {
            assert!(running.as_mut().now_or_never().is_none(), "nothing else runs between two sweeps");
            assert_eq!(leases.len(), left);
        }
    }

    #[tokio::test]
    async fn locks_that_are_held_for_a_moment_have_one_task() {
        let background = Background::start(Arc::new(MemoryLock::new())).unwrap();
        let name = LockName::new("a").unwrap();
        let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(60), Wait::No, "test".into());
        let grant = background.backend.acquire(&claim).await.unwrap().expect("it is free");
        let held = Arc::new(HeldLock::new(grant, Limits::default(), &background.telemetry));
        background.keep(&held);
        background.let_go(&held);
        // If the task ended now, each lock would start one, and wake the keeper's thread.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(lock(&background.leases.table).wakes.is_some());
    }
}
