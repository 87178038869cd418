//! Rules that look right and are wrong. They prove that the search can find something.

use crate::memory::{Check, Forgetting};
use crate::model::{Clocks, DISTINCT, EXCLUSIVE, FENCED, Kinds, RISING, Redlock, Twist};
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

#[test]
fn readers_and_writers_must_refuse_each_other() {
    for twist in [Twist::ReadersJoinWriters, Twist::WritersJoinReaders] {
        let world = Redlock { clocks: Clocks::Honest, floors: &[0], ..twisted(twist) }.with_readers();
        assert_eq!(finds(&world, EXCLUSIVE).len(), 10);
    }
}

/// A reader that was granted between the two rounds does not end the other's vote, as a writer would.
#[test]
fn a_vote_of_an_earlier_round_is_too_old_for_a_reader() {
    let world = Redlock { twist: Some(Twist::OldVotesCount), rounds: 1, ..Redlock::lean(3, 2) };
    let steps = finds(&Redlock { floors: &[0], ..world }.with_readers(), RISING);
    assert_eq!(steps.len(), 11);
}

/// A claim that tries again, where clocks are right and votes of the first round are given back.
fn two_rounds(twist: Twist) -> Redlock {
    Redlock { clocks: Clocks::Honest, floors: &[0], rounds: 1, ..twisted(twist) }
}

#[test]
fn a_vote_is_given_back_with_the_number_of_its_round() {
    assert_eq!(finds(&two_rounds(Twist::GiveBackAnyRound), EXCLUSIVE).len(), 13);
}

/// The answer to the first round's vote did not count, since the connection was replaced: the node had
/// forgotten, and has its counters back since.
#[test]
#[ignore = "10 seconds with optimisation, minutes without: cargo test --release -p models --test redlock -- --ignored"]
fn a_record_of_an_earlier_round_is_too_old_for_a_writer_of_nodes_that_forget() {
    let rule = Forgetting { check: Check::WhenGiven, ..Forgetting::repaired(3) };
    let world = Redlock { twist: Some(Twist::OldRecordsCount), rounds: 1, ..Redlock::lean(3, 2) };
    finds(&Redlock { forgetting: Some(rule), floors: &[0], ..world }, RISING);
}

/// The second round gets the vote; then comes the first round's request for it, and then what gives that one
/// back.
#[test]
#[ignore = "10 seconds with optimisation, more than a minute without: cargo test --release -p models --test redlock -- --ignored"]
fn a_late_request_must_not_bring_its_round_back() {
    assert_eq!(finds(&two_rounds(Twist::LateVoteIsOfItsRound), EXCLUSIVE).len(), 15);
}

/// The block ends at the clock then, and begins below what was granted before the counters were lost.
#[test]
fn a_block_of_tokens_must_begin_at_the_floor() {
    let twist = Some(Twist::FloorIsEnough);
    let world = Redlock { restarts: 1, blocks: &[1, 2], floors: &[0], twist, ..Redlock::lean(3, 2) };
    for property in [DISTINCT, RISING] {
        let steps = finds(&world, property);
        assert_eq!(steps.len(), 9, "{steps:?}");
    }
}

#[test]
fn a_block_of_tokens_must_fit_above_the_counter() {
    let world = Redlock { blocks: &[1, 2], floors: &[0], ..twisted(Twist::RaiseByLess) };
    let world = Redlock { counters: &[0, 2], kinds: Kinds::Readers(2), ..world };
    assert_eq!(finds(&world, DISTINCT).len(), 12);
}
