//! Which validity intervals may overlap, and how long they may last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lockwell::Mode;

use super::super::history::{End, Hold};
use crate::checker::liveness::Disturbed;
use crate::checker::rules::{Found, Rules, Span, words};

/// Validity intervals that must not overlap and did.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    pub(super) found: Found,
    pub(super) before: u64,
    pub(super) after_force: u64,
    pub(super) longest: u64,
}

/// The holders at one moment, by mode, sorted by the end of their validity.
#[derive(Debug, Default)]
struct Holders {
    exclusive: BinaryHeap<Reverse<(u64, usize)>>,
    shared: BinaryHeap<Reverse<(u64, usize)>>,
    permits: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Holders {
    /// Removes those whose validity has ended.
    fn advance(&mut self, now: u64) {
        for heap in [&mut self.exclusive, &mut self.shared, &mut self.permits] {
            while heap.peek().is_some_and(|Reverse((until, _))| *until <= now) {
                heap.pop();
            }
        }
    }

    /// One that must not be there when `mode` begins.
    fn against(&self, mode: Mode) -> Option<usize> {
        let first = |heap: &BinaryHeap<Reverse<(u64, usize)>>| heap.peek().map(|Reverse((_, at))| *at);
        match mode {
            Mode::Shared => first(&self.exclusive).or_else(|| first(&self.permits)),
            Mode::Permit { limit } => {
                let is_full = self.permits.len() >= usize::try_from(limit.get()).unwrap_or(usize::MAX);
                let others = first(&self.exclusive).or_else(|| first(&self.shared));
                others.or_else(|| is_full.then(|| first(&self.permits)).flatten())
            }
            _ => first(&self.exclusive).or_else(|| first(&self.shared)).or_else(|| first(&self.permits)),
        }
    }

    fn enter(&mut self, mode: Mode, until: u64, at: usize) {
        let heap = match mode {
            Mode::Shared => &mut self.shared,
            Mode::Permit { .. } => &mut self.permits,
            _ => &mut self.exclusive,
        };
        heap.push(Reverse((until, at)));
    }
}

/// Validity intervals that began within another that they must not overlap. `sorted` is in the order of their
/// beginnings.
pub(super) fn overlaps(sorted: &[Hold], rules: &Rules, overlaps: &mut Overlaps) {
    let mut holders = Holders::default();
    for (at, next) in sorted.iter().enumerate() {
        holders.advance(next.from);
        // One that ended before it began was never valid.
        if next.until <= next.from {
            continue;
        }
        if let Some(other) = holders.against(next.ask.mode) {
            let other = &sorted[other];
            let length = other.until.min(next.until) - next.from;
            overlaps.longest = overlaps.longest.max(length);
            // Whoever was deprived of the lock is told within a lease, since no renewal succeeds after that.
            // The news of its grant may even have come later than that of the next one's.
            let older = if other.token < next.token { other } else { next };
            if rules.may_be_deprived(older) && length <= rules.ttl {
                overlaps.after_force += 1;
            } else {
                overlaps.before += u64::from(next.from < rules.first_fault());
                overlaps.found.add(|| format!("held at the same time: {}; {}", words(other), words(next)));
            }
        }
        holders.enter(next.ask.mode, next.until, at);
    }
}

/// Releases of exclusive locks that were confirmed though another was the holder when they were called.
///
/// If the lock was granted twice, both releases are right: that of a holder is confirmed whose record a
/// failover has lost, since an earlier copy of its request may have freed the lock. The overlap is found by
/// itself.
pub(super) fn foreign_releases(sorted: &[Hold], found: &mut Found) {
    let valid: Vec<&Hold> = sorted.iter().filter(|hold| hold.until > hold.from).collect();
    for pair in valid.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let confirmed = before.end == End::Released && before.ask.mode == Mode::Exclusive;
        // With a lower token, the other was the holder before.
        let was_over = before.until <= after.from;
        if confirmed && was_over && after.token > before.token && after.from < before.called {
            found.add(|| format!("released what another held: {}; {}", words(before), words(after)));
        }
    }
}

/// Leases that ran out although no fault was at work: nobody has renewed them.
pub(super) fn ran_out(sorted: &[Hold], disturbed: &Disturbed, found: &mut Found) {
    let is_calm = |hold: &&Hold| !disturbed.touches(Span { from: hold.from, until: hold.answered });
    let has_run_out = |hold: &&Hold| hold.end == End::Expired && hold.until > hold.from;
    for hold in sorted.iter().filter(has_run_out).filter(is_calm) {
        found.add(|| format!("not renewed: {}", words(hold)));
    }
}

/// Validity intervals that lasted longer into an outage than a lease.
pub(super) fn outages(sorted: &[Hold], rules: &Rules, found: &mut Found) {
    for outage in &rules.outages {
        let latest = outage.span.from + rules.ttl;
        for hold in sorted {
            let is_concerned = outage.worker.is_none_or(|worker| worker == hold.ask.who.worker);
            if is_concerned && hold.from < outage.span.until && hold.until.min(outage.span.until) > latest {
                let late = (hold.until.min(outage.span.until) - latest) / 1000;
                found.add(|| format!("valid {late} us longer than an outage allows: {}", words(hold)));
            }
        }
    }
}
