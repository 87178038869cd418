//! One attempt to take a lock.

mod kinds;
mod turn;
mod wait;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Class;
use crate::life::Life;
use crate::system::{OrderedGuard, OrderedMutex, lock_ordered, wake_tasks};
use crate::{Clock, Error, HoldId, LockName, Mode, Moment, OwnerId};

pub(crate) use turn::PassOn;
pub(crate) use wait::{BACKEND_ANSWER, FIRST_ANSWER};

/// How long an acquire may wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Take the lock only if it is free now. A refused claim leaves nothing at the server.
    No,
    /// Wait until this moment, and for the first answer of the server a second at least.
    Until(Moment),
    /// Wait for as long as it takes.
    Forever,
}

/// One attempt to take a lock: the name, the mode, the owner, the lease, the wait, and whether it was
/// cancelled.
///
/// `lockcore` makes the claim before the first byte is sent. A release needs only the claim: so a backend can
/// clean up after a claim that was granted, that was queued, or whose outcome is unknown. Clones are handles
/// to the same claim.
#[derive(Clone)]
pub struct Claim(Arc<ClaimInner>);

struct ClaimInner {
    terms: Terms,
    state: OrderedMutex<ClaimState>,
    /// Notified when the wait, the lease or the release is to be looked at again.
    bell: Notify,
}

/// What is asked for, and by whom.
#[derive(Clone)]
struct Terms {
    name: LockName,
    mode: Mode,
    owner: OwnerId,
    ttl: Duration,
    lock_delay: Duration,
    wait: Wait,
    label: Arc<str>,
    class: Class,
    clock: Clock,
}

/// What becomes of a claim. No other mutex is locked while this is.
pub(crate) struct ClaimState {
    pub(crate) life: Life,
    tokens: NonZeroU32,
    obstacle: Option<Error>,
    /// Whether the log says that the claim waits for another kind of lock.
    meets_another_kind: bool,
    /// Why the last renewal of its lease failed; none if it succeeded.
    pub(crate) failure: Option<String>,
    /// Its turn in the queue of this process, if it has one, or its place there before that.
    ///
    /// The turn is passed on when the claim has been released, holds nothing or has lost its lock, or when the
    /// keeper releases it. It does not end with the handles to the claim, since a backend may have one for long.
    turn: Option<Arc<dyn PassOn>>,
    /// Its row in the book of its client.
    pub(crate) row: Option<usize>,
}

impl Claim {
    /// A claim with a new owner id.
    pub fn new(name: LockName, mode: Mode, ttl: Duration, wait: Wait, label: Arc<str>) -> Self {
        let (owner, lock_delay) = (OwnerId::random(), Duration::ZERO);
        let (class, clock) = (Class::default(), Clock::system());
        let terms = Terms { name, mode, owner, ttl, lock_delay, wait, label, class, clock };
        Self::made(terms, Life::new(Moment::now(), ttl, wait != Wait::No), NonZeroU32::MIN)
    }

    fn made(terms: Terms, life: Life, tokens: NonZeroU32) -> Self {
        let state = OrderedMutex::new(ClaimState {
            life,
            tokens,
            obstacle: None,
            meets_another_kind: false,
            failure: None,
            turn: None,
            row: None,
        });
        Self(Arc::new(ClaimInner { terms, state, bell: Notify::new() }))
    }

    /// The claim of an owner that took a lock earlier, perhaps in another process, to release that lock. It
    /// must not be used to acquire.
    pub fn of_owner(name: LockName, mode: Mode, owner: OwnerId) -> Self {
        let mut claim = Self::new(name, mode, Duration::ZERO, Wait::No, "".into());
        if let Some(inner) = Arc::get_mut(&mut claim.0) {
            inner.terms.owner = owner;
        }
        claim
    }

