//! The claims of one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;

use super::held_lock::HeldLock;
use super::promises::Promises;
use super::renewals::Renewals;
use crate::life::{Act, BEGUN, Next, Now};
use crate::system::{KEEPER, OrderedGuard, OrderedMutex, OwnRuntime, TimeLimit, lock_ordered, wake_tasks};
use crate::telemetry::Telemetry;
use crate::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, LockName, Moment, Operation, Requirement,
    Result, Stats,
};

/// After a close, an acquire that has not ended within this time is left to the keeper as well.
const CANCELLED: Duration = Duration::from_millis(100);
/// With more releases than this under way, a failed acquire is answered after a pause. A caller that tries
/// again and again without a pause at servers that do not answer would fill the queues of those servers, in
/// which the release of a lock that is held waits, too.
pub(super) const MANY: usize = 1024;
/// The most claims that are watched for late copies of their requests.
const COPIES: usize = 1024;

/// How far a close has come: not begun; acquires are refused, and nothing is renewed; releases that the close does
/// not wait for are not repeated.
pub(super) const OPEN: u8 = 0;
pub(super) const CLOSING: u8 = 1;
pub(super) const CLOSED: u8 = 2;

/// One client of a backend: what its clones, its guards and the keeper share.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) backend: Arc<dyn DistributedLock>,
    promises: Promises,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) clock: Clock,
    pub(super) keeper: OwnRuntime,
    pub(super) renewals: Renewals,
    rows: OrderedMutex<Rows>,
    /// How far a close has come. It is changed while the rows are locked.
    phase: AtomicU8,
    /// Notified when the keeper is to look earlier than it intends to.
    pub(super) look_earlier: Arc<Notify>,
    /// Notified when there are fewer acquires or releases.
    ended: Notify,
}

/// The claims of a client that may hold something.
///
/// The keeper's task looks at them while there is anything to do. It sleeps until the earliest moment at which one
/// is due; a new one wakes it only if it is due earlier, which is rare: so taking and releasing a lock costs no
/// switch between threads.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) slab: Slab<Row>,
    /// When the keeper's task wakes up next; `None` while it does not run.
    pub(super) wakes: Option<Moment>,
    /// Some are due earlier than their rows say.
    pub(super) stale: bool,
    counts: [usize; 4],
}

/// What the rows are counted by: acquires under way; releases for which `close` waits; those that the server has
/// denied several times, so that it does not; and claims of which a late copy may still take the lock.
const ACQUIRES: usize = 0;
const LEAVING: usize = 1;
const DENIED: usize = 2;
const WATCHED: usize = 3;

#[derive(Debug)]
pub(super) struct Row {
    pub(super) claim: Claim,
    /// The lock whose lease is renewed.
    pub(super) held: Option<Arc<HeldLock>>,
    /// When to begin to listen for losses and doubts that the backend reports.
    pub(super) listens: Option<Moment>,
    /// The keeper need not look at it before.
    pub(super) due: Moment,
    /// Nobody but the keeper has the claim any more, so the row keeps the book.
    pub(super) book: Option<Arc<Book>>,
    counted: [bool; 4],
}

impl Rows {
    /// Steps the life of a claim, and counts its row.
    pub(super) fn step(&mut self, claim: &Claim, now: Now<'_>, act: Act) -> Next {
        let mut state = claim.state();
        let mut next = state.life.on(now, act);
        let Some(row) = state.row.and_then(|row| self.slab.get_mut(row)).filter(|row| row.claim.is(claim))
        else {
            return next;
        };
        let watched_anew = state.life.is_watched() && !row.counted[WATCHED];
        if watched_anew && self.counts[WATCHED] >= COPIES {
            next = state.life.on(now, Act::Closed);
        }
        let life = &state.life;
        let (leaving, denied) = (life.is_leaving(now), life.is_denied());
        let counted = [life.is_acquiring(), leaving && !denied, leaving && denied, life.is_watched()];
        drop(state);
        for (at, is) in counted.into_iter().enumerate() {
            let was = std::mem::replace(&mut row.counted[at], is);
            self.counts[at] = self.counts[at] + usize::from(is) - usize::from(was);
        }
        next
    }

    /// The row of a claim.
    fn row(&mut self, claim: &Claim) -> Option<&mut Row> {
        let row = claim.state().row?;
        self.slab.get_mut(row).filter(|row| row.claim.is(claim))
    }

    /// The lease of a claim is renewed from now on. Returns the lock whose lease was renewed before.
    pub(super) fn keep(
        &mut self,
        held: &Arc<HeldLock>,
        listens: Option<Moment>,
        due: Moment,
    ) -> Option<Arc<HeldLock>> {
        let row = self.row(held.claim())?;
        let before = row.held.replace(Arc::clone(held));
        (row.listens, row.due) = (listens, due);
        let was_acquire = std::mem::replace(&mut row.counted[ACQUIRES], false);
        self.counts[ACQUIRES] -= usize::from(was_acquire);
        before
    }

