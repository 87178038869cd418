//! The state of the in-memory server. Time is an argument; nothing here waits.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;

use super::records::Records;
use super::turn::{Afterwards, WaiterTurn};
use crate::{
    Claim, Error, ErrorKind, FencingToken, Grant, Holder, LockName, LockStatus, Mode, Moment, OwnerId,
    RecordWrite, Released, Renewal, Result, Wait, WaitingClaim,
};

/// How many names are kept while nobody holds them.
const IDLE_KEPT: usize = 1024;

/// The immediate answer to an acquire.
pub(super) enum StoreReply {
    Granted(Grant),
    Refused,
    /// The waiter leaves when it drops its turn. How the lock is in use, which is to be logged when the store is
    /// not locked any more.
    Queued(Arc<WaiterTurn>, Option<Mode>),
}

/// A counter of tokens, which may outlive the servers that use it.
pub(super) type Tokens = Arc<AtomicU64>;

#[derive(Default)]
pub(super) struct Store {
    locks: HashMap<LockName, StoredLock, RandomState>,
    /// The last token. One counter for all names: tokens rise for each name even though entries come and go.
    tokens: Tokens,
    /// They outlive the locks.
    pub(super) records: Records,
    afterwards: Afterwards,
}

#[derive(Default)]
struct StoredLock {
    holders: Vec<Lease>,
    queue: VecDeque<StoredWaiter>,
}

struct Lease {
    claim: Claim,
    token: FencingToken,
    since: Moment,
    expires: Moment,
}

struct StoredWaiter {
    claim: Claim,
    since: Moment,
    turn: Weak<WaiterTurn>,
}

impl StoredLock {
    fn drop_expired(&mut self, now: Moment, afterwards: &mut Afterwards) {
        if self.holders.iter().any(|lease| lease.expires <= now) {
            let all = std::mem::take(&mut self.holders);
            let (ended, left): (Vec<_>, _) = all.into_iter().partition(|lease| lease.expires <= now);
            self.holders = left;
            afterwards.drops.extend(ended.into_iter().map(|lease| lease.claim));
        }
    }

    /// The mode of the holders; `None` if there are none.
    fn mode(&self) -> Option<Mode> {
        self.holders.first().map(|lease| lease.claim.mode())
    }

    /// All holders are of one kind: the first comes to a name that nobody holds, and each other is of the mode
    /// of those who hold it.
    fn admits(&self, mode: Mode) -> bool {
        self.mode().is_none_or(|held| mode.may_join(held, self.holders.len()))
    }

    /// Ends leases that have run out, and grants to the head of the queue for as long as it fits.
    fn promote(&mut self, tokens: &Tokens, now: Moment, afterwards: &mut Afterwards) {
        self.drop_expired(now, afterwards);
        while let Some(waiter) = self.queue.front() {
            if !self.admits(waiter.claim.mode()) {
                break;
            }
            let Some(StoredWaiter { claim, turn, .. }) = self.queue.pop_front() else { break };
            // One that has left without a word gets nothing.
            if let Some(turn) = turn.upgrade() {
                let token = next(tokens, &claim);
                turn.end(Some(self.grant(&claim, token, now)));
                afterwards.wakes.push(turn);
            }
            afterwards.drops.push(claim);
            // The first waiter watches the lease.
            self.wake_first(afterwards);
        }
    }

    /// The first waiter looks again: the lease to watch is another one now.
    fn wake_first(&self, afterwards: &mut Afterwards) {
        afterwards.wakes.extend(self.queue.front().and_then(|head| head.turn.upgrade()));
    }

    /// Takes a claim out of the queue.
    fn leave(&mut self, claim: &Claim, afterwards: &mut Afterwards) -> bool {
        let place = self.queue.iter().position(|waiter| waiter.claim.owner() == claim.owner());
        let Some(waiter) = place.and_then(|at| self.queue.remove(at)) else { return false };
        if let Some(turn) = waiter.turn.upgrade() {
            turn.end(None);
            afterwards.wakes.push(turn);
        }
        afterwards.drops.push(waiter.claim);
        if place == Some(0) {
            self.wake_first(afterwards);
        }
        true
    }

    fn grant(&mut self, claim: &Claim, token: FencingToken, now: Moment) -> Grant {
        self.holders.push(Lease { claim: claim.clone(), token, since: now, expires: now.after(claim.ttl()) });
        Grant::new(claim, token, now)
    }