    /// This claim with a lock delay: the lease at the server lasts longer than the holder's validity by
    /// this time. A claim with other handles is not changed.
    #[must_use]
    pub fn with_lock_delay(mut self, lock_delay: Duration) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            let terms = &mut inner.terms;
            terms.ttl = terms.ttl.saturating_sub(terms.lock_delay).saturating_add(lock_delay);
            terms.lock_delay = lock_delay;
            lock_ordered(&inner.state).life.set_ttl(terms.ttl);
        }
        self
    }

    /// This claim with a class. A claim with other handles is not changed.
    pub(crate) fn with_class(mut self, class: Class) -> Self {
        // Most requests have no class: they need no look at the other handles.
        if class != Class::default() {
            if let Some(inner) = Arc::get_mut(&mut self.0) {
                inner.terms.class = class;
            }
        }
        self
    }

    /// This claim with a number of tokens to reserve, for backends that promise
    /// [`token_blocks`](crate::Requirement::TokenBlocks). A claim with other handles is not changed.
    #[must_use]
    pub fn reserving(mut self, tokens: NonZeroU32) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            lock_ordered(&inner.state).tokens = tokens;
        }
        self
    }

    /// This claim with another clock than the machine's. A claim with other handles is not changed.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        if clock.is_system() && self.0.terms.clock.is_system() {
            return self;
        }
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            lock_ordered(&inner.state).life.began = clock.now();
            inner.terms.clock = clock;
        }
        self
    }

    /// The claim of the same owner as a reader, which a writer has after a downgrade.
    #[must_use]
    pub fn downgraded(&self) -> Self {
        let (life, tokens) = {
            let state = self.state();
            (state.life.successor(), state.tokens)
        };
        let terms = Terms { mode: Mode::Shared, wait: Wait::No, ..self.0.terms.clone() };
        Self::made(terms, life, tokens)
    }

    /// What becomes of it.
    pub(crate) fn state(&self) -> OrderedGuard<'_, ClaimState> {
        lock_ordered(&self.0.state)
    }

    /// Looks at its life, or changes it.
    pub(crate) fn life<T>(&self, look: impl FnOnce(&mut Life) -> T) -> T {
        look(&mut self.state().life)
    }

    /// Whether both are handles to the same claim.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.terms.name
    }

    /// How the lock is to be held.
    pub fn mode(&self) -> Mode {
        self.0.terms.mode
    }

    /// The secret identity of this acquisition.
    pub fn owner(&self) -> OwnerId {
        self.0.terms.owner
    }

    /// The identity of its last hold, from which those of the others follow: see [`Grant::hold_id`].
    ///
    /// [`Grant::hold_id`]: crate::Grant::hold_id
    pub(crate) fn hold_id(&self) -> HoldId {
        HoldId::of(self.0.terms.owner)
    }

    /// How long the lease lasts at the server from the last successful request, the [lock
    /// delay](Self::lock_delay) included.
    pub fn ttl(&self) -> Duration {
        self.0.terms.ttl
    }

    /// The lock delay: how long a lock stays taken after its holder has died. It is the last part of the ttl,
    /// in which the lock is not held any more. Backends can ignore it.
    pub fn lock_delay(&self) -> Duration {
        self.0.terms.lock_delay
    }

    /// How many tokens the grant reserves: the counter of the name rises by this number. See [`Grant::new`].
    ///
    /// [`Grant::new`]: crate::Grant::new
    pub fn tokens(&self) -> NonZeroU32 {
        self.state().tokens
    }

    /// Sets how many tokens the grant reserves. Nothing has been sent.
    pub(crate) fn reserve(&self, tokens: NonZeroU32) {
        self.state().tokens = tokens;
    }

    /// How long to wait for the lock.
    pub fn wait(&self) -> Wait {
        self.0.terms.wait
    }

    /// A human-readable text that names the client: host and process, unless the application has set another.
    /// Behind it, and a control character, there may be a [traceparent](crate::TraceParent). A backend stores it
    /// as it is; [`Holder`](crate::Holder) and [`WaitingClaim`](crate::WaitingClaim) take it apart.
    pub fn label(&self) -> &str {
        &self.0.terms.label
    }

    /// The class of the request.
    pub(crate) fn class(&self) -> Class {
        self.0.terms.class
    }

    /// The clock for the times of the claim.
    pub fn clock(&self) -> &Clock {
        &self.0.terms.clock
    }

    /// When the claim was made, or when its turn came in the queue of this process. Nothing was sent before
    /// that.
    pub fn began(&self) -> Moment {
        self.life(|life| life.began)
    }

    /// Notes that the claim has waited in this process, and is sent to the server now.
    pub(crate) fn begin_now(&self) {
        let now = self.0.terms.clock.now();
        // The answer of the server is still to come.
        self.life(|life| (life.began, life.answered) = (now, false));
    }

    /// For backends: notes why the server decides nothing about the claim now, such as a grace period, or
    /// that it does again. A task that waits behind the claim in this process ends with this error if its
    /// wait is over meanwhile. [`wait_for_turn`](crate::backend::wait_for_turn) calls it.
    pub fn note_obstacle(&self, obstacle: Option<&Error>) {
        let obstacle = obstacle.map(Error::duplicate);
        let before = std::mem::replace(&mut self.state().obstacle, obstacle);
        // Outside of the mutex: its cause may be code of a backend.
        drop(before);
    }

    /// Notes that the server may now have a place in a queue for this claim. A backend calls it *before* it
    /// sends the request that queues, so that `lockcore` knows that the claim needs a clean-up.
    pub fn note_queued(&self) {
        self.life(|life| life.queued = true);
    }

    /// Notes that the server has answered, and that the claim has to wait for its turn from now on.
    /// [`wait_for_turn`](crate::backend::wait_for_turn) calls it; a backend that does not use that function
    /// calls it itself. Until then the wait covers the first answer, for a second at most, even if its time
    /// has passed.
    pub fn note_waiting(&self) {
        let obstacle = {
            let mut state = self.state();
            (state.life.waited, state.life.answered) = (true, true);
            state.obstacle.take()
        };
        // Outside of the mutex: its cause may be code of a backend.
        drop(obstacle);
        self.ring();
    }

    /// Whether the claim has had to wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.life(|life| life.waited)
    }

    /// Whether the server was asked for the lock, and its answer is still to come: it does not wait for its turn in this
    /// process.
    pub(crate) fn is_asked(&self) -> bool {
        self.life(|life| life.is_asked())
    }

    /// Notes that the server has just confirmed that it has no place in a queue for this claim any more.
    pub fn note_left_queue(&self) {
        self.life(|life| life.queued = false);
    }

    /// Whether the server may have a place in a queue for this claim.
    pub fn may_be_queued(&self) -> bool {
        self.life(|life| life.queued)
    }

    /// Notes that a request that takes the lock is in doubt: it has no answer, and its connection was
    /// discarded, so it may reach the server after the release. A backend calls this when it repeats such a
    /// request.
    ///
    /// `lockcore` then repeats the release in the background, until the lease of such a copy has ended.
    pub fn note_in_doubt(&self) {
        let now = self.0.terms.clock.now();
        self.life(|life| life.note_in_doubt(now));
    }

    /// The time until which a late copy of a request may take the lock although no guard holds it; `None` if
    /// no request was in doubt.
    pub fn in_doubt_until(&self) -> Option<Moment> {
        self.life(|life| life.in_doubt_until())
    }

    /// Puts a turn here. A lock that is handed on keeps its claim, which gets the turn of the next task.
    pub(crate) fn put_turn(&self, turn: Arc<dyn PassOn>) {
        let before = self.state().turn.replace(turn);
        // Outside of the mutex: dropping a turn may pass it on.
        drop(before);
    }

    /// Takes the turn away without passing it on.
    pub(crate) fn take_turn(&self) -> Option<Arc<dyn PassOn>> {
        self.state().turn.take()
    }

    /// Passes its turn on. Wakers of the application run in here.
    pub(crate) fn pass_on(&self) {
        if let Some(turn) = self.take_turn() {
            turn.pass_on();
        }
    }

    /// Cancels the claim, because its client was closed, or the backend cannot go on with it. The backend
    /// stops waiting.
    pub fn cancel(&self) {
        self.life(|life| life.cancelled = true);
        self.ring();
    }

    /// Notes that the caller was dropped. The claim is cancelled by that, unless its place is wanted.
    pub(crate) fn abandon(&self) {
        self.life(|life| life.abandoned = true);
        self.ring();
    }

    /// Another task takes over what a claim without a caller has got.
    pub(crate) fn adopt(&self) {
        self.life(|life| life.abandoned = false);
    }

    /// Sets whether the next task of this process can have the lock of this claim. Then its place in the queue of the
    /// server outlives the wait of its caller, and the caller itself. When the place is not wanted any more,
    /// [`ring`](Self::ring) is called next.
    pub(crate) fn want_place(&self, wanted: bool) {
        self.life(|life| life.wanted = wanted);
    }

    /// Has the wait looked at again. Wakers of the application run in here.
    pub(crate) fn ring(&self) {
        wake_tasks(|| self.0.bell.notify_waiters());
    }

    /// Resolves when the bell is rung.
    pub(crate) fn rung(&self) -> Notified<'_> {
        self.0.bell.notified()
    }

    /// Whether the place of this claim is kept for others. Before the first answer there is no place yet, and
    /// a claim that does not wait has none.
    pub(crate) fn keeps_place(&self) -> bool {
        self.life(|life| life.keeps_place())
    }

    /// Whether the server has answered, since the claim was sent to it.
    pub(crate) fn has_answer(&self) -> bool {
        self.life(|life| life.answered)
    }

    /// Whether the caller is not there any more.
    pub(crate) fn has_no_caller(&self) -> bool {
        self.life(|life| life.has_no_caller())
    }

    /// Whether its caller is there, and it cannot go on: the backend says so, or its client was closed.
    pub(crate) fn has_ended_early(&self) -> bool {
        self.life(|life| life.cancelled && !life.abandoned)
    }

    /// Whether the claim was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.life(|life| life.is_cancelled())
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("name", &self.0.terms.name)
            .field("mode", &self.0.terms.mode)
            .field("ttl", &self.0.terms.ttl)
            .field("wait", &self.0.terms.wait)
            .field("label", &self.0.terms.label)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(wait: Wait) -> Claim {
        let name = LockName::new("a").unwrap();
        Claim::new(name, Mode::Exclusive, Duration::from_secs(1), wait, "test".into())
    }

    #[test]
    fn debug_hides_the_owner() {
        let claim = claim(Wait::No);
        let secret = format!("{:032x}", claim.owner().as_u128());
        assert!(!format!("{claim:?}").contains(&secret[..8]));
    }
}
