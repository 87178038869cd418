//! The checker: searches a history for locks with two holders at once, for tokens that do not rise, and for
//! waiters that were passed over. The suite, the fault runs and the comparison use it.
//!
//! All processes of one host share the boot clock, so the check of exclusion need not search through possible
//! orders. The validity of a grant is an interval. It begins at the return of the acquire. It ends at the
//! call of release, at the deadline, or when the holder noticed the loss, whichever came first. The intervals
//! of a lock are sorted and swept once for each rule, which takes seconds for millions of grants. Every rule
//! is sound: what it finds is wrong with the lock, however late an answer or a thread was.

mod held;
mod order;
mod overlap;
mod tokens;

use std::collections::BTreeMap;
use std::fmt;

use lockwell_core::{FencingToken, LockName, Mode, Moment};

pub use held::Held;
pub use order::out_of_order;
pub use overlap::overlaps;
pub use tokens::{tokens_fallen, tokens_twice};

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

/// Checks a history. Returns the first violation of each kind for each lock; empty if there are none.
pub fn check(history: &[Validity]) -> Vec<Violation> {
    let mut by_lock: BTreeMap<&LockName, Vec<&Validity>> = BTreeMap::new();
    for interval in history {
        by_lock.entry(&interval.lock).or_default().push(interval);
    }
    let mut violations = Vec::new();
    for mut intervals in by_lock.into_values() {
        intervals.sort_by_key(|interval| (interval.from, interval.until));
        let [mut overlap, mut twice, mut fell] = [None; 3];
        overlaps(&intervals, |one, next| overlap = overlap.or(Some((*one, *next))));
        tokens_twice(&intervals, |one, next| twice = twice.or(Some((*one, *next))));
        tokens_fallen(&intervals, |one, next| fell = fell.or(Some((*one, *next))));
        let boxed = |(one, next): (&Validity, &Validity)| (Box::new(one.clone()), Box::new(next.clone()));
        violations.extend(overlap.map(boxed).map(|(one, next)| Violation::Overlap(one, next)));
        violations.extend(twice.map(boxed).map(|(one, next)| Violation::TokenTwice(one, next)));
        violations.extend(fell.map(boxed).map(|(one, next)| Violation::TokenFell(one, next)));
    }
    violations
}

impl Held for Validity {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn token(&self) -> FencingToken {
        self.token
    }

    fn asked(&self) -> Moment {
        self.asked
    }

    fn from(&self) -> Moment {
        self.from
    }

    fn until(&self) -> Moment {
        self.until
    }
}

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
