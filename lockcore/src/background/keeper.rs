//! What the keeper does for the claims of a client: renewals, deadlines, and releases that nobody else finishes.
//!
//! A claim is released on the runtime of its caller, where the connection of its acquire is. That runtime may
//! end, or not be driven any more. So the keeper takes over what has not begun after 100 ms or is not done after a
//! second. A repeated release is harmless, so both may do it.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::book::{Book, CLOSED, OPEN, Row, Rows};
use super::held_lock::HeldLock;
use super::renewal::{Batch, batches};
use crate::life::{Act, Advice, Event, Next};
use crate::{Claim, Clock, Error, ErrorKind, LeaseState, Loss, Moment, Released, Requirement};

/// Only for a lock that is held for longer than this does the client listen for losses. Without the pause,
/// each lock would cost two switches between threads.
const LISTEN_AFTER: Duration = Duration::from_millis(50);
/// The pause after a backend has reported a doubt, before it is asked for the next.
const DOUBTED_AGAIN: Duration = Duration::from_millis(100);
/// The longest that one call of a release may take.
const CALL: Duration = Duration::from_secs(5);

/// What the keeper has found.
#[derive(Default)]
struct Found {
    due: Batch,
    changes: Vec<(Arc<HeldLock>, LeaseState)>,
    listening: Batch,
    /// Claims that nobody drives. Tasks of this process must not wait for them.
    given_up: Vec<Claim>,
    /// Claims to be released.
    released: Vec<Claim>,
    /// Claims whose release the server has never answered.
    unanswered: Vec<Claim>,
    /// What is dropped outside of the mutex.
    held: Batch,
    rows: Vec<Row>,
}

/// Looks at the claims for as long as there is anything to do, from this moment on. It does not keep the client,
/// and so the backend, while it sleeps: a client that nobody uses any more ends at once, unless a claim that was
/// left to the keeper keeps it.
///
/// It does not look before that moment: a lock that is held for a short time would be gone already, this
/// would end, and the next lock would start it again.
async fn run(
    book: &Weak<Book>,
    clock: &Clock,
    look_earlier: &Notify,
    mut wakes: Moment,
    mut hurry: Option<Duration>,
) {
    loop {
        let hurried = async {
            match hurry {
                Some(span) => Moment::now().after(span).sleep().await,
                None => std::future::pending().await,
            }
        };
        let until = tokio::select! {
            () = clock.sleep_until(wakes) => None,
            () = look_earlier.notified() => None,
            () = hurried => Some(wakes),
        };
        let Some(book) = book.upgrade() else { return };
        let Some(next) = book.look(until) else { return };
        (wakes, hurry) = (next, book.hurry(next));
        drop(book);
        // If a look takes longer than the time until the next one, the sleep ends at once, and the renewals
        // that have begun here would never run.
        tokio::task::yield_now().await;
    }
}

impl Book {
    /// Looks at the claims from this moment on.
    pub(super) fn begin_to_look(self: &Arc<Self>, at: Moment) {
        let (book, clock, earlier) =
            (Arc::downgrade(self), self.clock.clone(), Arc::clone(&self.look_earlier));
        let hurry = self.hurry(at);
        drop(self.keeper.spawn(async move { run(&book, &clock, &earlier, at, hurry).await }));
    }

    /// While a client is being closed, pauses between releases end by the machine's clock as well: nobody moves a
    /// clock that stands still while it waits for `close`.
    fn hurry(&self, wakes: Moment) -> Option<Duration> {
        (self.phase() != OPEN && self.clock.stands_still()).then(|| wakes.since(self.clock.now()))
    }

    /// Begins to renew the lease of a claim.
    pub(super) fn keep(self: &Arc<Self>, held: &Arc<HeldLock>) {
        // A grant that was under way for long may be due at once; the task then wakes at once.
        // The clock of a test may stand still.
        let pause = if self.clock.is_system() { LISTEN_AFTER } else { Duration::ZERO };
        let loss_push = self.capabilities().promises(Requirement::LossPush);
        let listens = loss_push.then(|| self.clock.now().after(pause));
        let due = held.first_due().min(listens.unwrap_or(Moment::NEVER));
        let mut rows = self.rows();
        let before = rows.keep(held, listens, due);
        self.look_by(&mut rows, due);
        drop(rows);
        drop(before);
        if self.phase() != OPEN {
            self.note_ended();
        }
    }

