//! What was seen of the locks, and at which of them to look next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use lockwell::{LockName, LockStatus};
use tokio::time::Instant;

/// Hand-overs are counted over this time at most. A lock that was in use within it is looked at again.
const WINDOW: Duration = Duration::from_mins(1);

/// The locks that are known.
pub(super) struct Board {
    /// At how many locks to look at a time.
    most: usize,
    /// Those of the command line, which are always shown.
    chosen: BTreeSet<LockName>,
    /// Those that the server lists.
    listed: BTreeSet<LockName>,
    seen: BTreeMap<LockName, Seen>,
    /// The locks without waiters have turns, in the order of their names: the last that had one.
    last: Option<LockName>,
    /// At how many locks the last look was.
    looked: usize,
}

/// What was seen of a lock.
struct Seen {
    status: LockStatus,
    at: Instant,
    /// When it was held or waited for.
    in_use: Instant,
    /// The look before those that count.
    since: Instant,
    /// How many new holds each later look has seen.
    grants: VecDeque<(Instant, usize)>,
}

/// A lock, as it is shown.
pub(super) struct Row<'a> {
    pub(super) status: &'a LockStatus,
    /// How often it was granted, at least: of the holds between two looks only the last is seen. `None`:
    /// there was one look only. Zero is exact if the lock is held exclusively: by the same hold all the time.
    pub(super) grants_per_second: Option<f64>,
    /// How long ago the lock was looked at.
    pub(super) age: Duration,
}

impl Board {
    pub(super) fn new(most: usize, chosen: &[LockName]) -> Self {
        let chosen: BTreeSet<_> = chosen.iter().cloned().collect();
        // All that were asked for.
        let most = most.max(chosen.len());
        let (listed, seen) = (BTreeSet::new(), BTreeMap::new());
        Self { most, chosen, listed, seen, last: None, looked: 0 }
    }

    /// The names that the server lists now.
    pub(super) fn list(&mut self, names: Vec<LockName>) {
        self.listed = names.into_iter().collect();
    }

    /// How many locks are known.
    pub(super) fn known(&self) -> usize {
        self.names().len()
    }

    /// At how many of them the last look was.
    pub(super) fn looked(&self) -> usize {
        self.looked
    }

    fn names(&self) -> BTreeSet<&LockName> {
        self.chosen.iter().chain(&self.listed).chain(self.seen.keys()).collect()
    }

    /// The locks to look at now: those with waiters, and of the others as many as may be, in turn.
    pub(super) fn next_names(&mut self) -> Vec<LockName> {
        let mut contended: Vec<_> = self.seen.iter().filter(|(_, seen)| seen.status.waiters > 0).collect();
        contended.sort_by_key(|(_, seen)| Reverse(seen.status.waiters));
        let all = self.names();
        let room = if all.len() > self.most { self.most.div_ceil(2) } else { self.most };
        let first: BTreeSet<_> = contended.into_iter().map(|(name, _)| name).take(room).collect();
        let after = self.last.as_ref().map_or(Unbounded, Excluded);
        let (later, earlier) = (all.range::<&LockName, _>((after, Unbounded)), all.iter());
        let mut others = BTreeSet::new();
        let mut last = None;
        for name in later.chain(earlier).filter(|name| !first.contains(**name)) {
            if first.len() + others.len() >= self.most || !others.insert(*name) {
                break;
            }
            last = Some((*name).clone());
        }
        let names: Vec<_> = first.iter().chain(&others).map(|name| (**name).clone()).collect();
        self.last = last.or(self.last.take());
        self.looked = names.len();
        names
    }

    /// Notes what a look has seen.
    pub(super) fn note(&mut self, status: LockStatus, now: Instant) {
        let in_use = status.is_held() || status.waiters > 0;
        match self.seen.get_mut(&status.name) {
            Some(seen) => seen.note(status, now),
            None if in_use || self.chosen.contains(&status.name) => {
                let seen = Seen { at: now, in_use: now, since: now, grants: VecDeque::new(), status };
                self.seen.insert(seen.status.name.clone(), seen);
            }
            // The server lists it although it is free.
            None => (),
        }
    }

    /// Forgets the locks that have not been in use for a while.
    pub(super) fn forget(&mut self, now: Instant) {
        let chosen = &self.chosen;
        self.seen.retain(|name, seen| chosen.contains(name) || now.duration_since(seen.in_use) <= WINDOW);
    }

    /// The locks that are in use, or were chosen, by contention.
    pub(super) fn rows(&self, now: Instant) -> Vec<Row<'_>> {
        let mut rows: Vec<_> = self.seen.values().map(|seen| seen.row(now)).collect();
        rows.retain(|row| {
            let (status, grants) = (row.status, row.grants_per_second.unwrap_or_default());
            status.is_held() || status.waiters > 0 || grants > 0.0 || self.chosen.contains(&status.name)
        });
        rows.sort_by(|a, b| {
            let rank = |row: &Row<'_>| (row.status.waiters, row.status.longest_wait);
            let grants = |row: &Row<'_>| row.grants_per_second.unwrap_or_default();
            rank(b)
                .cmp(&rank(a))
                .then(grants(b).total_cmp(&grants(a)))
                .then(a.status.name.cmp(&b.status.name))
        });
        rows
    }
}

