//! One attempt to take a lock.

mod fate;
mod present_hold;
mod turn;
mod wait;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::system::{lock, wake_tasks};
use crate::{Clock, Error, HoldId, LockName, Mode, Moment, OwnerId};

pub(crate) use fate::Fate;
use present_hold::PresentHold;
pub(crate) use turn::PassOn;
use turn::TurnSlot;
pub(crate) use wait::FIRST_ANSWER;

/// How long after the end of a lease a late copy of a request may still arrive.
const COPY_MARGIN: Duration = Duration::from_secs(5);

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
    name: LockName,
    mode: Mode,
    owner: OwnerId,
    /// Made when it is asked for.
    hold_id: OnceLock<HoldId>,
    ttl: Duration,
    lock_delay: Duration,
    tokens: AtomicU32,
    wait: Wait,
    label: Arc<str>,
    clock: Clock,
    began: AtomicU64,
    in_doubt_until: AtomicU64,
    queued: AtomicBool,
    waiting: AtomicBool,
    answered: AtomicBool,
    cancelled: AtomicBool,
    abandoned: AtomicBool,
    place_wanted: AtomicBool,
    bell: Notify,
    fate: OnceLock<Fate>,
    obstacle: Mutex<Option<Error>>,
    turn: TurnSlot,
    present_hold: PresentHold,
}

impl Claim {
    /// A claim with a new owner id.
    pub fn new(name: LockName, mode: Mode, ttl: Duration, wait: Wait, label: Arc<str>) -> Self {
        Self(Arc::new(ClaimInner {
            name,
            mode,
            owner: OwnerId::random(),
            hold_id: OnceLock::new(),
            ttl,
            lock_delay: Duration::ZERO,
            tokens: AtomicU32::new(1),
            wait,
            label,
            clock: Clock::system(),
            began: AtomicU64::new(Moment::now().as_nanos()),
            in_doubt_until: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            place_wanted: AtomicBool::new(false),
            bell: Notify::new(),
            fate: OnceLock::new(),
            obstacle: Mutex::default(),
            turn: TurnSlot::default(),
            present_hold: PresentHold::default(),
        }))
    }

    /// The claim of an owner that took a lock earlier, perhaps in another process, to release that lock. It
    /// must not be used to acquire.
    pub fn of_owner(name: LockName, mode: Mode, owner: OwnerId) -> Self {
        let mut claim = Self::new(name, mode, Duration::ZERO, Wait::No, "".into());
        if let Some(inner) = Arc::get_mut(&mut claim.0) {
            inner.owner = owner;
        }
        claim
    }

