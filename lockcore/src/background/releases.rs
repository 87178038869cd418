//! Releases that are under way.
//!
//! A claim is released on the runtime of its caller, where the connection of its acquire is. That runtime may
//! end, or not be driven any more. So every release under way is on a list, and the keeper takes over what
//! has not begun after 100 ms or is not done after a second. A repeated release is harmless, so both may do
//! it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures_util::FutureExt;
use tokio::sync::{Notify, oneshot};

use crate::backend::Backoff;
use crate::contract::Fate;
use crate::system::{OwnRuntime, TimeLimit, lock, wake_tasks};
use crate::telemetry::Telemetry;
use crate::{Claim, Clock, DistributedLock, Error, ErrorKind, Moment, Released, Result};

/// A release on a caller's runtime that has not begun after this time is taken over by the keeper.
pub(super) const BEGUN: Duration = Duration::from_millis(100);
/// One that is not done after this time is, too.
const DONE: Duration = Duration::from_secs(1);
/// The longest that one call of the backend may take.
const CALL: Duration = Duration::from_secs(5);
/// For how much longer than a lease the keeper repeats a release.
const MARGIN: Duration = Duration::from_secs(5);
/// The release of a claim in doubt is repeated until its lease has ended. After this number of answers "not
/// held", `close` does not wait for it any more.
const DENIALS: u32 = 3;
/// With more releases than this under way, a failed acquire is answered after a pause. A caller that tries
/// again and again without a pause at servers that do not answer would fill the queues of those servers, in
/// which the release of a lock that is held waits, too.
pub(super) const MANY: usize = 1024;
/// The most claims that are watched for late copies of their requests. See [`Releases::watch_for_copies`].
const COPIES: usize = 1024;

/// What is known about a claim that is to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireStatus {
    /// The acquire has been answered: "not held" is then the truth.
    Answered,
    /// A request of the acquire may still be on its way: "not held" may be true only for now.
    Unanswered,
    /// The same, and the acquire goes on. A lock that it has been granted is not released.
    GoesOn,
}

/// The releases of one client that are under way.
#[derive(Debug)]
pub(crate) struct Releases {
    pub(super) backend: Arc<dyn DistributedLock>,
    clock: Clock,
    telemetry: Arc<Telemetry>,
    keeper: OwnRuntime,
    list: Mutex<List>,
    /// Notified when a release ends.
    ended: Notify,
}

#[derive(Debug, Default)]
struct List {
    under_way: HashMap<u64, Entry, RandomState>,
    last: u64,
    /// Whether a task of the keeper watches the list.
    watched: bool,
    /// How many claims are watched for late copies.
    copies: usize,
    /// The client is being closed.
    closing: bool,
    /// The client is closed: releases that `close` does not wait for are not repeated.
    closed: bool,
}

impl List {
    /// How many claims have not been released, but for those that the server has denied several times.
    fn not_released(&self) -> usize {
        self.under_way.values().filter(|entry| !entry.denied).count()
    }
}

#[derive(Debug)]
struct Entry {
    claim: Claim,
    outcome: AcquireStatus,
    since: Moment,
    begun: bool,
    /// The keeper has taken it over.
    taken: bool,
    /// The server has said several times that the claim holds nothing.
    denied: bool,
    /// Gets what the server has answered to the keeper.
    asks: Option<oneshot::Sender<Released>>,
}

