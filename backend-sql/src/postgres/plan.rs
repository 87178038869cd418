//! Which statements are sent for one claim.

use crate::dialect::hints::Hint;

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
pub(super) fn plan(asked: Asked, known: impl Fn(Hint) -> bool) -> &'static [Step] {
    match (asked, known(Hint::Waited), known(Hint::Marked)) {
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
    use crate::dialect::hints::each_known;

    #[test]
    fn each_plan_ends_with_what_always_has_an_answer() {
        for (which, known) in each_known().enumerate() {
            let (waited, marked) = (known(Hint::Waited), known(Hint::Marked));
            for is_stored in [false, true] {
                let steps = plan(Asked::Claim { is_stored }, known);
                assert_eq!(steps.last(), Some(&Step::Claim), "{which}");
                // A claim that has a place must not take another one.
                assert_eq!(steps.contains(&Step::EnterMarked), marked && !is_stored, "{which}");
                assert_eq!(steps.len(), 1 + usize::from(marked && !is_stored), "{which}");
            }
            let steps = plan(Asked::Release, known);
            assert_eq!(steps.last(), Some(&Step::HandOver), "{which}");
            // What nobody waits for is freed by the shortest statement, which is the first.
            assert_eq!(steps[0] == Step::Release, !waited, "{which}");
            assert_eq!(steps.contains(&Step::HandFirst), marked, "{which}");
            assert_eq!(steps.len(), 1 + usize::from(!waited) + usize::from(marked), "{which}");
        }
    }
}
