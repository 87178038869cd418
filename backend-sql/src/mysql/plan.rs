//! Which statements are sent for one claim.

use crate::dialect::hints::Hint;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// The lock alone.
    Take,
    /// To be one of a group.
    Join,
    /// A place in the queue. `signed`: the client has given a heartbeat a moment ago. `is_one`: it is one claim,
    /// which wants the lock alone.
    Enter {
        signed: bool,
        is_one: bool,
    },
    Release,
}

/// A statement, or a few that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    TakeFree,
    TakeOverdue,
    TakeNew,
    /// Reads first how the lock stands.
    Look,
    Join,
    EnterOne,
    EnterMarked,
    Enter,
    Release,
    PassOn,
    HandOver,
}

/// They are sent one after the other until one has an answer, as the last one always has.
pub(super) fn plan(asked: Asked, known: impl Fn(Hint) -> bool) -> &'static [Step] {
    let is_marked = known(Hint::Marked);
    let (held, locked) = (known(Hint::Held), known(Hint::RowLocked));
    match asked {
        // Requests must not wait for a transaction.
        Asked::Take if locked => &[Step::TakeOverdue, Step::Look],
        // To look costs no more, and one statement is then enough to refuse a claim.
        Asked::Take if held => &[Step::Look],
        Asked::Take => &[Step::TakeFree, Step::TakeNew, Step::Look],
        Asked::Join if held || locked => &[Step::Look, Step::Join],
        Asked::Join => &[Step::Join],
        Asked::Enter { signed: true, is_one: true } if is_marked => {
            &[Step::EnterOne, Step::EnterMarked, Step::Enter]
        }
        Asked::Enter { signed: true, .. } if is_marked => &[Step::EnterMarked, Step::Enter],
        // Where claims wait all the time, the locks are marked, and another heartbeat would say nothing new.
        Asked::Enter { .. } => &[Step::Enter],
        Asked::Release => match (known(Hint::Waited), known(Hint::HandedOn)) {
            (false, false) => &[Step::Release, Step::HandOver],
            (false, true) => &[Step::Release, Step::PassOn, Step::HandOver],
            (true, false) => &[Step::HandOver],
            (true, true) => &[Step::PassOn, Step::HandOver],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::hints::each_known;

    #[test]
    fn each_plan_ends_with_what_always_has_an_answer() {
        for (which, known) in each_known().enumerate() {
            let steps = plan(Asked::Take, known);
            assert_eq!(steps.last(), Some(&Step::Look), "{which}");
            // A row that a transaction has locked is not waited for.
            assert_eq!(steps.contains(&Step::TakeOverdue), known(Hint::RowLocked), "{which}");
            let is_new = !known(Hint::RowLocked) && !known(Hint::Held);
            assert_eq!(steps.contains(&Step::TakeFree), is_new, "{which}");
            assert_eq!(steps.contains(&Step::TakeNew), is_new, "{which}");

            let steps = plan(Asked::Join, known);
            assert_eq!(steps.last(), Some(&Step::Join), "{which}");
            assert_eq!(steps[0] == Step::Look, !is_new, "{which}");

            for [signed, is_one] in [[false, false], [false, true], [true, false], [true, true]] {
                let steps = plan(Asked::Enter { signed, is_one }, known);
                assert_eq!(steps.last(), Some(&Step::Enter), "{which}");
                // Without a heartbeat a place counts only if there was one lately, and the row is marked.
                let needs_no_sign = signed && known(Hint::Marked);
                assert_eq!(steps.contains(&Step::EnterMarked), needs_no_sign, "{which}");
                assert_eq!(steps.contains(&Step::EnterOne), needs_no_sign && is_one, "{which}");
            }

            let steps = plan(Asked::Release, known);
            assert_eq!(steps.last(), Some(&Step::HandOver), "{which}");
            assert_eq!(steps[0] == Step::Release, !known(Hint::Waited), "{which}");
            assert_eq!(steps.contains(&Step::PassOn), known(Hint::HandedOn), "{which}");
        }
    }
}