impl Seen {
    fn note(&mut self, status: LockStatus, now: Instant) {
        let before = &self.status.holders;
        let is_new = |token| before.iter().all(|holder| holder.token != token);
        let new = status.holders.iter().filter(|holder| is_new(holder.token)).count();
        self.grants.push_back((now, new));
        while let Some((at, _)) = self.grants.front().filter(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.since = *at;
            self.grants.pop_front();
        }
        if status.is_held() || status.waiters > 0 {
            self.in_use = now;
        }
        (self.status, self.at) = (status, now);
    }

    fn row(&self, now: Instant) -> Row<'_> {
        let counted = self.at.duration_since(self.since).as_secs_f64();
        let grants: usize = self.grants.iter().map(|(_, new)| new).sum();
        #[expect(clippy::cast_precision_loss, reason = "it is far below 2^52")]
        let grants_per_second = (counted > 0.0).then(|| grants as f64 / counted);
        Row { status: &self.status, grants_per_second, age: now.duration_since(self.at) }
    }
}

#[cfg(test)]
mod tests {
    use lockwell::{FencingToken, Holder, Mode};

    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    fn status(text: &str, tokens: &[u64], waiters: usize) -> LockStatus {
        let holder = |token: &u64| {
            Holder::new(FencingToken::new(*token), "a", Mode::Exclusive, Duration::from_secs(9))
        };
        LockStatus::new(name(text), tokens.iter().map(holder).collect(), waiters)
    }

    fn shown(board: &Board, now: Instant) -> Vec<(String, Option<f64>)> {
        let one = |row: &Row<'_>| (row.status.name.to_string(), row.grants_per_second);
        board.rows(now).iter().map(one).collect()
    }

    #[test]
    fn those_with_the_most_waiters_come_first() {
        let mut board = Board::new(10, &[name("free")]);
        let now = Instant::now();
        let wait = |status: LockStatus, secs| status.longest_wait(Some(Duration::from_secs(secs)));
        for seen in [
            status("b", &[1], 0),
            wait(status("c", &[1], 2), 5),
            wait(status("d", &[], 2), 7),
            status("gone", &[], 0),
            status("e", &[1], 3),
            status("free", &[], 0),
        ] {
            board.note(seen, now);
        }
        let names: Vec<_> = shown(&board, now).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["e", "d", "c", "b", "free"]);
    }

    #[test]
    fn holds_that_are_new_are_counted_at_least() {
        let mut board = Board::new(10, &[]);
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut now = begun;
        board.note(status("a", &[1], 5), now);
        assert_eq!(shown(&board, now), [("a".to_owned(), None)]);
        for (tokens, rate) in [(&[1][..], 0.0), (&[4], 0.5), (&[], 1.0 / 3.0), (&[5, 4, 6], 1.0)] {
            now += second;
            board.note(status("a", tokens, 0), now);
            let [(_, Some(seen))] = shown(&board, now)[..] else { panic!("{tokens:?}") };
            assert!((seen - rate).abs() < 0.001, "{tokens:?}: {seen}");
        }
        // What is long ago does not count any more.
        now += WINDOW + second;
        board.note(status("a", &[6], 0), now);
        now += second;
        board.note(status("a", &[6], 0), now);
        assert_eq!(shown(&board, now), [("a".to_owned(), Some(0.0))]);
        // A lock that is not used is forgotten.
        now += WINDOW;
        board.note(status("a", &[], 0), now);
        board.forget(now);
        assert_eq!(board.known(), 1);
        now += second;
        board.forget(now);
        assert_eq!((shown(&board, now), board.known()), (vec![], 0));
    }

    #[test]
    fn each_lock_has_its_turn_and_those_with_waiters_always() {
        let mut board = Board::new(4, &[]);
        let names: Vec<_> = (0..10).map(|n| name(&format!("n{n}"))).collect();
        board.list(names.clone());
        let (now, mut turns) = (Instant::now(), Vec::new());
        for round in 0..6 {
            let looked = board.next_names();
            assert_eq!((looked.len(), board.looked(), board.known()), (4, 4, 10));
            let busy = [name("n3"), name("n8"), name("n9")];
            // They are found in their first turns. Of three, two leave room for the others.
            if round > 2 {
                assert!(busy.iter().filter(|name| looked.contains(name)).count() >= 2, "{looked:?}");
            }
            for one in &looked {
                let waiters = if busy.contains(one) { 7 } else { 0 };
                board.note(status(one.as_str(), &[1], waiters), now);
            }
            turns.extend(looked);
        }
        assert!(names.iter().all(|name| turns.contains(name)), "{turns:?}");
        // All of a short list, each once.
        let mut board = Board::new(4, &[]);
        board.list(names[..3].to_vec());
        for _ in 0..3 {
            assert_eq!(board.next_names(), names[..3]);
        }
    }

    #[test]
    fn all_that_are_asked_for_are_looked_at() {
        let names = ["a", "b", "c"].map(name);
        let mut board = Board::new(1, &names);
        assert_eq!(board.next_names(), names);
    }
}
