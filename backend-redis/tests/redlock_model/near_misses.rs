//! Rules that look right and are wrong. They prove that the search can find something.

use crate::model::{DISTINCT, FENCED, Flaw, RISING, Redlock};
use crate::search::breaks;

fn flawed(flaw: Flaw) -> Redlock {
    Redlock { flaw: Some(flaw), ..Redlock::new(3, 2) }
}

#[test]
fn a_vote_that_does_not_raise_the_counter_can_be_given_twice() {
    let steps = breaks(flawed(Flaw::VoteWithoutRaise), DISTINCT);
    assert!(steps.len() <= 14, "{}", steps.len());
}

#[test]
fn a_higher_counter_is_no_proof_of_the_token() {
    let steps = breaks(flawed(Flaw::HigherIsInstalled), DISTINCT);
    assert!(steps.len() <= 20, "{}", steps.len());
}

#[test]
fn a_higher_counter_lets_tokens_fall() {
    breaks(flawed(Flaw::HigherIsInstalled), RISING);
}
#[test]
fn a_higher_counter_lets_tokens_fall2() {
    breaks(flawed(Flaw::VoteWithoutRaise), RISING);
}
#[test]
fn a_higher_counter_lets_tokens_fall3() {
    breaks(Redlock { writes: true, ..flawed(Flaw::VoteWithoutRaise) }, FENCED);
}