    /// Looks at all claims that are due, and acts on what it has found. Returns when to look next; `None` when there
    /// is nothing more to do. `hurried`: releases that are due by this moment are not waited for.
    fn look(self: &Arc<Self>, hurried: Option<Moment>) -> Option<Moment> {
        let mut rows = self.rows();
        let found = self.find(&mut rows, hurried);
        let wakes = rows.slab.iter().map(|(_, row)| row.due).min().filter(|due| *due < Moment::NEVER);
        rows.wakes = wakes;
        drop(rows);
        self.act(found);
        wakes
    }

    /// What is due. It is acted on when the rows are not locked any more.
    fn find(&self, rows: &mut Rows, hurried: Option<Moment>) -> Found {
        let mut found = Found::default();
        let (now, phase) = (self.clock.now(), self.phase());
        let (all, by) = (std::mem::take(&mut rows.stale), hurried.unwrap_or(now).max(now));
        // Leases are renewed together: if one of them is due, others may be so soon.
        let is_lease = |row: &Row| row.held.is_some() && row.listens.is_none_or(|at| at > now);
        let leases = all || rows.slab.iter().any(|(_, row)| row.due <= now && is_lease(row));
        let due = |row: &Row| all || row.due <= by || (leases && row.held.is_some());
        let due = rows.slab.iter().filter(|(_, row)| due(row));
        for key in due.map(|(key, _)| key).collect::<Vec<_>>() {
            look_at(rows, key, (now, by), phase, &mut found);
        }
        found
    }

    /// Acts on what was found, outside of the mutex of the rows, since it wakes tasks of the application.
    fn act(self: &Arc<Self>, found: Found) {
        for batch in batches(found.due, self.clock.now()) {
            let book = Arc::clone(self);
            drop(self.keeper.spawn(async move {
                book.renew(batch).await;
                book.look_again();
            }));
        }
        for held in found.listening {
            let book = Arc::clone(self);
            drop(self.keeper.spawn(async move { book.listen(&held).await }));
        }
        for claim in found.released {
            let book = Arc::clone(self);
            drop(self.keeper.spawn(async move { book.release_once(&claim).await }));
        }
        for (held, state) in found.changes {
            held.announce(state);
        }
        for claim in found.given_up {
            claim.pass_on();
        }
        for claim in found.unanswered {
            tracing::warn!(lockwell.name = %claim.name(), "the release is not repeated any more; what the claim holds ends with its lease");
            claim.ring();
        }
        // Some of them may be denied, or over.
        self.note_ended();
    }