    fn position(&self, claim: &Claim) -> Option<usize> {
        self.holders.iter().position(|lease| lease.claim.owner() == claim.owner())
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }
}

fn next(tokens: &Tokens, claim: &Claim) -> FencingToken {
    let many = u64::from(claim.tokens().get());
    FencingToken::new(tokens.fetch_add(many, Ordering::Relaxed) + many)
}

impl Store {
    /// An empty server that takes its tokens from this counter.
    pub(super) fn counting(tokens: &Tokens) -> Self {
        Self { tokens: Arc::clone(tokens), ..Self::default() }
    }

    /// What is to be done when the store is not locked any more.
    pub(super) fn take_afterwards(&mut self) -> Afterwards {
        std::mem::take(&mut self.afterwards)
    }

    pub(super) fn acquire(&mut self, claim: &Claim, now: Moment) -> Result<StoreReply> {
        // Names that come again are the usual case: only a new one is worth a copy.
        let entry = match self.locks.get_mut(claim.name()) {
            Some(entry) => entry,
            None => self.locks.entry(claim.name().clone()).or_default(),
        };
        entry.promote(&self.tokens, now, &mut self.afterwards);
        if let Some(at) = entry.position(claim) {
            return Ok(StoreReply::Granted(Grant::new(
                claim,
                entry.holders[at].token,
                entry.holders[at].since,
            )));
        }
        if entry.queue.is_empty() && entry.admits(claim.mode()) {
            return Ok(StoreReply::Granted(entry.grant(claim, next(&self.tokens, claim), now)));
        }
        // One that waits is a writer to those of another kind: it gets the lock when they have left, and the
        // queue keeps others of their kind behind it.
        let in_use = entry.mode();
        if claim.wait() == Wait::No {
            return claim.note_in_use(in_use).map(|()| StoreReply::Refused);
        }
        let turn = Arc::<WaiterTurn>::default();
        let waiter = StoredWaiter { claim: claim.clone(), since: now, turn: Arc::downgrade(&turn) };
        entry.queue.push_back(waiter);
        Ok(StoreReply::Queued(turn, in_use))
    }

    /// Ends leases that have run out, and grants to the head of the queue for as long as it fits.
    pub(super) fn promote(&mut self, name: &LockName, now: Moment) {
        let Some(entry) = self.locks.get_mut(name) else { return };
        entry.promote(&self.tokens, now, &mut self.afterwards);
        self.forget_if_idle(name);
    }

    /// A few idle entries are kept, since the same names come again and again.
    fn forget_if_idle(&mut self, name: &LockName) {
        if self.locks.len() > IDLE_KEPT && self.locks.get(name).is_some_and(StoredLock::is_idle) {
            self.locks.remove(name);
        }
    }

    pub(super) fn renew(&mut self, claim: &Claim, now: Moment) -> Renewal {
        self.promote(claim.name(), now);
        let lease = self
            .locks
            .get_mut(claim.name())
            .and_then(|entry| entry.holders.iter_mut().find(|lease| lease.claim.owner() == claim.owner()));
        match lease {
            Some(lease) => {
                lease.expires = now.after(claim.ttl());
                Renewal::Renewed(crate::life::valid_until(now, claim.ttl()))
            }
            None => Renewal::Lost,
        }
    }

    pub(super) fn downgrade(&mut self, grant: &Grant, now: Moment) -> Result<Grant> {
        self.promote(grant.claim().name(), now);
        let entry = self.locks.get_mut(grant.claim().name());
        let held = entry.and_then(|entry| entry.position(grant.claim()).map(|at| (entry, at)));
        let Some((entry, at)) = held else {
            return Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"));
        };
        let grant = grant.downgraded();
        let writer = std::mem::replace(&mut entry.holders[at].claim, grant.claim().clone());
        self.afterwards.drops.push(writer);
        entry.promote(&self.tokens, now, &mut self.afterwards);
        Ok(grant)
    }

    /// Reads the clock only if somebody waits.
    pub(super) fn release(&mut self, claim: &Claim, now: impl FnOnce() -> Moment) -> Released {
        let Some(entry) = self.locks.get_mut(claim.name()) else { return Released::NotHeld };
        // The caller has a handle to the claim, so none of these is the last.
        let held = entry.position(claim).map(|at| entry.holders.remove(at)).is_some();
        let mut left = false;
        if !entry.queue.is_empty() {
            left = entry.leave(claim, &mut self.afterwards);
            entry.promote(&self.tokens, now(), &mut self.afterwards);
        }
        if self.locks.len() > IDLE_KEPT {
            self.forget_if_idle(claim.name());
        }
        if held || left { Released::Released } else { Released::NotHeld }
    }