    /// Takes out the row of a claim. It is to be dropped when the rows are not locked any more.
    pub(super) fn take(&mut self, claim: &Claim) -> Option<Row> {
        let at = claim.state().row?;
        let is_its = self.slab.get(at).is_some_and(|row| row.claim.is(claim));
        let row = is_its.then(|| self.slab.remove(at))?;
        for (at, was) in row.counted.into_iter().enumerate() {
            self.counts[at] -= usize::from(was);
        }
        Some(row)
    }
}

impl Book {
    /// Fails if the keeper thread cannot be started.
    pub(super) fn new(backend: Arc<dyn DistributedLock>) -> Result<Arc<Self>> {
        let keeper = KEEPER.get()?;
        let capabilities = backend.capabilities();
        let telemetry = Telemetry::new(capabilities.backend());
        Ok(Arc::new(Self {
            promises: Promises::new(capabilities),
            clock: backend.clock(),
            renewals: Renewals::default(),
            keeper,
            rows: OrderedMutex::default(),
            phase: AtomicU8::new(OPEN),
            look_earlier: Arc::default(),
            ended: Notify::new(),
            telemetry,
            backend,
        }))
    }

    /// What the backend promises.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.promises.by(&*self.backend).all
    }

    /// What is left of that for clients whose processes are served in turn.
    pub(crate) fn in_turns(&self) -> &Capabilities {
        &self.promises.by(&*self.backend).in_turns
    }

    /// Whether each task that gets a lock from another has a token of its own.
    pub(crate) fn has_token_blocks(&self) -> bool {
        self.capabilities().promises(Requirement::TokenBlocks)
    }

    /// Adds the operation, the backend with its servers, and the lock to an error.
    pub(crate) fn decorate(&self, error: Error, operation: Operation, name: Option<&LockName>) -> Error {
        let mut error = error.during(operation).on_backend(self.capabilities().backend());
        if let Some(servers) = self.backend.servers() {
            error = error.at(servers);
        }
        match name {
            Some(name) => error.for_lock(name),
            None => error,
        }
    }

    pub(super) fn rows(&self) -> OrderedGuard<'_, Rows> {
        lock_ordered(&self.rows)
    }

    pub(super) fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    /// Refuses requests after [`close`](Self::close).
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.phase() == OPEN {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Closed, "this client was closed"))
    }

    /// A claim gets a row.
    pub(super) fn enter(rows: &mut Rows, claim: &Claim) {
        let is_acquire = {
            let mut state = claim.state();
            state.row = Some(rows.slab.vacant_key());
            state.life.is_acquiring()
        };
        rows.counts[ACQUIRES] += usize::from(is_acquire);
        let counted = [is_acquire, false, false, false];
        let (held, listens, due, book) = (None, None, Moment::NEVER, None);
        rows.slab.insert(Row { claim: claim.clone(), held, listens, due, book, counted });
    }

    /// Steps the life of a claim.
    pub(super) fn step(self: &Arc<Self>, claim: &Claim, act: Act) {
        self.step_row(claim, act, false);
    }

    /// Whoever had the claim is gone. If it may hold something, the keeper has it from now on.
    pub(super) fn leave(self: &Arc<Self>, claim: &Claim) {
        if self.step_row(claim, Act::Dropped, true) {
            claim.pass_on();
        }
    }

    /// Steps the life of a claim; `leaves`: only the keeper has it from now on. Returns whether it may hold
    /// something.
    fn step_row(self: &Arc<Self>, claim: &Claim, act: Act, leaves: bool) -> bool {
        let now = || self.clock.now();
        let mut rows = self.rows();
        let before = rows.counts;
        let next = rows.step(claim, &now, act);
        let is_over = matches!(next, Next::Over | Next::Unanswered);
        let is_kept = !leaves && rows.row(claim).is_some_and(|row| row.book.is_none());
        let ended = if is_over && !is_kept {
            rows.take(claim)
        } else {
            if let Some(row) = rows.row(claim).filter(|_| leaves) {
                row.book = Some(Arc::clone(self));
            }
            self.due(&mut rows, claim, next.due(now()));
            None
        };
        let after = rows.counts;
        drop(rows);
        drop(ended);
        self.note_fewer(before, after);
        !is_over
    }

    /// Lets the keeper release a claim that nobody drives, unless it was granted to somebody. Returns whether it
    /// does so from now on.
    pub(super) fn give_up(self: &Arc<Self>, claim: &Claim) -> bool {
        let was_taken = claim.life(|life| life.is_taken());
        self.step(claim, Act::GiveUp);
        !was_taken && claim.life(|life| life.is_taken())
    }

    /// The keeper looks at this claim by this moment.
    fn due(self: &Arc<Self>, rows: &mut Rows, claim: &Claim, due: Moment) {
        if let Some(row) = rows.row(claim) {
            row.due = row.due.min(due);
            self.look_by(rows, due);
        }
    }

    /// The keeper looks by this moment.
    pub(super) fn look_by(self: &Arc<Self>, rows: &mut Rows, by: Moment) {
        match rows.wakes {
            Some(wakes) if wakes <= by => (),
            None if by == Moment::NEVER => (),
            Some(_) => {
                rows.wakes = Some(by);
                self.look_earlier.notify_one();
            }
            None => {
                rows.wakes = Some(by);
                self.begin_to_look(by);
            }
        }
    }

    /// The keeper looks at all claims now: some of them may be due earlier than before.
    pub(crate) fn look_again(&self) {
        self.rows().stale = true;
        self.look_earlier.notify_one();
    }

    /// Acquires are waited for only by a close.
    fn note_fewer(&self, before: [usize; 4], after: [usize; 4]) {
        if after[LEAVING] < before[LEAVING] || (before != after && self.phase() != OPEN) {
            self.note_ended();
        }
    }

    pub(super) fn note_ended(&self) {
        wake_tasks(|| self.ended.notify_waiters());
    }

    /// The pause before a failed acquire is answered while many releases are under way. There is none by a
    /// clock that stands still: its test would have to move it for that.
    pub(crate) async fn slow_down(&self) {
        let counts = self.rows().counts;
        if counts[LEAVING] + counts[DENIED] > MANY && !self.clock.stands_still() {
            self.clock.sleep(BEGUN).await;
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let rows = self.rows();
        let held = rows.slab.iter().filter(|(_, row)| row.claim.life(|life| life.is_renewed())).count();
        drop(rows);
        self.telemetry.stats(held)
    }

    async fn wait_for(&self, is_reached: impl Fn(&Rows) -> bool) {
        loop {
            let ended = self.ended.notified();
            if is_reached(&self.rows()) {
                return;
            }
            ended.await;
        }
    }

    /// Waits until all claims have been released, or a close has given up.
    pub(super) async fn settled(&self) {
        self.wait_for(|rows| self.phase() == CLOSED || rows.counts[LEAVING] == 0).await;
    }

    /// The claims of acquires under way.
    fn acquiring(&self) -> Vec<Claim> {
        let rows = self.rows();
        let acquiring = rows.slab.iter().filter(|(_, row)| row.claim.life(|life| life.is_acquiring()));
        acquiring.map(|(_, row)| row.claim.clone()).collect()
    }

    fn begin_phase(&self, phase: u8) {
        {
            let mut rows = self.rows();
            // A second close does not begin anew.
            self.phase.fetch_max(phase, Ordering::AcqRel);
            rows.stale = true;
        }
        self.look_earlier.notify_one();
        self.note_ended();
    }

    /// Waits until all claims have been released, or until the limit. Returns how many have not.
    pub(super) async fn drain(&self, limit: &TimeLimit) -> usize {
        match limit.wait_for(self.wait_for(|rows| rows.counts[LEAVING] == 0)).await {
            Some(()) => 0,
            None => self.rows().counts[LEAVING],
        }
    }

    /// Cancels the acquires under way, waits for them and for the releases, then ends the connections; all
    /// within this time.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) -> Result<()> {
        let all = self.clock.limit(limit);
        // The last quarter of the time is for the connections.
        let releasing = self.clock.limit(limit / 4 * 3);
        let cancelling = self.clock.limit(CANCELLED.min(limit / 4));
        self.begin_phase(CLOSING);
        // Copied: to cancel a claim wakes a task of the application.
        for claim in self.acquiring() {
            claim.cancel();
        }
        let acquires = || self.wait_for(|rows| rows.counts[ACQUIRES] == 0);
        if cancelling.wait_for(acquires()).await.is_none() {
            // Their runtimes may not be driven any more.
            for claim in self.acquiring() {
                self.give_up(&claim);
            }
            // A request that is on its way may still be granted, and is released then.
            releasing.wait_for(acquires()).await;
        }
        let left = self.drain(&releasing).await;
        self.begin_phase(CLOSED);
        let ended = all.wait_for(self.backend.close()).await;
        self.telemetry.close();
        let text = match (left, ended) {
            (0, Some(())) => return Ok(()),
            (0, None) => format!("the connections have not ended within {limit:?}"),
            _ => format!("{left} releases have no answer after {limit:?}: those locks end with their leases"),
        };
        let error = Error::new(ErrorKind::UnknownOutcome, text);
        Err(error.on_backend(self.capabilities().backend()))
    }

    #[cfg(test)]
    pub(super) fn close_releases(&self) {
        self.begin_phase(CLOSED);
    }

    #[cfg(test)]
    pub(super) fn copies(&self) -> usize {
        self.rows().counts[WATCHED]
    }
}
