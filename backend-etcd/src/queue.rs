//! The queue of a lock: who is before a claim, and for whom it waits. It does no I/O.
//!
//! A claim is a key, and its place is the create revision of the key. It waits for as few keys as possible:
//!
//! * a reader for the last writer or permit before it;
//! * a writer for the last key before it, and for those who held the lock as writers and read it now;
//! * a permit for the key before it, until that key is deleted or says that it holds a permit of the same
//!   semaphore; the first that waits waits for any of the holders.
//!
//! Two kinds of locks never hold a name together: a claim has its turn only if no key of another kind is before
//! it, in the revision that grants it the lock. A key that comes later is behind it, since create revisions rise.
//! Only a writer that becomes a reader gets a new key, and all wait for that one.

use std::cmp::Ordering;
use std::time::Duration;

use lockwell_core::{Claim, Mode, Result, Wait};

use crate::client::Answer;
use crate::floor::Stored;
use crate::keys::{self, Base, Kind};
use crate::messages::{
    Compare, KeyValue, Op, Put, Range, Txn, TxnReply, WatchCreate, after, below, between, exactly, one,
};

/// The requests of a claim, and what they have in common.
pub(crate) struct Requests<'a> {
    claim: &'a Claim,
    pub(crate) kind: Kind,
    pub(crate) folder: String,
    pub(crate) key: String,
    /// The key after a downgrade.
    downgraded: String,
    floor_key: String,
}

/// A claim's place in the queue.
pub(crate) struct Place {
    /// The create revision of its key.
    pub(crate) revision: i64,
    pub(crate) floor: Stored,
    /// What it waits for; none if it is its turn.
    pub(crate) blocker: Option<WatchCreate>,
}

/// What became of the request to enter the queue.
pub(crate) enum Entered {
    At(Place),
    /// The key is there already.
    Before(Place),
    /// The key is there, of a writer that reads now.
    Downgraded,
    /// The claim does not wait, and the lock is not free.
    Refused,
    /// There are keys that no claim has, and the message names one.
    Foreign(String),
    /// The floor has another value.
    Floor(Stored),
}

/// What was found before anything was written.
pub(crate) enum Peeked {
    Free,
    Refused,
    /// It is refused, and there are claims of another kind.
    OfTwoKinds,
}

/// What became of the request for the turn.
pub(crate) enum TurnAnswer {
    Granted,
    Blocked(Option<WatchCreate>),
    /// The key is gone, or the floor has changed: back to the end of the queue.
    Gone,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(prefix: &str, claim: &'a Claim) -> Self {
        let kind = Kind::of(claim.mode());
        let folder = keys::folder(prefix, claim.name());
        let key = |kind| keys::key(prefix, claim, kind);
        let (own, downgraded) = (key(kind), key(Kind::Downgraded));
        Self { claim, kind, key: own, downgraded, folder, floor_key: keys::floor(prefix) }
    }

    fn of_kind(&self, kind: Kind) -> Range {
        below(&format!("{}{}", self.folder, kind.part()))
    }

    /// Writers and readers, in which a claim of one of them has its place.
    fn both(&self) -> Range {
        let (first, last) = (Kind::Reader.part(), after(&Kind::Writer.part()));
        between(&format!("{}{first}", self.folder), &format!("{}{last}", self.folder))
    }

    /// Permits of all limits. No limit begins with a zero.
    fn permits(&self) -> Range {
        between(&format!("{}p1", self.folder), &format!("{}p:", self.folder))
    }

    /// Keys that no claim has: all but those of the kinds, in their order.
    fn foreign(&self) -> Vec<Range> {
        let kinds = [Kind::Downgraded, Kind::Reader, Kind::Writer].map(|kind| self.of_kind(kind));
        let [downgraded, reader, writer] = kinds;
        let mut from = self.folder.clone().into_bytes();
        let mut ranges = Vec::new();
        for kind in [downgraded, self.permits(), reader, writer] {
            ranges.push(Range {
                key: std::mem::replace(&mut from, kind.end),
                end: kind.key,
                ..Range::default()
            });
        }
        ranges.push(Range { key: from, end: after(&self.folder).into(), ..Range::default() });
        ranges
    }

