//! The death of a holder, and the grant to the process that waited.

use std::time::Duration;

use crate::measure::history::Turn;
use crate::stats::Sample;

/// How long it may take until a process has read its order. It asks once then: so long it asks again.
pub(super) const ORDER: Duration = Duration::from_millis(200);

/// Whether the waiter had the lock at a moment after which the holder still had it. A holder that was kept from
/// running for longer than its lease knows that it has lost it.
pub(super) fn granted_before(turns: &[Turn], held: Option<u64>) -> bool {
    turns.first().zip(held).is_some_and(|(first, held)| first.acquired < held)
}

/// The time from this moment to the first grant. `None` if that was before, and if the waiter read its order too
/// late to ask.
pub(super) fn since(turns: &[Turn], at: u64) -> Option<Sample> {
    let nanos = turns.first()?.acquired.checked_sub(at)?;
    let mut sample = Sample::new();
    sample.note(Duration::from_nanos(nanos), 1);
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn = Turn { party: 0, token: 1, asked: 10, acquired: 5_000_010, released: 5_000_020 };

    #[test]
    fn a_grant_before_the_death_is_none_after_it() {
        let found = since(&[TURN], 10).unwrap();
        assert!((found.median_us() / 5000.0 - 1.0).abs() < 0.01, "{}", found.median_us());
        assert!(since(&[TURN], 5_000_011).is_none(), "it says nothing");
        assert!(since(&[], 7).is_none(), "the waiter came too late");
    }

    #[test]
    fn only_a_holder_that_has_the_lock_makes_a_grant_a_violation() {
        assert!(granted_before(&[TURN], Some(5_000_011)));
        assert!(!granted_before(&[TURN], Some(5_000_010)), "it may have lost it in between");
        assert!(!granted_before(&[TURN], None), "it knows that its lease has ended");
        assert!(!granted_before(&[], Some(5_000_011)));
    }
}
