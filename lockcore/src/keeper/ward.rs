//! The leases of one client, and the task on the keeper thread that tends them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slab::Slab;
use tokio::sync::{Notify, Semaphore};

use crate::counters::Counters;
use crate::holding::Holding;
use crate::lease::{Advice, Event, Lease};
use crate::sync::lock;
use crate::{DistributedLock, Grant, Loss, Moment, Renewal, Standing};

/// The most leases in one renewal: enough to make statements rare, few enough to keep each one short.
const BATCH: usize = 500;
/// The most renewals of one client that are under way at a time.
const UNDER_WAY: usize = 4;

/// A lock that is held for a shorter time than this needs no ear at the server. Without the pause, each lock would cost
/// two switches of threads.
const HEARD_AFTER: Duration = Duration::from_millis(50);
/// After a backend's doubt, the pause before it is asked for the next.
const DOUBTED_AGAIN: Duration = Duration::from_millis(100);

/// The leases of one client.
///
/// The task that tends them runs while there are any. It sleeps until the earliest moment at which a lease needs
/// something; a new lease wakes it only if it needs something earlier, which is rare: so taking and releasing a lock
/// costs no switch of threads.
#[derive(Debug)]
pub(crate) struct Ward {
    backend: Arc<dyn DistributedLock>,
    counters: Arc<Counters>,
    loss_push: bool,
    table: Mutex<Table>,
    bell: Notify,
    under_way: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    holding: Arc<Holding>,
    /// When to begin to listen for what the backend says without being asked.
    listens: Option<Moment>,
}

#[derive(Debug)]
struct Table {
    leases: Slab<Entry>,
    /// When the task looks next; `None` while it does not run.
    wakes: Option<Moment>,
}