    /// What a claim of this kind waits for, if it is before it.
    fn obstacles(&self) -> Vec<Range> {
        match self.kind {
            Kind::Writer | Kind::Downgraded => vec![below(&self.folder)],
            Kind::Reader => vec![self.of_kind(Kind::Writer), self.permits()],
            Kind::Permit(_) => {
                let (all, own) = (self.permits(), self.of_kind(self.kind));
                let below = Range { end: own.key.clone(), ..all.clone() };
                let above = Range { key: own.end.clone(), ..all };
                vec![own, below, above, self.both()]
            }
        }
    }

    /// The keys that may be before this one, which came at this revision. The last range has those who hold the
    /// lock, however young their keys are.
    fn earlier(&self, revision: Option<i64>) -> Vec<Range> {
        let max_create_revision = revision.map_or(0, |revision| revision.saturating_sub(1));
        let before = |(at, range): (usize, Range)| match self.kind {
            Kind::Permit(limit) if at == 0 => {
                Range { max_create_revision, ..range.newest(i64::from(limit) + 1) }
            }
            _ => Range { max_create_revision, ..range.newest(1) },
        };
        let before = self.obstacles().into_iter().enumerate().map(before);
        match self.kind {
            Kind::Reader => before.collect(),
            _ => before.chain([self.of_kind(Kind::Downgraded).newest(1)]).collect(),
        }
    }

    /// What to wait for, from what those ranges found at this revision.
    fn blocker(&self, found: &[Vec<KeyValue>], revision: i64) -> Option<WatchCreate> {
        const NO_WRITES: i32 = 0;
        let any = || found.iter().flatten().next();
        let (range, filters) = match (self.kind, found) {
            (Kind::Permit(limit), [own, others @ .., downgraded]) => {
                let count = own.len().cmp(&usize::try_from(limit).unwrap_or(usize::MAX));
                let is_alone = others.iter().all(Vec::is_empty);
                match count {
                    Ordering::Less if is_alone => (exactly(&downgraded.first()?.key), vec![NO_WRITES]),
                    Ordering::Equal if is_alone => (self.of_kind(self.kind), vec![NO_WRITES]),
                    _ => {
                        let before = own.iter().chain(others.iter().flatten());
                        let nearest = before.max_by_key(|kv| kv.create_revision)?;
                        let is_own = Kind::of_key(&nearest.key, &self.folder) == Some(self.kind);
                        (exactly(&nearest.key), if is_own { Vec::new() } else { vec![NO_WRITES] })
                    }
                }
            }
            _ => (exactly(&any()?.key), vec![NO_WRITES]),
        };
        let Range { key, end, .. } = range;
        Some(WatchCreate { key, end, start_revision: revision.saturating_add(1), filters, id: 0 })
    }

    /// How the lock is used by what the claim waits for.
    pub(crate) fn met(&self, place: &Place) -> Option<Mode> {
        Some(Kind::of_key(&place.blocker.as_ref()?.key, &self.folder)?.mode())
    }

    fn put(&self, floor: &Stored, since: Duration) -> Op {
        let value = keys::value(self.claim, Base::Floor(floor.number()), since);
        Op::Put(Put { key: self.key.clone().into(), value: value.into(), lease: keys::lease(self.claim) })
    }

    /// Puts the claim into the queue, unless it is there.
    ///
    /// The key belongs to the lease. So a copy of this request that arrives after the lease was revoked
    /// changes nothing.
    pub(crate) fn enter(&self, floor: &Stored, since: Duration) -> Txn {
        let foreign = self.foreign();
        let mut when = vec![floor.condition(&self.floor_key), Compare::absent(one(&self.key))];
        if self.kind == Kind::Writer {
            // A late copy of this request must not queue a claim that has become a reader.
            when.push(Compare::absent(one(&self.downgraded)));
        }
        when.extend(foreign.iter().cloned().map(Compare::absent));
        if self.claim.wait() == Wait::No {
            when.extend(self.refusing().into_iter().map(Compare::absent));
        }
        // Read before the own key is put.
        let mut then: Vec<_> = self.earlier(None).into_iter().map(Op::Range).collect();
        then.push(self.put(floor, since));
        let otherwise = [one(&self.floor_key), one(&self.key)];
        let otherwise = otherwise.into_iter().chain(foreign.into_iter().map(|range| range.newest(1)));
        Txn::new(when, then, otherwise.map(Op::Range))
    }

