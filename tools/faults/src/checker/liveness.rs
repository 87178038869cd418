//! Whether a free lock is granted to those who wait for it.

use std::collections::BTreeMap;

use lockwell::Mode;

use super::super::history::{End, History, Hold, Miss, Why};
use crate::checker::rules::{Found, OfLock, Rules, Span};

/// A clean release is answered when it is done. After anything else the lock may be taken for this long,
/// though nobody considers itself the holder: a release under way, or a grant that is given back.
const UNDER_WAY: u64 = 500_000_000;

/// When the lock need not be granted because of faults, joined and in order.
#[derive(Debug)]
pub(super) struct Disturbed(Vec<Span>);

impl Disturbed {
    pub(super) fn new(rules: &Rules) -> Self {
        // What died in a fault holds for a lease after it, and connections are made anew meanwhile. The bound
        // begins after that: a run must go on for long enough to show that it is exceeded.
        let after = rules.ttl + rules.bound / 2;
        let longer = |span: &Span| Span { from: span.from, until: span.until.saturating_add(after) };
        Self(join(rules.faults.iter().map(longer).collect()))
    }

    /// The times between faults, and before the first.
    fn gaps(&self) -> impl Iterator<Item = Span> {
        let begins = std::iter::once(0).chain(self.0.iter().map(|span| span.until));
        let ends = self.0.iter().map(|span| span.from).chain([u64::MAX]);
        begins.zip(ends).map(|(from, until)| Span { from, until })
    }

    /// Whether this time touches any of it.
    pub(super) fn touches(&self, span: Span) -> bool {
        let at = self.0.partition_point(|fault| fault.until < span.from);
        self.0.get(at).is_some_and(|fault| fault.from <= span.until)
    }
}

/// So many attempts of a worker that end in errors are no accident.
const ERRORS: usize = 3;

/// Finds workers that got errors and not one lock for a time without faults, which was at least as long as a
/// lease: their clients have not come back. Errors by themselves withhold nothing from anybody.
pub(super) fn cut_off(history: &History, rules: &Rules, disturbed: &Disturbed, found: &mut Found) {
    for calm in disturbed.gaps().filter(|calm| calm.until - calm.from >= rules.ttl) {
        let meets = |from: u64, until: u64| from < calm.until && until > calm.from;
        // What ends in a fault has met it, even if it began before. Of each lock: one that always fails must not hide
        // behind others that work.
        let mut errors: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let has_failed =
            |miss: &&Miss| miss.why == Why::Failed && (calm.from..calm.until).contains(&miss.answered);
        for miss in history.misses.iter().filter(has_failed) {
            *errors.entry((miss.ask.who.worker, miss.ask.lock)).or_default() += 1;
        }
        let is_in_use = |hold: &Hold| meets(hold.from, hold.until.max(hold.answered));
        for hold in history.holds.iter().filter(|hold| is_in_use(hold)) {
            errors.remove(&(hold.ask.who.worker, hold.ask.lock));
        }
        for ((worker, lock), number) in errors.into_iter().filter(|(_, number)| *number >= ERRORS) {
            found.add(|| {
                format!("worker {worker} got {number} errors and never lock {lock} in a time without faults")
            });
        }
    }
}

/// Joins spans that meet, and sorts them.
fn join(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.from);
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.from <= last.until => last.until = last.until.max(span.until),
            _ => joined.push(span),
        }
    }
    joined
}

/// Finds times in which the lock was free for longer than the bound, somebody waited for it all the time, and
/// nobody got it. One after the other may have waited for less than the bound each. Returns the longest such
/// time, within the bound or not.
pub(super) fn withheld(lock: &OfLock, rules: &Rules, disturbed: &Disturbed, found: &mut Found) -> u64 {
    let mut taken = disturbed.0.clone();
    // Attempts that were given up. Each may have had the lock, but one after the other must not hide that
    // nobody gets it: their time is subtracted, and the bound does not begin anew after each.
    let mut given_up = Vec::new();
    let (mut permits, mut limit) = (Vec::new(), 0);
    for hold in &lock.holds {
        let until = match hold.end {
            End::Released => hold.answered,
            End::Dropped => hold.until.max(hold.called) + UNDER_WAY,
            End::Expired | End::Taken | End::Unknown | End::Unfinished => {
                hold.until.max(hold.answered) + rules.ttl + UNDER_WAY
            }
        };
        let span = Span { from: hold.from, until: until.max(hold.from) };
        if let Mode::Permit { limit: most } = hold.ask.mode {
            limit = most.get();
            permits.push(span);
        } else {
            taken.push(span);
        }
    }
    taken.extend(full(&permits, limit));
    for miss in &lock.misses {
        match miss.why {
            // It leaves nothing.
            Why::TimedOut | Why::Held => (),
            Why::Cancelled => {
                let from = miss.answered.saturating_sub(UNDER_WAY / 10);
                given_up.push(Span { from, until: miss.answered + UNDER_WAY });
            }
            // Nobody knows what it held.
            Why::Failed => {
                taken.push(Span { from: miss.ask.asked, until: miss.answered + rules.ttl + UNDER_WAY });
            }
        }
    }
    let (taken, given_up) = (join(taken), join(given_up));
    let mut longest = 0;
    let granted = lock.holds.iter().map(|hold| (hold.ask, hold.from));
    let in_vain = lock.misses.iter().filter(|miss| miss.why == Why::TimedOut);
    let attempts: Vec<_> = granted.chain(in_vain.map(|miss| (miss.ask, miss.answered))).collect();
    let waits = attempts.iter().map(|(ask, answered)| Span { from: ask.asked, until: *answered });
    for span in join(waits.collect()) {
        let free = longest_gap(&taken, &given_up, span);
        longest = longest.max(free);
        if free > rules.bound {
            let (lock, free, until) = (attempts[0].0.lock, free / 1000, span.until / 1000);
            found.add(|| {
                format!("lock {lock} was free for {free} us while somebody waited, until {until} us")
            });
        }
    }
    longest
}

/// When as many of these spans overlap as there are permits, or more.
fn full(permits: &[Span], limit: u32) -> Vec<Span> {
    let begins = permits.iter().map(|span| (span.from, 1));
    let ends = permits.iter().map(|span| (span.until, -1));
    // Where one ends and another begins at the same moment, none is free in between.
    let mut steps: Vec<(u64, i64)> = begins.chain(ends).collect();
    steps.sort_by_key(|(at, step)| (*at, -step));
    let (mut spans, mut held, mut since) = (Vec::new(), 0, None);
    for (at, step) in steps {
        held += step;
        if held >= i64::from(limit) {
            since.get_or_insert(at);
        } else if let Some(from) = since.take() {
            spans.push(Span { from, until: at });
        }
    }
    spans
}

/// The longest part of a span that none of the sorted, joined spans covers, without what `given_up` covers of
/// it.
fn longest_gap(taken: &[Span], given_up: &[Span], span: Span) -> u64 {
    let length = |from: u64, until: u64| {
        let first = given_up.partition_point(|one| one.until <= from);
        let within = given_up[first..].iter().take_while(|one| one.from < until);
        let covered: u64 = within.map(|one| one.until.min(until).saturating_sub(one.from.max(from))).sum();
        until.saturating_sub(from).saturating_sub(covered)
    };
    let (mut free_from, mut longest) = (span.from, 0);
    let first = taken.partition_point(|one| one.until <= span.from);
    for one in &taken[first..] {
        if one.from >= span.until {
            break;
        }
        longest = longest.max(length(free_from, one.from));
        free_from = free_from.max(one.until);
    }
    longest.max(length(free_from, span.until))
}