    pub(super) fn leave_queue(&mut self, claim: &Claim) {
        if let Some(entry) = self.locks.get_mut(claim.name()) {
            entry.leave(claim, &mut self.afterwards);
            // Waiters behind this claim may be admissible now.
            self.promote(claim.name(), claim.clock().now());
        }
    }

    /// When the next lease of `name` runs out.
    pub(super) fn next_expiry(&self, name: &LockName) -> Moment {
        let holders = self.locks.get(name).map_or(&[][..], |entry| &entry.holders);
        holders.iter().map(|lease| lease.expires).min().unwrap_or(Moment::NEVER)
    }

    pub(super) fn inspect(&mut self, name: &LockName, now: Moment) -> LockStatus {
        self.promote(name, now);
        let Some(entry) = self.locks.get(name) else { return LockStatus::new(name.clone(), Vec::new(), 0) };
        let holders = entry.holders.iter().map(|lease| {
            let claim = &lease.claim;
            Holder::new(lease.token, claim.label(), claim.mode(), lease.expires.since(now))
                .held_for(now.since(lease.since))
        });
        let waiting = entry.queue.iter().map(|waiter| {
            WaitingClaim::new(waiter.claim.label(), waiter.claim.mode(), Some(now.since(waiter.since)))
        });
        LockStatus::new(name.clone(), holders.collect(), entry.queue.len()).waiting(waiting)
    }

    /// The names that somebody holds.
    pub(super) fn names(&self, now: Moment) -> Vec<LockName> {
        let held =
            self.locks.iter().filter(|(_, entry)| entry.holders.iter().any(|lease| lease.expires > now));
        held.map(|(name, _)| name.clone()).collect()
    }

    /// Who holds it.
    pub(super) fn owners(&self, name: &LockName, now: Moment) -> Vec<OwnerId> {
        let holders = self.locks.get(name).into_iter().flat_map(|entry| &entry.holders);
        holders.filter(|lease| lease.expires > now).map(|lease| lease.claim.owner()).collect()
    }

    pub(super) fn force_release(&mut self, name: &LockName, now: Moment) -> usize {
        let Some(entry) = self.locks.get_mut(name) else { return 0 };
        entry.drop_expired(now, &mut self.afterwards);
        let freed = std::mem::take(&mut entry.holders);
        let number = freed.len();
        self.afterwards.drops.extend(freed.into_iter().map(|lease| lease.claim));
        self.promote(name, now);
        number
    }