    pub(crate) fn entered(&self, answer: &Answer, floor: &Stored) -> Result<Entered> {
        if answer.succeeded {
            let blocker = self.blocker(&answer.found, answer.revision);
            let place = Place { revision: answer.revision, floor: floor.clone(), blocker };
            return Ok(Entered::At(place));
        }
        let stored = Stored::read(answer.first(0))?;
        let entry = |kv| keys::ClaimKey::read(kv, &self.folder);
        if let Some(mine) = answer.first(1).map(entry).filter(|entry| entry.is_ours) {
            return Ok(match mine.base {
                Base::Fixed(_) => Entered::Downgraded,
                Base::Floor(number) => {
                    // Another one than the stored one is found out by the next request.
                    let floor = if number == stored.number() { stored } else { Stored::of(number) };
                    Entered::Before(Place { revision: mine.create_revision, floor, blocker: None })
                }
            });
        }
        if stored != *floor {
            return Ok(Entered::Floor(stored));
        }
        let foreign = answer.found.iter().skip(2).flatten().next();
        Ok(foreign
            .map_or(Entered::Refused, |kv| Entered::Foreign(keys::held_by_others(&kv.key, &self.folder))))
    }

    /// The keys of which none may be there when a claim comes that does not wait.
    fn refusing(&self) -> Vec<Range> {
        let mut ranges = self.obstacles();
        if let Kind::Permit(_) = self.kind {
            ranges[0] = self.of_kind(Kind::Downgraded);
        }
        ranges
    }

    /// Whether the lock is free, asked before anything is written: a claim that does not wait is to leave
    /// nothing in the queue, and one that is refused nothing in the log of the servers.
    pub(crate) fn peek(&self) -> Option<Txn> {
        let permits = match self.kind {
            Kind::Permit(limit) => Some(self.of_kind(self.kind).newest(limit.into())),
            _ => None,
        };
        let others = self.refusing().into_iter().map(Range::any).chain(permits);
        (self.claim.wait() == Wait::No).then(|| Txn::reads([one(&self.key)].into_iter().chain(others)))
    }

    pub(crate) fn peeked(&self, answer: &Answer) -> Peeked {
        let others = answer.found.get(1..).unwrap_or_default();
        let (others, permits) = match (self.kind, others) {
            (Kind::Permit(_), [others @ .., permits]) => (others, permits.len()),
            _ => (others, 0),
        };
        let is_full = matches!(self.kind, Kind::Permit(limit) if i64::try_from(permits).unwrap_or(i64::MAX) >= limit.into());
        let kinds = || others.iter().flatten().filter_map(|kv| Kind::of_key(&kv.key, &self.folder));
        if answer.first(0).is_some() {
            // A claim that is asked for again has its place already.
            Peeked::Free
        } else if kinds().any(|kind| !kind.mode().is_same_kind(self.claim.mode())) {
            Peeked::OfTwoKinds
        } else if is_full || others.iter().any(|found| !found.is_empty()) {
            Peeked::Refused
        } else {
            Peeked::Free
        }
    }

    /// Who holds the lock. The servers sort the whole queue for it.
    pub(crate) fn holder(&self) -> Txn {
        Txn::reads([self.of_kind(Kind::Downgraded).any(), below(&self.folder).oldest()])
    }

    pub(crate) fn held(&self, answer: &Answer) -> Option<Mode> {
        let holder = answer.found.iter().flatten().next()?;
        Some(Kind::of_key(&holder.key, &self.folder)?.mode())
    }

    /// Reads what is before the claim.
    ///
    /// If it waits for one key, and that is still before it, no more is read: to find the last key before a
    /// claim, the servers read the whole queue.
    pub(crate) fn look(&self, place: &Place) -> Txn {
        let state = self.state(place.revision).into_iter().map(Op::Range);
        match self.same(place) {
            Some((_, when)) => Txn::new(when, [one(&self.floor_key), one(&self.key)].map(Op::Range), state),
            None => Txn::new([], state, []),
        }
    }