    /// The same claim with a lock delay: the lease at the server lasts longer than the holder's validity by
    /// this time. A claim with other handles is not changed.
    #[must_use]
    pub fn with_lock_delay(mut self, lock_delay: Duration) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.ttl = inner.ttl.saturating_sub(inner.lock_delay).saturating_add(lock_delay);
            inner.lock_delay = lock_delay;
        }
        self
    }

    /// The same claim with this number of tokens to reserve, for backends that promise
    /// [`token_blocks`](crate::Requirement::TokenBlocks). A claim with other handles is not changed.
    #[must_use]
    pub fn reserving(mut self, tokens: NonZeroU32) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.tokens = tokens.get().into();
        }
        self
    }

    /// The same claim with another clock than the machine's. A claim with other handles is not changed.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        if clock.is_system() && self.0.clock.is_system() {
            return self;
        }
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.began = AtomicU64::new(clock.now().as_nanos());
            inner.clock = clock;
        }
        self
    }

    /// The claim of the same owner as a reader, which a writer has after a downgrade.
    #[must_use]
    pub fn downgraded(&self) -> Self {
        let ClaimInner { name, owner, ttl, lock_delay, label, clock, .. } = &*self.0;
        Self(Arc::new(ClaimInner {
            name: name.clone(),
            mode: Mode::Shared,
            owner: *owner,
            hold_id: OnceLock::from(self.hold_id()),
            ttl: *ttl,
            lock_delay: *lock_delay,
            tokens: self.tokens().get().into(),
            wait: Wait::No,
            label: Arc::clone(label),
            clock: clock.clone(),
            began: AtomicU64::new(self.began().as_nanos()),
            in_doubt_until: AtomicU64::new(self.0.in_doubt_until.load(Ordering::Acquire)),
            queued: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            place_wanted: AtomicBool::new(false),
            bell: Notify::new(),
            fate: OnceLock::new(),
            obstacle: Mutex::default(),
            turn: TurnSlot::default(),
            present_hold: PresentHold::default(),
        }))
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// How the lock is to be held.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// The secret identity of this acquisition.
    pub fn owner(&self) -> OwnerId {
        self.0.owner
    }

    /// The identity of its last hold, from which those of the others follow: see [`Grant::hold_id`].
    ///
    /// [`Grant::hold_id`]: crate::Grant::hold_id
    pub(crate) fn hold_id(&self) -> HoldId {
        *self.0.hold_id.get_or_init(HoldId::random)
    }

    /// How long the lease lasts at the server from the last successful request, the [lock
    /// delay](Self::lock_delay) included.
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// The lock delay: how long a lock stays taken after its holder has died. It is the last part of the ttl,
    /// in which the lock is not held any more. Backends can ignore it.
    pub fn lock_delay(&self) -> Duration {
        self.0.lock_delay
    }

    /// How many tokens the grant reserves: the counter of the name rises by this number. See [`Grant::new`].
    ///
    /// [`Grant::new`]: crate::Grant::new
    pub fn tokens(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.tokens.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// Sets how many tokens the grant reserves. Nothing has been sent.
    pub(crate) fn reserve(&self, tokens: NonZeroU32) {
        self.0.tokens.store(tokens.get(), Ordering::Relaxed);
    }

    /// How long to wait for the lock.
    pub fn wait(&self) -> Wait {
        self.0.wait
    }

    /// A human-readable text that names the client: host and process, unless the application has set another.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// The clock for the times of the claim.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// When the claim was made, or when its turn came in the queue of this process. Nothing was sent before
    /// that.
    pub fn began(&self) -> Moment {
        Moment::from_nanos(self.0.began.load(Ordering::Acquire))
    }

    /// Notes that the claim has waited in this process, and is sent to the server now.
    pub(crate) fn begin_now(&self) {
        self.0.began.store(self.0.clock.now().as_nanos(), Ordering::Release);
        // The answer of the server is still to come.
        self.0.answered.store(false, Ordering::Release);
    }

    /// For backends: notes why the server decides nothing about the claim now, such as a grace period, or
    /// that it does again. A task that waits behind the claim in this process ends with this error if its
    /// wait is over meanwhile. [`wait_for_turn`](crate::backend::wait_for_turn) calls it.
    pub fn note_obstacle(&self, obstacle: Option<&Error>) {
        *lock(&self.0.obstacle) = obstacle.map(Error::duplicate);
    }

    /// Notes that the server may now have a place in a queue for this claim. A backend calls it *before* it
    /// sends the request that queues, so that `lockcore` knows that the claim needs a clean-up.
    pub fn note_queued(&self) {
        self.0.queued.store(true, Ordering::Release);
    }

    /// Notes that the server has answered, and that the claim has to wait for its turn from now on.
    /// [`wait_for_turn`](crate::backend::wait_for_turn) calls it; a backend that does not use that function
    /// calls it itself. Until then the wait covers the first answer, for a second at most, even if its time
    /// has passed.
    pub fn note_waiting(&self) {
        self.0.waiting.store(true, Ordering::Relaxed);
        self.0.answered.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the claim has had to wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Notes that the server has just confirmed that it has no place in a queue for this claim any more.
    pub fn note_left_queue(&self) {
        self.0.queued.store(false, Ordering::Release);
    }

    /// Whether the server may have a place in a queue for this claim.
    pub fn may_be_queued(&self) -> bool {
        self.0.queued.load(Ordering::Acquire)
    }

    /// Notes that a request that takes the lock is in doubt: it has no answer, and its connection was
    /// discarded, so it may reach the server after the release. A backend calls this when it repeats such a
    /// request.
    ///
    /// `lockcore` then repeats the release in the background, until the lease of such a copy has ended.
    pub fn note_in_doubt(&self) {
        let until = self.0.clock.now().after(self.0.ttl).after(COPY_MARGIN);
        self.0.in_doubt_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
    }

    /// The time until which a late copy of a request may take the lock although no guard holds it; `None` if
    /// no request was in doubt.
    pub fn in_doubt_until(&self) -> Option<Moment> {
        match self.0.in_doubt_until.load(Ordering::Acquire) {
            0 => None,
            until => Some(Moment::from_nanos(until)),
        }
    }

    /// Its turn in the queue of this process.
    pub(crate) fn turn(&self) -> &TurnSlot {
        &self.0.turn
    }

    /// Which of its holds is the present one.
    pub(crate) fn present_hold(&self) -> &PresentHold {
        &self.0.present_hold
    }

    /// Decides what becomes of the acquire, unless that has been decided. Returns whether it is so.
    pub(crate) fn decide(&self, fate: Fate) -> bool {
        *self.0.fate.get_or_init(|| fate) == fate
    }

    /// Cancels the claim, because its client was closed. The backend stops waiting.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.ring();
    }

    /// Notes that the caller was dropped. The claim is cancelled by that, unless its place is wanted.
    pub(crate) fn abandon(&self) {
        self.0.abandoned.store(true, Ordering::Release);
        self.ring();
    }

    /// Another task takes over what a claim without a caller has got.
    pub(crate) fn adopt(&self) {
        self.0.abandoned.store(false, Ordering::Release);
    }

    /// Sets whether other tasks of this process wait behind this claim. Then its place in the queue of the
    /// server outlives the wait of its caller, and the caller itself. When the place is not wanted any more,
    /// [`ring`](Self::ring) is called next.
    pub(crate) fn want_place(&self, wanted: bool) {
        self.0.place_wanted.store(wanted, Ordering::Release);
    }

    /// Has the wait looked at again. Wakers of the application run in here.
    pub(crate) fn ring(&self) {
        wake_tasks(|| self.0.bell.notify_waiters());
    }

    /// Whether the place of this claim is kept for others. Before the first answer there is no place yet, and
    /// a claim that does not wait has none.
    pub(crate) fn keeps_place(&self) -> bool {
        self.0.wait != Wait::No && self.has_answer() && self.0.place_wanted.load(Ordering::Acquire)
    }

    /// Whether the server has answered, since the claim was sent to it.
    pub(crate) fn has_answer(&self) -> bool {
        self.0.answered.load(Ordering::Acquire)
    }

    /// Whether the caller is not there any more.
    pub(crate) fn has_no_caller(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire) || self.0.abandoned.load(Ordering::Acquire)
    }

    /// Whether the claim was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
            || (self.0.abandoned.load(Ordering::Acquire) && !self.keeps_place())
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("name", &self.0.name)
            .field("mode", &self.0.mode)
            .field("ttl", &self.0.ttl)
            .field("wait", &self.0.wait)
            .field("label", &self.0.label)
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
