//! The checker: finds out from a history whether a lock ever had two holders, or tokens that did not rise.
//!
//! All processes of one host share the boot clock, so exclusion needs no search through possible orders. The
//! validity of a grant is an interval: from the return of the acquire to the call of release, the deadline, or the
//! moment when the holder saw the loss, whichever came first. Sorted and swept, the intervals overlap or they do not.

use std::collections::BTreeMap;
use std::fmt;

use crate::{FencingToken, LockName, Mode, Moment};

/// The interval in which a client considered itself the holder of a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Validity {
    /// The lock.
    pub lock: LockName,
    /// How it was held.
    pub mode: Mode,
    /// Who it was, for people.
    pub who: String,
    /// The token of the grant.
    pub token: FencingToken,
    /// The call of the acquire.
    pub asked: Moment,
    /// The return of the acquire.
    pub from: Moment,
    /// The first of: release called, deadline, loss seen. The interval ends just before it.
    pub until: Moment,
}

/// What is wrong with a history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// Two were valid at a time when one of them had to be alone, or more than a semaphore has permits.
    Overlap(Box<Validity>, Box<Validity>),
    /// The second was granted after the first had ended, with a token that is not higher.
    TokenFell(Box<Validity>, Box<Validity>),
    /// Two grants have one token.
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

/// Checks a history. Empty if nothing is wrong; at most a few violations for each lock.
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

/// The first two that must not overlap and do.
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

/// The first two grants with one token.
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
/// Which one came first is known if the other was asked for only after its end. Where one of the two had to be alone,
/// it is known from the intervals themselves. Two readers that were asked for at the same time may come in either order.
fn token_fell(sorted: &[&Validity]) -> Option<Violation> {
    let is_alone = |interval: &Validity| interval.mode == Mode::Exclusive;
    let by_return = |next: &Validity| next.from;
    fell(sorted, by_return, |before, next| is_alone(before) || is_alone(next)).or_else(|| {
        let mut by_call = sorted.to_vec();
        by_call.sort_by_key(|interval| interval.asked);
        fell(&by_call, |next| next.asked, |_, _| true)
    })
}

/// The first grant whose token is lower than that of one which had ended when the later one began, of the pairs that
/// count. `sorted` is in the order of `begin`.
fn fell(
    sorted: &[&Validity],
    begin: impl Fn(&Validity) -> Moment,
    counts: impl Fn(&Validity, &Validity) -> bool,
) -> Option<Violation> {
    let mut by_end = sorted.to_vec();
    by_end.sort_by_key(|interval| interval.until);
    let mut ended = by_end.into_iter().peekable();
    // The highest of those that were alone, and of the others: a pair may count for the one and not for the other.
    let mut highest: [Option<&Validity>; 2] = [None; 2];
    for &next in sorted {
        while let Some(before) = ended.next_if(|interval| interval.until <= begin(next)) {
            let highest = &mut highest[usize::from(before.mode == Mode::Exclusive)];
            // An empty interval may be `next` itself, which does no harm: its token is not higher than its own.
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