    /// The one key that the claim waits for, and the conditions that it is still before the claim. A claim
    /// that began again has the same key, behind this one.
    fn same<'p>(&self, place: &'p Place) -> Option<(&'p WatchCreate, Vec<Compare>)> {
        let blocker = place.blocker.as_ref().filter(|blocker| blocker.end.is_empty())?;
        let key = || exactly(&blocker.key);
        let mut when = vec![Compare::none_before(key(), 1)];
        match self.kind {
            Kind::Writer | Kind::Reader => (),
            // A permit waits for a write, too.
            Kind::Permit(_) => when.push(Compare::written_before(key(), blocker.start_revision)),
            Kind::Downgraded => return None,
        }
        if Kind::of_key(&blocker.key, &self.folder) != Some(Kind::Downgraded) {
            when.push(Compare::before(key(), place.revision));
        }
        Some((blocker, when))
    }

    /// The floor, the own key, and what is before it.
    fn state(&self, revision: i64) -> Vec<Range> {
        let mut ranges = vec![one(&self.floor_key), one(&self.key)];
        ranges.extend(self.earlier(Some(revision)));
        ranges
    }

    fn stands(&self, found: &[Vec<KeyValue>], place: &Place, revision: i64) -> TurnAnswer {
        let [floor, mine, earlier @ ..] = found else { return TurnAnswer::Gone };
        let is_there = mine.first().is_some_and(|mine| mine.create_revision == place.revision);
        if !is_there || !place.floor.is(floor.first()) {
            return TurnAnswer::Gone;
        }
        TurnAnswer::Blocked(self.blocker(earlier, revision))
    }

    pub(crate) fn looked(&self, answer: &Answer, place: &Place) -> TurnAnswer {
        let turn = self.stands(&answer.found, place, answer.revision);
        match (turn, self.same(place)) {
            (TurnAnswer::Blocked(_), Some((blocker, _))) if answer.succeeded => {
                let start_revision = answer.revision.saturating_add(1);
                TurnAnswer::Blocked(Some(WatchCreate { start_revision, ..blocker.clone() }))
            }
            (turn, _) => turn,
        }
    }

    /// Says in the claim's key since when it holds the lock, if it is its turn. Otherwise reads what is
    /// before it.
    ///
    /// The servers cannot count. So a permit looks first, and asks for its turn when it knows (`is_known`) that
    /// none is before it that it waits for: that stays so. Others do that if the conditions here do not tell.
    pub(crate) fn take_turn(&self, place: &Place, since: Duration, is_known: bool) -> Txn {
        let is_mine = || {
            vec![place.floor.condition(&self.floor_key), Compare::created_at(one(&self.key), place.revision)]
        };
        let (mut when, mut otherwise) = (is_mine(), Vec::new());
        let put = || [self.put(&place.floor, since)];
        otherwise.extend(self.state(place.revision).into_iter().map(Op::Range));
        match self.kind {
            Kind::Writer if !is_known => {
                when.push(Compare::absent(self.of_kind(Kind::Downgraded)));
                when.push(Compare::none_before(below(&self.folder), place.revision));
            }
            Kind::Reader if !is_known => {
                // No writer at all, or none before it: two conditions, of which one is enough.
                let no_permits = || Compare::absent(self.permits());
                let mut or = is_mine();
                or.extend([Compare::none_before(self.of_kind(Kind::Writer), place.revision), no_permits()]);
                when.extend([Compare::absent(self.of_kind(Kind::Writer)), no_permits()]);
                otherwise = vec![Op::Txn(Txn::new(or, put(), otherwise))];
            }
            _ => (),
        }
        Txn::new(when, put(), otherwise)
    }

    pub(crate) fn took_turn(&self, answer: Answer, place: &Place) -> TurnAnswer {
        let revision = answer.revision;
        if answer.succeeded {
            return TurnAnswer::Granted;
        }
        match answer.inner {
            Some(TxnReply { succeeded: true, .. }) => TurnAnswer::Granted,
            Some(inner) => self.stands(&inner.into_found().0, place, revision),
            None => self.stands(&answer.found, place, revision),
        }
    }
}
