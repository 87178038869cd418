//! What is checked, and what was found.

use lockwell::Mode;
use serde::{Deserialize, Serialize};

use crate::history::{End, Hold, Miss};

/// So many findings of a rule are told in words.
pub(super) const EXAMPLES: usize = 5;

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// A time in which clients could not reach the server, from after the fault began to before it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) span: Span,
    /// The worker that was cut off; nobody else was. `None`: all were.
    pub(crate) worker: Option<u32>,
}

/// What the lock promises, and what was done to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// The length of the leases, in nanoseconds like all times.
    pub(crate) ttl: u64,
    /// How long a free lock may be withheld from those who wait for it.
    pub(crate) bound: u64,
    /// Waiters are served in order; one that asked so much earlier was surely the first to be seen by the
    /// server.
    pub(crate) in_order: Option<u64>,
    /// When faults were at work. A free lock need not be granted then, and not until a lease and half a
    /// bound after that.
    pub(crate) faults: Vec<Span>,
    /// When a validity must end, a lease after the beginning at the latest.
    pub(crate) outages: Vec<Outage>,
    /// Each time that holders were deprived of a lock on purpose.
    pub(crate) deprived: Vec<Deprived>,
}

/// An operator freed a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deprived {
    pub(crate) lock: u32,
    /// From before the command to after its answer.
    pub(crate) span: Span,
    /// How many holders the lock was taken from.
    pub(crate) holders: u64,
}

impl Rules {
    /// Whether this holder may be one of those that were deprived of the lock on purpose. Its process hears
    /// of it within a lease, and passes the lock on to its other tasks until then. A release that was under
    /// way came too late.
    pub(super) fn may_be_deprived(&self, hold: &Hold) -> bool {
        let crosses = |span: Span| hold.from < span.until + self.ttl && hold.answered > span.from;
        let is_this = |one: &Deprived| one.holders > 0 && one.lock == hold.ask.lock && crosses(one.span);
        hold.end == End::Taken && self.deprived.iter().any(is_this)
    }

    /// Marks what a process that was deprived of a lock has passed on to its other tasks until it was told.
    /// The server knows nothing of such a release; only the last of these tasks is told that the lock was
    /// taken.
    pub(super) fn mark_passed_on(&self, holds: &mut [Hold]) {
        let mut by_token: Vec<usize> = (0..holds.len()).collect();
        by_token.sort_by_key(|at| holds[*at].token);
        for pair in by_token.windows(2).rev() {
            let (older, newer) = (holds[pair[0]], holds[pair[1]]);
            let taken = Hold { end: End::Taken, ..older };
            let is_passed_on = older.end == End::Released
                && older.ask.mode == Mode::Exclusive
                && older.ask.who.worker == newer.ask.who.worker;
            if is_passed_on && self.may_be_deprived(&newer) && self.may_be_deprived(&taken) {
                holds[pair[0]] = taken;
            }
        }
    }

    /// When the first fault began.
    pub(super) fn first_fault(&self) -> u64 {
        self.faults.iter().map(|fault| fault.from).min().unwrap_or(u64::MAX)
    }
}

