//! Which statements are sent for one claim.

use crate::dialect::hints::{Hint, Known};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// The lock, or a place in its queue, for a claim that has one, or has none.
    Claim {
        is_stored: bool,
    },
    Release,
}

/// A statement, or a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    EnterMarked,
    Claim,
    Release,
    HandFirst,
    HandOver,
}

/// They are sent one after the other until one has an answer, as the last one always has.
pub(super) fn plan(asked: Asked, known: Known) -> &'static [Step] {
    match (asked, known.has(Hint::Waited), known.has(Hint::Marked)) {
        (Asked::Claim { is_stored: false }, _, true) => &[Step::EnterMarked, Step::Claim],
        (Asked::Claim { .. }, ..) => &[Step::Claim],
        (Asked::Release, false, false) => &[Step::Release, Step::HandOver],
        (Asked::Release, false, true) => &[Step::Release, Step::HandFirst, Step::HandOver],
        (Asked::Release, true, false) => &[Step::HandOver],
        (Asked::Release, true, true) => &[Step::HandFirst, Step::HandOver],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plan_ends_with_what_always_has_an_answer() {
        for known in Known::each() {
            let (waited, marked) = (known.has(Hint::Waited), known.has(Hint::Marked));
            for is_stored in [false, true] {
                let steps = plan(Asked::Claim { is_stored }, known);
                assert_eq!(steps.last(), Some(&Step::Claim), "{known:?}");
                // A claim that has a place must not take another one.
                assert_eq!(steps.contains(&Step::EnterMarked), marked && !is_stored, "{known:?}");
                assert_eq!(steps.len(), 1 + usize::from(marked && !is_stored), "{known:?}");
            }
            let steps = plan(Asked::Release, known);
            assert_eq!(steps.last(), Some(&Step::HandOver), "{known:?}");
            // What nobody waits for is freed by the shortest statement, which is the first.
            assert_eq!(steps[0] == Step::Release, !waited, "{known:?}");
            assert_eq!(steps.contains(&Step::HandFirst), marked, "{known:?}");
            assert_eq!(steps.len(), 1 + usize::from(!waited) + usize::from(marked), "{known:?}");
        }
    }
}