impl Releases {
    pub(crate) fn new(
        backend: &Arc<dyn DistributedLock>,
        telemetry: &Arc<Telemetry>,
        keeper: &OwnRuntime,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend: Arc::clone(backend),
            clock: backend.clock(),
            telemetry: Arc::clone(telemetry),
            keeper: keeper.clone(),
            list: Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// Waits until all claims have been released, or until the limit. Returns how many have not.
    pub(super) async fn drain(&self, limit: &TimeLimit) -> usize {
        lock(&self.list).closing = true;
        self.note_change();
        match limit.wait_for(self.wait_for(|list| list.not_released() == 0)).await {
            Some(()) => 0,
            None => lock(&self.list).not_released(),
        }
    }

    /// Waits until all claims have been released, or a close has given up.
    pub(super) async fn settled(&self) {
        self.wait_for(|list| list.closed || list.not_released() == 0).await;
    }

    pub(super) fn enter(self: &Arc<Self>, claim: &Claim, outcome: AcquireStatus, begun: bool) -> u64 {
        let (id, start) = {
            let mut list = lock(&self.list);
            list.last += 1;
            let id = list.last;
            let since = self.clock.now();
            let claim = claim.clone();
            let entry = Entry { claim, outcome, since, begun, taken: false, denied: false, asks: None };
            list.under_way.insert(id, entry);
            (id, !std::mem::replace(&mut list.watched, true))
        };
        if start {
            let releases = Arc::clone(self);
            drop(self.keeper.spawn(async move { releases.watch().await }));
        }
        id
    }

    /// The pause before a failed acquire is answered while many releases are under way. There is none by a
    /// clock that stands still: its test would have to move it for that.
    pub(super) async fn slow_down(&self) {
        if lock(&self.list).under_way.len() > MANY && !self.clock.stands_still() {
            self.clock.sleep(BEGUN).await;
        }
    }

    /// Wakes those that wait for the end of releases.
    fn note_change(&self) {
        wake_tasks(|| self.ended.notify_waiters());
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = lock(&self.list).under_way.get_mut(&id) {
            change(entry);
        }
        self.note_change();
    }

    /// Takes a release off the list.
    pub(super) fn leave(&self, id: u64) {
        let entry = lock(&self.list).under_way.remove(&id);
        // Outside of the mutex: it may wake the caller, who waits for the answer to the keeper.
        wake_tasks(|| drop(entry));
        self.note_change();
    }

    /// Takes over releases that make no progress, for as long as the list is not empty.
    async fn watch(self: Arc<Self>) {
        loop {
            self.clock.sleep(BEGUN).await;
            let late: Vec<_> = {
                let mut list = lock(&self.list);
                if list.under_way.values().all(|entry| entry.taken) {
                    list.watched = false;
                    return;
                }
                let now = self.clock.now();
                let is_late = |entry: &Entry| {
                    let limit = if entry.begun { DONE } else { BEGUN };
                    // A claim without a caller may go on for other tasks.
                    let goes_on = entry.begun && entry.claim.keeps_place();
                    !entry.taken && !goes_on && now.since(entry.since) >= limit
                };
                let late = list.under_way.iter().filter(|(_, entry)| is_late(entry));
                late.map(|(id, entry)| (*id, entry.claim.clone())).collect()
            };
            for (id, claim) in late {
                // Waiters of this process must not wait for a runtime that is not driven. Otherwise the lock
                // may have been handed on, and the turn is that of another task.
                if self.take_over(id) {
                    claim.turn().pass_on();
                }
            }
        }
    }

    /// Lets the keeper finish a release that is on the list, unless it does so already, or the acquire has
    /// been granted. Returns whether it does so from now on.
    pub(super) fn take_over(self: &Arc<Self>, id: u64) -> bool {
        let (claim, outcome) = {
            let mut list = lock(&self.list);
            let Some(entry) = list.under_way.get_mut(&id).filter(|entry| !entry.taken) else { return false };
            // Another task may have the lock before the acquire is off the list.
            if entry.outcome == AcquireStatus::GoesOn && !entry.claim.decide(Fate::GivenUp) {
                return false;
            }
            entry.taken = true;
            (entry.claim.clone(), entry.outcome)
        };
        let releases = Arc::clone(self);
        drop(self.keeper.spawn(async move {
            releases.finish(id, &claim, outcome).await;
            releases.leave(id);
        }));
        true
    }

    /// Lets the keeper release the claim of an acquire that is under way, unless it has just been granted.
    pub(super) fn release_by_keeper(self: &Arc<Self>, claim: &Claim) {
        if claim.decide(Fate::GivenUp) {
            let id = self.enter(claim, AcquireStatus::Unanswered, true);
            self.take_over(id);
        }
    }

    /// Whether a release is to be repeated. It is not when it is off the list, or when the server has denied
    /// it and the client is closed.
    fn is_wanted(&self, id: u64) -> bool {
        let list = lock(&self.list);
        list.under_way.get(&id).is_some_and(|entry| !(entry.denied && list.closed))
    }

    /// From now on, releases that `close` does not wait for are not repeated.
    pub(super) fn close(&self) {
        lock(&self.list).closed = true;
        self.note_change();
    }

    async fn closed(&self) {
        self.wait_for(|list| list.closed).await;
    }

    async fn wait_for(&self, is_reached: impl Fn(&List) -> bool) {
        loop {
            let changed = self.ended.notified();
            if is_reached(&lock(&self.list)) {
                return;
            }
            changed.await;
        }
    }

    /// The pause before a release is repeated. While the client is being closed, it ends by the machine's
    /// clock as well: nobody moves a clock that stands still while it waits for `close`.
    async fn pause(&self, span: Duration) {
        tokio::select! {
            () = self.clock.sleep(span) => (),
            () = self.wait_for(|list| list.closing), if self.clock.stands_still() => {
                Moment::now().after(span).sleep().await;
            }
        }
    }

    /// Releases a claim, again and again until the server has confirmed it.
    ///
    /// Where a request of the acquire may still be on its way, "not held" is no proof: the request may be
    /// carried out later. After the ttl and a margin the lease has ended by itself, unless the network has
    /// kept a request for longer than that; such a lease is never renewed.
    async fn finish(self: &Arc<Self>, id: u64, claim: &Claim, outcome: AcquireStatus) {
        let end = self.clock.now().after(claim.ttl() + MARGIN);
        let mut backoff = Backoff::new(Duration::from_millis(20), longest_pause(claim));
        let mut denials = 0;
        // Whether an earlier release, whose answer was lost, may have been carried out.
        let mut in_doubt = false;
        while !self.clock.has_passed(end) && self.is_wanted(id) {
            match self.ask_once(claim).await {
                Ok(answer) if answer != Released::NotHeld || outcome == AcquireStatus::Answered => {
                    let found = answer != Released::NotHeld;
                    self.answered(id, if found { answer } else { Released::from_answer(false, in_doubt) });
                    return self.watch_for_copies(claim);
                }
                Ok(_) => {
                    denials += 1;
                    if denials == DENIALS {
                        self.change(id, |entry| entry.denied = true);
                    }
                }
                Err(error) => {
                    in_doubt |= matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::UnknownOutcome);
                    self.failed(claim, &error);
                }
            }
            self.pause(backoff.next_pause()).await;
        }
        if denials == 0 && self.clock.has_passed(end) {
            tracing::warn!(lock = %claim.name(), "the release is not repeated any more; what the claim holds ends with its lease");
        }
    }

