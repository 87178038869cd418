//! The checker: finds out from a history whether a lock ever had two holders, or tokens that did not rise.
//!
//! All processes of one host share the boot clock, so exclusion needs no search through possible orders. A holder's
//! belief is an interval: from the return of its acquire to its call of release, its deadline, or the moment when it
//! saw the loss, whichever came first. Sorted and swept, the intervals overlap or they do not.

use std::collections::BTreeMap;
use std::fmt;

use crate::{FencingToken, LockName, Mode, Moment};

/// One holder's belief that it held a lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Belief {
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
    /// The first of: release called, deadline, loss seen. Nobody believes at this moment itself.
    pub until: Moment,
}

/// What is wrong with a history.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// Two believed at a time when one of them had to be alone, or more than a semaphore has permits.
    Overlap(Box<Belief>, Box<Belief>),
    /// The second was granted after the first had ended, with a token that is not higher.
    TokenFell(Box<Belief>, Box<Belief>),
    /// Two grants have one token.
    TokenTwice(Box<Belief>, Box<Belief>),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, first, second) = match self {
            Self::Overlap(first, second) => ("held at the same time", first, second),
            Self::TokenFell(first, second) => ("the later token is not higher", first, second),
            Self::TokenTwice(first, second) => ("one token twice", first, second),
        };
        let side = |one: &Belief| {
            let (from, until) = (one.from.since(first.from), one.until.since(first.from));
            format!("{} as {} with token {} from {from:?} to {until:?}", one.who, one.mode, one.token)
        };
        write!(f, "{}: {what}: {}; {}", first.lock, side(first), side(second))
    }
}

/// Checks a history. Empty if nothing is wrong; at most a few violations for each lock.
pub fn check(history: &[Belief]) -> Vec<Violation> {
    let mut by_lock: BTreeMap<&LockName, Vec<&Belief>> = BTreeMap::new();
    for belief in history {
        by_lock.entry(&belief.lock).or_default().push(belief);
    }
    let mut violations = Vec::new();
    for mut beliefs in by_lock.into_values() {
        beliefs.sort_by_key(|belief| (belief.from, belief.until));
        violations.extend(overlap(&beliefs));
        violations.extend(token_twice(&beliefs));
        violations.extend(token_fell(&beliefs));
    }
    violations
}

/// The first two beliefs that must not meet.
fn overlap(sorted: &[&Belief]) -> Option<Violation> {
    let mut open: Vec<&Belief> = Vec::new();
    for &next in sorted {
        open.retain(|belief| belief.until > next.from);
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
fn token_twice(sorted: &[&Belief]) -> Option<Violation> {
    let mut seen: BTreeMap<FencingToken, &Belief> = BTreeMap::new();
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
/// it is known from the beliefs themselves. Two readers that were asked for at the same time may come in either order.
fn token_fell(sorted: &[&Belief]) -> Option<Violation> {
    let is_alone = |belief: &Belief| belief.mode == Mode::Exclusive;
    let by_return = |next: &Belief| next.from;
    fell(sorted, by_return, |before, next| is_alone(before) || is_alone(next)).or_else(|| {
        let mut by_call = sorted.to_vec();
        by_call.sort_by_key(|belief| belief.asked);
        fell(&by_call, |next| next.asked, |_, _| true)
    })
}

/// The first grant whose token is lower than that of one which had ended when the later one began, of the pairs that
/// count. `sorted` is in the order of `begin`.
fn fell(
    sorted: &[&Belief],
    begin: impl Fn(&Belief) -> Moment,
    counts: impl Fn(&Belief, &Belief) -> bool,
) -> Option<Violation> {
    let mut by_end = sorted.to_vec();
    by_end.sort_by_key(|belief| belief.until);
    let mut ended = by_end.into_iter().peekable();
    // The highest of those that were alone, and of the others: a pair may count for the one and not for the other.
    let mut highest: [Option<&Belief>; 2] = [None; 2];
    for &next in sorted {
        while let Some(before) = ended.next_if(|belief| belief.until <= begin(next)) {
            let highest = &mut highest[usize::from(before.mode == Mode::Exclusive)];
            // An empty interval may be `next` itself, which does no harm: its token is not higher than its own.
            if highest.is_none_or(|highest| before.token > highest.token) {
                *highest = Some(before);
            }
        }
        let higher = |before: &&&Belief| before.token > next.token && counts(before, next);
        if let Some(before) = highest.iter().flatten().find(higher) {
            return Some(Violation::TokenFell(Box::new((*before).clone()), Box::new(next.clone())));
        }
    }
    None
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
