//! Whether a free lock is granted to those who wait for it.

use super::super::history::{End, Why};
use crate::checker::rules::{Found, OfLock, Rules, Span};

/// A clean release is answered when it is done. After anything else the lock may be taken for this long,
/// though nobody considers itself the holder: a release under way, or a grant that is given back.
const UNDER_WAY: u64 = 500_000_000;

/// When the lock need not be granted because of faults, joined and in order.
#[derive(Debug)]
pub(super) struct Disturbed(Vec<Span>);

impl Disturbed {
    pub(super) fn new(rules: &Rules) -> Self {
        // What died in a fault holds for a lease after it, and is noticed a bound later at the latest.
        let after = rules.ttl + rules.bound;
        let longer = |span: &Span| Span { from: span.from, until: span.until.saturating_add(after) };
        Self(join(rules.faults.iter().map(longer).collect()))
    }

    /// Whether this time touches any of it.
    pub(super) fn touches(&self, span: Span) -> bool {
        let at = self.0.partition_point(|fault| fault.until < span.from);
        self.0.get(at).is_some_and(|fault| fault.from <= span.until)
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

/// Finds attempts in which the lock was free for longer than the bound and was not granted. Returns the
/// longest such time, within the bound or not.
pub(super) fn withheld(lock: &OfLock, rules: &Rules, disturbed: &Disturbed, found: &mut Found) -> u64 {
    let mut taken = disturbed.0.clone();
    for hold in &lock.holds {
        let until = match hold.end {
            End::Released => hold.answered,
            End::Dropped => hold.until.max(hold.called) + UNDER_WAY,
            End::Expired | End::Taken | End::Unknown | End::Unfinished => {
                hold.until.max(hold.answered) + rules.ttl + UNDER_WAY
            }
        };
        taken.push(Span { from: hold.from, until: until.max(hold.from) });
    }
    for miss in &lock.misses {
        match miss.why {
            Why::TimedOut => (),
            Why::Cancelled => {
                let from = miss.answered.saturating_sub(UNDER_WAY / 10);
                taken.push(Span { from, until: miss.answered + UNDER_WAY });
            }
            // Nobody knows what it held.
            Why::Failed => {
                taken.push(Span { from: miss.ask.asked, until: miss.answered + rules.ttl + UNDER_WAY });
            }
        }
    }
    let taken = join(taken);
    let mut longest = 0;
    let attempts = lock.holds.iter().map(|hold| (hold.ask, hold.from));
    let in_vain = lock.misses.iter().filter(|miss| miss.why == Why::TimedOut);
    for (ask, answered) in attempts.chain(in_vain.map(|miss| (miss.ask, miss.answered))) {
        let free = longest_gap(&taken, Span { from: ask.asked, until: answered });
        longest = longest.max(free);
        if free > rules.bound {
            let (lock, who, free) = (ask.lock, ask.who, free / 1000);
            found.add(|| format!("lock {lock} was free for {free} us while {who} waited for it"));
        }
    }
    longest
}

/// The longest part of a span that none of the sorted, joined spans covers.
fn longest_gap(taken: &[Span], span: Span) -> u64 {
    let (mut free_from, mut longest) = (span.from, 0);
    let first = taken.partition_point(|one| one.until <= span.from);
    for one in &taken[first..] {
        if one.from >= span.until {
            break;
        }
        longest = longest.max(one.from.saturating_sub(free_from));
        free_from = free_from.max(one.until);
    }
    longest.max(span.until.saturating_sub(free_from))
}