    /// Whether the keeper has taken a release over, or has finished it.
    pub(super) fn has_taken(&self, id: u64) -> bool {
        lock(&self.list).under_way.get(&id).is_none_or(|entry| entry.taken)
    }

    /// Where the answer to the keeper goes to, if it takes this release over.
    pub(super) fn tell_answer(&self, id: u64, asks: oneshot::Sender<Released>) {
        if let Some(entry) = lock(&self.list).under_way.get_mut(&id) {
            entry.asks = Some(asks);
        }
    }

    fn answered(&self, id: u64, answer: Released) {
        let asks = lock(&self.list).under_way.get_mut(&id).and_then(|entry| entry.asks.take());
        if let Some(asks) = asks {
            // Nobody listens if the caller has had its own answer.
            wake_tasks(|| asks.send(answer).unwrap_or(()));
        }
    }

    pub(super) fn begun(&self, id: u64) {
        let now = self.clock.now();
        self.change(id, |entry| (entry.begun, entry.since) = (true, now));
    }

    async fn ask_once(&self, claim: &Claim) -> Result<Released> {
        let asked = AssertUnwindSafe(self.backend.release(claim)).catch_unwind();
        match self.clock.timeout(CALL, asked).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(Error::new(ErrorKind::Internal, "the backend has panicked")),
            None => Err(Error::new(ErrorKind::Unreachable, "no answer in time")),
        }
    }

    pub(super) fn failed(&self, claim: &Claim, error: &Error) {
        self.telemetry.release_failed();
        tracing::info!(lock = %claim.name(), error = format!("{error:#}"), "the release is tried again");
    }

    /// A request that was repeated on a new connection may still arrive from the old one, after the release.
    /// It then takes the lock though no guard holds it. So the claim is released again, until the lease of
    /// such a late copy has ended.
    pub(super) fn watch_for_copies(self: &Arc<Self>, claim: &Claim) {
        let Some(until) = claim.in_doubt_until() else { return };
        {
            let mut list = lock(&self.list);
            if list.copies >= COPIES {
                return;
            }
            list.copies += 1;
        }
        let (releases, claim) = (Arc::clone(self), claim.clone());
        drop(self.keeper.spawn(async move {
            let mut backoff = Backoff::new(Duration::from_millis(250), longest_pause(&claim));
            loop {
                tokio::select! {
                    () = backoff.pause_by(&releases.clock) => (),
                    () = releases.closed() => break,
                }
                if claim.clock().has_passed(until) {
                    break;
                }
                match releases.ask_once(&claim).await {
                    Ok(Released::Released) => {
                        tracing::info!(lock = %claim.name(), "a late copy of a request had taken the lock");
                    }
                    Ok(Released::InDoubt | Released::NotHeld) => (),
                    Err(error) => releases.failed(&claim, &error),
                }
            }
            lock(&releases.list).copies -= 1;
        }));
    }

    #[cfg(test)]
    pub(super) fn copies(&self) -> usize {
        lock(&self.list).copies
    }
}

/// How long to pause between two tries of a release: others may wait for the lock.
pub(super) fn longest_pause(claim: &Claim) -> Duration {
    (claim.ttl() / 8).clamp(Duration::from_secs(2), Duration::from_secs(10))
}