    /// A lease that has ended is the present one until another claim has the lock: no clock is read.
    pub(super) fn write_record(&mut self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let claim = grant.claim();
        let entry = self.locks.get(claim.name());
        let lease = entry.and_then(|entry| entry.position(claim).map(|at| &entry.holders[at]));
        let is_held =
            |lease: &Lease| lease.claim.mode() == Mode::Exclusive && lease.token == grant.last_token();
        if !lease.is_some_and(is_held) {
            return write.answer(grant, None);
        }
        self.records.write(grant, write)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    fn claim(mode: Mode, wait: Wait) -> Claim {
        let name = LockName::new("a").unwrap();
        Claim::new(name, mode, Duration::from_secs(10), wait, "test".into())
    }

    fn granted(answer: Result<StoreReply>) -> Grant {
        match answer {
            Ok(StoreReply::Granted(grant)) => grant,
            _ => panic!("not granted"),
        }
    }

    fn queued(answer: Result<StoreReply>) -> Arc<WaiterTurn> {
        match answer {
            Ok(StoreReply::Queued(turn, _)) => turn,
            _ => panic!("not queued"),
        }
    }

    #[test]
    fn asked_again_the_answer_is_the_same() {
        let (mut store, now) = (Store::default(), Moment::now());
        let mine = claim(Mode::Exclusive, Wait::No);
        let first = granted(store.acquire(&mine, now));
        assert_eq!(granted(store.acquire(&mine, now)).token(), first.token());
        assert_eq!(store.release(&mine, || now), Released::Released);
        assert_eq!(store.release(&mine, || now), Released::NotHeld);
        for n in 0..2 * IDLE_KEPT {
            let name = LockName::new(n.to_string()).unwrap();
            let one = Claim::new(name, Mode::Exclusive, Duration::from_secs(10), Wait::No, "test".into());
            granted(store.acquire(&one, now));
            store.release(&one, || now);
        }
        assert!(store.locks.len() <= IDLE_KEPT + 1, "little is left of locks that nobody uses");
    }

    #[test]
    fn a_writer_is_not_overtaken_by_readers() {
        let (mut store, now) = (Store::default(), Moment::now());
        let reader = claim(Mode::Shared, Wait::Forever);
        granted(store.acquire(&reader, now));
        let writer = queued(store.acquire(&claim(Mode::Exclusive, Wait::Forever), now));
        let late = queued(store.acquire(&claim(Mode::Shared, Wait::Forever), now));
        store.release(&reader, || now);
        let writing = writer.grant().expect("the writer's turn");
        assert!(late.grant().is_none());
        store.release(writing.claim(), || now);
        assert!(late.grant().is_some());
    }

    #[test]
    fn a_semaphore_counts() {
        let (mut store, now) = (Store::default(), Moment::now());
        let two = Mode::Permit { limit: NonZeroU32::new(2).unwrap() };
        let first = granted(store.acquire(&claim(two, Wait::No), now));
        granted(store.acquire(&claim(two, Wait::No), now));
        assert!(matches!(store.acquire(&claim(two, Wait::No), now), Ok(StoreReply::Refused)));
        let three = Mode::Permit { limit: NonZeroU32::new(3).unwrap() };
        let error = store.acquire(&claim(three, Wait::No), now).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::KindClash);
        assert!(error.to_string().contains("limit 2") && error.to_string().contains("limit 3"), "{error}");
        store.release(first.claim(), || now);
        granted(store.acquire(&claim(two, Wait::No), now));
    }

    #[test]
    fn another_kind_waits_and_is_not_overtaken() {
        let modes = [2, 3].map(|limit| Mode::Permit { limit: NonZeroU32::new(limit).unwrap() });
        for (old, new) in [(modes[0], modes[1]), (Mode::Shared, modes[0]), (modes[1], Mode::Exclusive)] {
            let (mut store, now) = (Store::default(), Moment::now());
            let held = granted(store.acquire(&claim(old, Wait::No), now));
            let first = queued(store.acquire(&claim(new, Wait::Forever), now));
            let behind = queued(store.acquire(&claim(old, Wait::Forever), now));
            assert!(matches!(store.acquire(&claim(old, Wait::No), now), Ok(StoreReply::Refused)));
            store.release(held.claim(), || now);
            let next = first.grant().expect("the old kind has left");
            assert!(behind.grant().is_none(), "{old} beside {new}");
            // What waited behind one that has left goes on.
            let left = claim(new, Wait::Forever);
            let leaving = queued(store.acquire(&left, now));
            store.leave_queue(&left);
            assert!(leaving.outcome().is_some_and(|outcome| outcome.is_err()));
            store.release(next.claim(), || now);
            assert!(behind.grant().is_some());
        }
    }

    #[test]
    fn a_lease_that_ran_out_frees_the_lock_for_the_head() {
        let (mut store, now) = (Store::default(), Moment::now());
        let dead = granted(store.acquire(&claim(Mode::Exclusive, Wait::No), now));
        let turn = queued(store.acquire(&claim(Mode::Exclusive, Wait::Forever), now));
        let later = now.after(Duration::from_secs(10));
        assert_eq!(store.next_expiry(dead.claim().name()), later);
        store.promote(dead.claim().name(), later);
        let next = turn.grant().expect("the head's turn");
        assert!(next.token() > dead.token());
        assert!(matches!(store.renew(dead.claim(), later), Renewal::Lost));
        assert_eq!(store.release(dead.claim(), || later), Released::NotHeld);
    }

    #[test]
    fn a_waiter_that_vanished_does_not_get_the_lock() {
        let (mut store, now) = (Store::default(), Moment::now());
        let holder = granted(store.acquire(&claim(Mode::Exclusive, Wait::No), now));
        drop(queued(store.acquire(&claim(Mode::Exclusive, Wait::Forever), now)));
        let second = queued(store.acquire(&claim(Mode::Exclusive, Wait::Forever), now));
        assert_eq!(store.force_release(holder.claim().name(), now), 1);
        assert!(second.grant().is_some());
    }
}