/// What was found, by rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Validity intervals that began within another that they must not overlap.
    pub overlaps: u64,
    /// Those of them that began before the first fault, which no fault excuses.
    #[serde(default)]
    pub overlaps_before: u64,
    /// The same, where the earlier holder had been deprived of the lock on purpose and had not been told yet.
    pub overlaps_after_force: u64,
    /// The longest overlap of two, in microseconds.
    pub longest_overlap_us: u64,
    /// Grants whose token is not higher than that of a grant before.
    pub tokens_fallen: u64,
    /// Grants that have the token of another.
    pub tokens_twice: u64,
    /// Releases that were confirmed though another held the lock by then.
    pub foreign_releases: u64,
    /// Holders that lost a lock before their lease ended, beyond those who were deprived on purpose.
    pub taken: u64,
    /// Leases that ran out though no fault was at work.
    #[serde(default)]
    pub ran_out: u64,
    /// Attempts in which a free lock was withheld for longer than the bound.
    pub late_grants: u64,
    /// Workers that got errors and no lock, though no fault was at work.
    #[serde(default)]
    pub cut_off: u64,
    /// Grants before somebody who had waited longer.
    pub out_of_order: u64,
    /// Validity intervals that lasted longer into an outage than a lease.
    pub not_told: u64,
    /// Guards that said "held" after "not held".
    pub revived: u64,
    /// Locks that were held, or had waiters, when all was quiet.
    pub left_behind: u64,
    /// Workers that did not end, panicked or crashed.
    #[serde(default)]
    pub ended_badly: u64,
    /// Jobs that had too many attempts, or ran again after their success was known.
    #[serde(default)]
    pub jobs_repeated: u64,
    /// Jobs that were not done in the end, and had attempts left.
    #[serde(default)]
    pub jobs_not_done: u64,
    /// The longest time for which a free lock was withheld, in microseconds.
    pub longest_withheld_us: u64,
    /// Some of it in words.
    pub examples: Vec<String>,
}

impl Findings {
    /// What a lock must never do, whatever its backend promises about exclusion: the number, and what it is.
    pub fn wrong(&self) -> Vec<(u64, &'static str)> {
        let all = [
            (self.foreign_releases, "foreign releases"),
            (self.late_grants, "late grants"),
            (self.cut_off, "workers that did not come back"),
            (self.out_of_order, "grants out of order"),
            (self.not_told, "holders not told"),
            (self.revived, "guards held after their loss"),
            (self.left_behind, "locks left behind"),
            (self.ended_badly, "workers that did not end, panicked or crashed"),
            (self.jobs_repeated, "jobs that ran too often"),
            (self.jobs_not_done, "jobs that were not done"),
        ];
        all.into_iter().filter(|(number, _)| *number > 0).collect()
    }

    /// What a lock does that may be held by two, or lost: the number, and what it is.
    pub fn unsafe_ones(&self) -> Vec<(u64, &'static str)> {
        let taken = (self.taken, "locks taken from their holders");
        self.overlapping().into_iter().chain([taken].into_iter().filter(|(number, _)| *number > 0)).collect()
    }

    /// What a lock does that may be held by two: the number, and what it is.
    pub fn overlapping(&self) -> Vec<(u64, &'static str)> {
        let all = [
            (self.overlaps, "overlaps"),
            (self.tokens_fallen, "tokens not higher"),
            (self.tokens_twice, "tokens twice"),
        ];
        all.into_iter().filter(|(number, _)| *number > 0).collect()
    }

    /// Whether nothing was found.
    #[cfg(test)]
    pub fn is_clean(&self) -> bool {
        self.wrong().is_empty() && self.unsafe_ones().is_empty()
    }
}

/// Findings of one rule, counted; the first ones in words.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(super) number: u64,
    examples: Vec<String>,
}

impl Found {
    pub(crate) fn add(&mut self, words: impl FnOnce() -> String) {
        self.number += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(words());
        }
    }

    /// The number; the words go to the others.
    pub(crate) fn into(self, examples: &mut Vec<String>) -> u64 {
        examples.extend(self.examples);
        self.number
    }
}

/// What happened to one lock.
#[derive(Debug, Default)]
pub(super) struct OfLock {
    /// In the order in which their validity began.
    pub(super) holds: Vec<Hold>,
    pub(super) misses: Vec<Miss>,
}

/// A hold in words.
pub(super) fn words(hold: &Hold) -> String {
    let Hold { ask, token, from, until, end, .. } = hold;
    let (who, lock, mode) = (ask.who, ask.lock, ask.mode);
    let (from, until) = (from / 1000, until / 1000);
    format!("lock {lock}, {who} as {mode} with token {token} from {from} to {until} us, {end:?}")
}