impl Ward {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, counters: Arc<Counters>) -> Self {
        Self {
            loss_push: backend.capabilities().loss_push,
            backend,
            counters,
            table: Mutex::new(Table { leases: Slab::new(), wakes: None }),
            bell: Notify::new(),
            under_way: Arc::new(Semaphore::new(UNDER_WAY)),
        }
    }

    /// The handle that the keeper thread uses.
    pub(crate) fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.backend
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a lease into care.
    pub(crate) fn admit(self: &Arc<Self>, holding: &Arc<Holding>) {
        // A grant that was long under way may be due at once; the task then wakes at once.
        let mut due = holding.first_due();
        let listens = self.loss_push.then(|| Moment::now().after(HEARD_AFTER));
        due = due.min(listens.unwrap_or(Moment::NEVER));
        let start = {
            let mut table = lock(&self.table);
            let slot = table.leases.insert(Entry { holding: Arc::clone(holding), listens });
            holding.slot().store(slot, Ordering::Relaxed);
            match table.wakes {
                Some(wakes) if wakes <= due => false,
                Some(_) => {
                    table.wakes = Some(due);
                    self.bell.notify_one();
                    false
                }
                None => {
                    table.wakes = Some(due);
                    true
                }
            }
        };
        if start {
            let ward = Arc::clone(self);
            super::spawn(async move { ward.tend().await });
        }
    }

    /// Passes on what the backend hears about a lease without asking, until the lease ends.
    async fn listen(&self, holding: &Holding) {
        let lost = std::pin::pin!(self.backend.lost(holding.grant()));
        let told = async {
            loop {
                self.backend.doubted(holding.grant()).await;
                // What is in doubt already keeps the time of its next try.
                if holding.standing() == Standing::Held {
                    self.doubt(holding, &"the connection is down");
                    holding.on(Moment::now(), Event::Unknown);
                    self.bell.notify_one();
                }
                // A connection that stays down is one doubt, not a busy loop.
                tokio::time::sleep(DOUBTED_AGAIN).await;
            }
        };
        tokio::select! {
            () = lost => { holding.on(Moment::now(), Event::Gone); }
            () = told => (),
            _ = holding.ended() => (),
        }
    }

    /// Lets a lease go. It is not renewed from now on.
    pub(crate) fn dismiss(&self, holding: &Holding) {
        // Under the lock: otherwise the sweep could free the slot in between, and another lease move in.
        let mut table = lock(&self.table);
        let slot = holding.slot().swap(usize::MAX, Ordering::Relaxed);
        if slot != usize::MAX {
            table.leases.try_remove(slot);
        }
    }

    /// Looks at the leases again: one of them may need something earlier than it did.
    pub(crate) fn look(&self) {
        self.bell.notify_one();
    }

    /// How many leases are in care.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).leases.len()
    }

    async fn tend(self: Arc<Self>) {
        loop {
            let Some(wakes) = self.sweep() else { return };
            tokio::select! {
                () = wakes.sleep() => (),
                () = self.bell.notified() => (),
            }
        }
    }

    /// Looks at every lease: ends those past their deadline, sends the due renewals. Says when to look next; `None`
    /// when no lease is left.
    fn sweep(self: &Arc<Self>) -> Option<Moment> {
        let (mut due, mut over, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        let wakes = {
            let mut table = lock(&self.table);
            let now = Moment::now();
            let mut wakes = Moment::NEVER;
            let mut lost = 0;
            table.leases.retain(|_, Entry { holding, listens }| {
                match *listens {
                    Some(at) if at <= now => {
                        *listens = None;
                        let (ward, holding) = (Arc::clone(self), Arc::clone(holding));
                        super::spawn(async move { ward.listen(&holding).await });
                    }
                    Some(at) => wakes = wakes.min(at),
                    None => (),
                }
                let (mut advice, change) = holding.step(now, Event::Tick);
                if let Some(standing) = change {
                    changes.push((Arc::clone(holding), standing));
                }
                if advice == Advice::Renew {
                    due.push(Arc::clone(holding));
                    advice = holding.on(now, Event::Sent);
                }
                match advice {
                    Advice::Rest(until) => wakes = wakes.min(until),
                    Advice::Renew => wakes = now,
                    Advice::Done => {
                        // The guard may still be there; its slot is free for another.
                        holding.slot().store(usize::MAX, Ordering::Relaxed);
                        let standing = holding.standing();
                        lost += u64::from(standing != Standing::Released);
                        if matches!(standing, Standing::Lost(Loss::HeldTooLong | Loss::NoProgress)) {
                            over.push(holding.grant().claim().clone());
                        }
                        return false;
                    }
                }
                true
            });
            self.counters.lost.add_many(lost);
            table.wakes = (!table.leases.is_empty()).then_some(wakes);
            table.wakes
        };
        for batch in due.chunks(BATCH) {
            let (ward, batch) = (Arc::clone(self), batch.to_vec());
            super::spawn(async move { ward.renew(&batch).await });
        }
        // Not under the lock of the table, and not in this task: what is told runs code of the application.
        if !changes.is_empty() {
            super::spawn(async move {
                for (holding, standing) in changes {
                    holding.tell(standing);
                }
            });
        }
        // The lease at the server is still alive, but nobody believes in it any more.
        for claim in over {
            let ward = Arc::clone(self);
            super::spawn(async move {
                tokio::time::sleep(claim.rest()).await;
                super::clean_up(&ward, &claim).await;
            });
        }
        wakes
    }

    async fn renew(&self, batch: &[Arc<Holding>]) {
        // The shortest lease of the batch sets the time that the answer may take. Waiting for a turn counts, too.
        let shortest = batch.iter().map(|holding| holding.ttl()).min().unwrap_or_default();
        let answers = tokio::time::timeout(Lease::patience(shortest), async {
            let _turn = self.under_way.acquire().await;
            let grants: Vec<Grant> = batch.iter().map(|holding| holding.grant().clone()).collect();
            self.counters.renewal_calls.add();
            self.backend.renew(&grants).await
        })
        .await
        .unwrap_or_default();
        let now = Moment::now();
        let mut answers = answers.into_iter();
        for holding in batch {
            let event = match answers.next() {
                Some(Renewal::Renewed(deadline)) => {
                    self.counters.renewals.add();
                    Event::Renewed(deadline)
                }
                Some(Renewal::Lost) => Event::Gone,
                Some(Renewal::Unknown(error)) => {
                    self.doubt(holding, &format!("{error:#}"));
                    Event::Unknown
                }
                None => {
                    self.doubt(holding, &"no answer in time");
                    Event::Unknown
                }
            };
            holding.on(now, event);
        }
        // The next steps of these leases may be due earlier than the task was going to wake.
        self.bell.notify_one();
    }

    fn doubt(&self, holding: &Holding, why: &dyn std::fmt::Display) {
        self.counters.renewal_failures.add();
        tracing::info!(lock = %holding.grant().claim().name(), %why, "renewal failed; it is tried again");
    }
}
