//! The checker: searches a history for locks with two holders at once, and for tokens that do not rise.
//!
//! All processes of one host share the boot clock, so the check of exclusion need not search through possible
//! orders. The validity of a grant is an interval. It begins at the return of the acquire. It ends at the
//! call of release, at the deadline, or when the holder noticed the loss, whichever came first. The checker
//! sorts the intervals and looks for overlaps.

use std::collections::BTreeMap;
use std::fmt;

use lockwell_core::{FencingToken, LockName, Mode, Moment};

/// The interval in which a client considered itself the holder of a lock.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Validity {
    /// The lock.
    pub lock: LockName,
    /// How it was held.
    pub mode: Mode,
    /// The holder, as text for the report.
    pub who: String,
    /// The token of the grant.
    pub token: FencingToken,
    /// The call of the acquire.
    pub asked: Moment,
    /// The return of the acquire.
    pub from: Moment,
    /// The call of release, the deadline, or the noticed loss, whichever came first. The interval ends just
    /// before it.
    pub until: Moment,
}

/// A violation in a history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// Two grants were valid at the same time although they exclude each other, or more grants than a
    /// semaphore has permits.
    Overlap(Box<Validity>, Box<Validity>),
    /// The second grant came after the end of the first, but its token is not higher.
    TokenFell(Box<Validity>, Box<Validity>),
    /// Two grants have the same token.
    TokenTwice(Box<Validity>, Box<Validity>),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, first, second) = match self {
            Self::Overlap(first, second) => ("held at the same time", first, second),
            Self::TokenFell(first, second) => ("the later token is not higher", first, second),
            Self::TokenTwice(first, second) => ("one token twice", first, second),
        };
        let side = |one: &Validity| {
            let (from, until) = (one.from.since(first.from), one.until.since(first.from));
            format!("{} as {} with token {} from {from:?} to {until:?}", one.who, one.mode, one.token)
        };
        write!(f, "{}: {what}: {}; {}", first.lock, side(first), side(second))
    }
}

/// Checks a history. Returns at most a few violations for each lock; empty if there are none.
pub fn check(history: &[Validity]) -> Vec<Violation> {
    let mut by_lock: BTreeMap<&LockName, Vec<&Validity>> = BTreeMap::new();
    for interval in history {
        by_lock.entry(&interval.lock).or_default().push(interval);
    }
    let mut violations = Vec::new();
    for mut intervals in by_lock.into_values() {
        intervals.sort_by_key(|interval| (interval.from, interval.until));
        violations.extend(overlap(&intervals));
        violations.extend(token_twice(&intervals));
        violations.extend(token_fell(&intervals));
    }
    violations
}

/// The first two intervals that must not overlap and do.
fn overlap(sorted: &[&Validity]) -> Option<Violation> {
    let mut open: Vec<&Validity> = Vec::new();
    for &next in sorted {
        open.retain(|interval| interval.until > next.from);
        if next.until <= next.from {
            continue;
        }
        if let Some(other) = open.iter().find(|other| !next.mode.may_join(other.mode, open.len())) {
            return Some(Violation::Overlap(Box::new((*other).clone()), Box::new(next.clone())));
        }
        open.push(next);
    }
    None
}

/// The first two grants with the same token.
fn token_twice(sorted: &[&Validity]) -> Option<Violation> {
    let mut seen: BTreeMap<FencingToken, &Validity> = BTreeMap::new();
    for &next in sorted {
        if let Some(other) = seen.insert(next.token, next) {
            return Some(Violation::TokenTwice(Box::new(other.clone()), Box::new(next.clone())));
        }
    }
    None
}

/// The first grant whose token is not higher than that of one that came before.
///
/// The order of two grants is known if one was requested after the end of the other. If one of the two
/// excludes the other, it is also known from the intervals. Two readers that were requested at the same time
/// may come in either order.
fn token_fell(sorted: &[&Validity]) -> Option<Violation> {
    let is_alone = |interval: &Validity| interval.mode == Mode::Exclusive;
    let by_return = |next: &Validity| next.from;
    fell(sorted, by_return, |before, next| is_alone(before) || is_alone(next)).or_else(|| {
        let mut by_call = sorted.to_vec();
        by_call.sort_by_key(|interval| interval.asked);
        fell(&by_call, |next| next.asked, |_, _| true)
    })
}

/// The first grant whose token is lower than that of a grant that had ended before it began, among the pairs
/// that count. `sorted` is in the order of `begin`.
fn fell(
    sorted: &[&Validity],
    begin: impl Fn(&Validity) -> Moment,
    counts: impl Fn(&Validity, &Validity) -> bool,
) -> Option<Violation> {
    let mut by_end = sorted.to_vec();
    by_end.sort_by_key(|interval| interval.until);
    let mut ended = by_end.into_iter().peekable();
    // The highest of those that were alone, and of the others: a pair may count for the one and not for the
    // other.
    let mut highest: [Option<&Validity>; 2] = [None; 2];
    for &next in sorted {
        while let Some(before) = ended.next_if(|interval| interval.until <= begin(next)) {
            let highest = &mut highest[usize::from(before.mode == Mode::Exclusive)];
            // An empty interval may be `next` itself, which does no harm: its token is not higher than its
            // own.
            if highest.is_none_or(|highest| before.token > highest.token) {
                *highest = Some(before);
            }
        }
        let higher = |before: &&&Validity| before.token > next.token && counts(before, next);
        if let Some(before) = highest.iter().flatten().find(higher) {
            return Some(Violation::TokenFell(Box::new((*before).clone()), Box::new(next.clone())));
        }
    }
    None
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
