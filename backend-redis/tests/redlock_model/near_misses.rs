//! Rules that look right and are wrong. They prove that the search can find something.

use crate::model::{DISTINCT, FENCED, RISING, Redlock, Twist};
use crate::search::finds;

fn twisted(twist: Twist) -> Redlock {
    Redlock { twist: Some(twist), ..Redlock::new(3, 2) }
}

#[test]
fn a_vote_that_does_not_raise_the_counter_is_given_twice() {
    let steps = finds(&twisted(Twist::VoteWithoutRaise), DISTINCT);
    assert_eq!(steps.len(), 11);
    finds(&twisted(Twist::VoteWithoutRaise), RISING);
    finds(&Redlock { writes: true, ..twisted(Twist::VoteWithoutRaise) }, FENCED);
}

/// The order of tokens survives this one, as far as three claims can tell. That they differ does not.
#[test]
fn a_counter_above_the_token_is_no_proof_that_it_was_installed() {
    let steps = finds(&twisted(Twist::HigherIsInstalled), DISTINCT);
    assert_eq!(steps.len(), 18);
}
