//! Which statements are sent for one claim.

use crate::dialect::hints::Hint;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// The lock, for a claim that has a place in the queue, or has none.
    Take { has_place: bool },
    /// `waits`: a claim of this process waits for the lock.
    Release { waits: bool },
}

/// A statement, or a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Reads how the lock stands.
    Look,
    Take,
    ReleaseUnwaited,
    HandOver,
}

/// They are sent one after the other until one has an answer, as the last one always has.
pub(super) fn plan(asked: Asked, known: impl Fn(Hint) -> bool) -> &'static [Step] {
    let waited = known(Hint::Waited);
    match asked {
        // One statement is then enough to refuse the claim, and it does not block other writers.
        Asked::Take { has_place } if has_place || waited => &[Step::Look, Step::Take],
        Asked::Take { .. } => &[Step::Take],
        Asked::Release { waits } if waits || waited => &[Step::HandOver],
        // The file is locked for a shorter time than by a hand-over, and the renewals of other locks wait for
        // that.
        Asked::Release { .. } => &[Step::ReleaseUnwaited, Step::HandOver],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::hints::each_known;

    #[test]
    fn each_plan_ends_with_what_always_has_an_answer() {
        for (which, known) in each_known().enumerate() {
            let waited = known(Hint::Waited);
            for yes in [false, true] {
                let take = plan(Asked::Take { has_place: yes }, known);
                assert_eq!(take.last(), Some(&Step::Take), "{which}");
                assert_eq!(take.contains(&Step::Look), yes || waited, "{which}");
                let release = plan(Asked::Release { waits: yes }, known);
                assert_eq!(release.last(), Some(&Step::HandOver), "{which}");
                assert_eq!(release.contains(&Step::ReleaseUnwaited), !yes && !waited, "{which}");
            }
        }
    }
}