    /// Steps a lease by the losses and doubts that the backend reports, until the lease ends.
    async fn listen(&self, held: &HeldLock) {
        let lost = std::pin::pin!(self.backend.lost(held.grant()));
        let doubted = async {
            loop {
                self.backend.doubted(held.grant()).await;
                // A lease in doubt keeps the time of its next try.
                if held.lease_state() == LeaseState::Held {
                    let event = self.doubt(held, rand::random(), "the connection is down", Duration::MAX);
                    held.on(self.clock.now(), event);
                    self.look_again();
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

    /// Releases a claim that was left to the keeper.
    ///
    /// Where a request of the acquire may still be on its way, "not held" is no proof: the request may be
    /// carried out later. After the ttl and a margin the lease has ended by itself, unless the network has
    /// kept a request for longer than that; such a lease is never renewed.
    async fn release_once(self: &Arc<Self>, claim: &Claim) {
        let called = AssertUnwindSafe(async { self.backend.release(claim).await }).catch_unwind();
        let answer = match self.clock.timeout(CALL, called).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(Error::new(ErrorKind::Internal, "the backend has panicked")),
            None => Err(Error::new(ErrorKind::Unreachable, "no answer in time")),
        };
        if let Err(error) = &answer {
            self.failed(claim, error);
        }
        if matches!(answer, Ok(Released::Released)) && claim.life(|life| life.is_watched()) {
            tracing::info!(lockwell.name = %claim.name(), "a late copy of a request had taken the lock");
        }
        let answer = answer
            .map_err(|error| matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::UnknownOutcome));
        self.step(claim, Act::Freed(answer, rand::random()));
        // Its caller may wait for this answer.
        claim.ring();
    }

    pub(super) fn failed(&self, claim: &Claim, error: &Error) {
        self.telemetry.release_failed();
        tracing::info!(lockwell.name = %claim.name(), error = format!("{error:#}"), "the release is tried again");
    }
}

/// Looks at one claim: ends a lease past its deadline, finds out whether to renew it, or to release the claim.
fn look_at(rows: &mut Rows, key: usize, (now, by): (Moment, Moment), phase: u8, found: &mut Found) {
    let row = &mut rows.slab[key];
    let claim = row.claim.clone();
    let mut due = Moment::NEVER;
    if let Some(held) = row.held.take() {
        match row.listens {
            Some(at) if at <= now => {
                row.listens = None;
                found.listening.push(Arc::clone(&held));
            }
            Some(at) => due = at,
            None => (),
        }
        let (mut advice, change) = held.step(now, Event::Tick);
        if let Some(state) = change {
            found.changes.push((Arc::clone(&held), state));
        }
        if advice == Advice::Renew && phase != OPEN {
            // What is held is lost at its deadline.
            advice = Advice::Sleep(held.valid_until());
        } else if advice == Advice::Renew {
            found.due.push(Arc::clone(&held));
            advice = held.step(now, Event::Sent).0;
        }
        match advice {
            Advice::Done => {
                let is_over =
                    matches!(held.lease_state(), LeaseState::Lost(Loss::HeldTooLong | Loss::NoProgress));
                found.held.push(held);
                if is_over {
                    // The lease at the server is still alive, but nobody relies on it any more.
                    let from = now.after(claim.lock_delay());
                    rows.step(&claim, &|| now, Act::TakeOver { known: true, from });
                }
            }
            Advice::Sleep(until) => {
                due = due.min(until);
                row.held = Some(held);
            }
            Advice::Renew => {
                due = now;
                row.held = Some(held);
            }
        }
    }
    let now = if claim.life(|life| life.is_taken()) { by } else { now };
    let mut next = rows.step(&claim, &|| now, if phase == CLOSED { Act::Closed } else { Act::Tick });
    if next == Next::GiveUp {
        next = rows.step(&claim, &|| now, Act::GiveUp);
        // One that was granted meanwhile has its turn, or the next task has it.
        if !claim.life(|life| life.is_held()) {
            found.given_up.push(claim.clone());
        }
    }
    if next == Next::Release {
        found.released.push(claim.clone());
        next = rows.step(&claim, &|| now, Act::Sent);
    }
    if next == Next::Unanswered {
        found.unanswered.push(claim.clone());
    }
    let row = &mut rows.slab[key];
    row.due = due.min(next.due(now));
    if matches!(next, Next::Over | Next::Unanswered) && row.book.is_some() {
        found.rows.extend(rows.take(&claim));
    }
}

#[cfg(test)]
#[path = "tests/orders.rs"]
mod orders;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Class, PassOn};
    use crate::life::Limits;
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
    async fn other_tasks_run_between_two_looks_that_take_long() {
        let test = TestClock::new();
        let clock = test.clock();
        let book = Book::start(Arc::new(MemoryLock::with_clock(clock.clone()))).unwrap();
        // Nothing is renewed, and the keeper does not look.
        book.close_releases();
        book.rows().wakes = Some(clock.now());
        let stubs = [1, 2, 3].map(|secs| {
            // Each look finds that one more of them has ended.
            let (name, ttl) = (LockName::new(secs.to_string()).unwrap(), Duration::from_secs(secs));
            let claim = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "test".into());
            let claim = claim.with_clock(clock.clone());
            claim.put_turn(Arc::new(SlowTurn(test.clone())));
            let grant = Grant::new(&claim, FencingToken::new(1), clock.now());
            let stub = book.adopt(&claim);
            stub.keep(&Arc::new(HeldLock::new(grant, Class::default(), Limits::default(), &book.telemetry)));
            book.rows().slab.iter_mut().for_each(|(_, row)| row.listens = None);
            stub
        });
        test.advance(Duration::from_secs(1));
        let (weak, earlier) = (Arc::downgrade(&book), Notify::new());
        let mut running = Box::pin(run(&weak, &clock, &earlier, clock.now(), None));
        for left in [2, 1] {
            assert!(running.as_mut().now_or_never().is_none(), "nothing else runs between two looks");
            assert_eq!(book.stats().held, left);
        }
        drop(stubs);
    }

    #[tokio::test]
    async fn locks_that_are_held_for_a_moment_have_one_task() {
        let book = Book::start(Arc::new(MemoryLock::new())).unwrap();
        let name = LockName::new("a").unwrap();
        let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(60), Wait::No, "test".into());
        let grant = book.backend.acquire(&claim).await.unwrap().expect("it is free");
        let held = Arc::new(HeldLock::new(grant, Class::default(), Limits::default(), &book.telemetry));
        let stub = book.adopt(&claim);
        stub.keep(&held);
        stub.disarm();
        // If the task ended now, each lock would start one, and wake the keeper's thread.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(book.rows().wakes.is_some());
    }
}
