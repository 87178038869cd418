//! Tokens, when a node loses its counter along with the lock.

use crate::memory::{Check, Forgetting};
use crate::model::{DISTINCT, Detail, FENCED, RISING, Redlock};
use crate::search::{finds, holds};

fn world(nodes: usize, rule: Forgetting) -> Redlock {
    Redlock { forgetting: Some(rule), floors: &[0], ..Redlock::lean(nodes, 2) }
}

#[test]
fn a_node_that_forgets_gives_the_same_token_twice() {
    finds(&world(3, Forgetting::carefree()), DISTINCT);
}

/// Delayed restart keeps the lock, but the claim that comes next may get the same token, or a lower one.
#[test]
fn delayed_restart_does_not_keep_the_tokens_rising() {
    let steps = finds(&world(3, Forgetting::delayed()), DISTINCT);
    assert_eq!(steps.len(), 11, "{steps:?}");
    let any_floor = Redlock { floors: &[0, 2], writes: true, ..world(3, Forgetting::delayed()) };
    finds(&any_floor, FENCED);
}

/// A claim that is under way with the vote that was forgotten may install its token at the other nodes after
/// they were read.
#[test]
fn a_repair_without_delay_is_not_enough() {
    let rule = Forgetting { delay: false, ..Forgetting::repaired(3) };
    finds(&world(3, rule.with(|it| it.after_delay = false)), RISING);
}

#[test]
fn a_repair_that_reads_before_the_delay_is_not_enough() {
    finds(&world(3, Forgetting::repaired(3).with(|it| it.after_delay = false)), RISING);
}

#[test]
fn a_repair_must_read_a_majority() {
    finds(&world(3, Forgetting::repaired(3).with(|it| it.reads = 1)), RISING);
    finds(&world(5, Forgetting::repaired(5).with(|it| it.reads = 2)), RISING);
}

#[test]
fn a_repair_must_not_count_a_node_that_has_forgotten() {
    let rule = Forgetting { losses: 2, ..Forgetting::repaired(3) };
    finds(&world(3, rule.with(|it| it.from_lost = true)), RISING);
}

/// The vote was given before the repair, with a low number, and is looked at after it.
#[test]
fn the_right_to_vote_must_be_checked_where_the_vote_is_given() {
    let rule = Forgetting { check: Check::WhenHeard, ..Forgetting::repaired(3) };
    finds(&world(3, rule), RISING);
}

/// The node remembers the vote of that time. The next round of the claim gets another.
#[test]
#[ignore = "17 million states, 4 minutes: cargo test --release -p models --test redlock -- --ignored"]
fn a_vote_that_did_not_count_may_leave_a_record_behind() {
    let rule = Forgetting { check: Check::WhenGiven, ..Forgetting::repaired(3) };
    holds(Redlock { rounds: 1, ..world(3, rule) });
}

#[test]
#[ignore = "6 seconds with optimisation: cargo test --release -p models --test redlock -- --ignored"]
fn a_repair_is_void_when_the_node_forgets_again() {
    let rule = Forgetting { losses: 2, ..Forgetting::repaired(3) };
    finds(&world(3, rule.with(|it| (it.same_run, it.at_once) = (false, 2))), RISING);
}

#[test]
fn a_repair_after_the_delay_keeps_the_tokens_rising() {
    holds(Redlock { floors: &[0, 2], writes: true, ..world(3, Forgetting::repaired(3)) });
}

#[test]
fn two_repairs_may_race() {
    holds(world(3, Forgetting::repaired(3).with(|it| it.at_once = 2)));
}

#[test]
#[ignore = "4 million states, half a minute: cargo test --release -p models --test redlock -- --ignored"]
fn a_node_may_forget_twice_while_two_repairs_race() {
    let rule = Forgetting { losses: 2, ..Forgetting::repaired(3) };
    holds(Redlock { floors: &[0, 2], ..world(3, rule.with(|it| it.at_once = 2)) });
}

#[test]
#[ignore = "19 million states in four searches, 4 minutes: cargo test --release -p models --test redlock -- --ignored"]
fn repaired_nodes_and_every_message_on_its_own() {
    let full = Redlock { detail: Detail::Full, ..world(3, Forgetting::repaired(3)) };
    holds(Redlock { floors: &[0, 2], ..full.clone() });
    holds(Redlock { duplicates: 1, ..full });
    holds(Redlock { rounds: 1, ..world(3, Forgetting::repaired(3)) });
    holds(Redlock { strangers: 1, ..world(3, Forgetting::repaired(3)) });
}

#[test]
#[ignore = "2 million states, half a minute: cargo test --release -p models --test redlock -- --ignored"]
fn repaired_nodes_and_three_claims() {
    holds(Redlock { claims: 3, ..world(3, Forgetting::repaired(3)) });
}

#[test]
#[ignore = "a million states, 10 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn one_of_five_nodes_forgets_and_is_repaired() {
    holds(Redlock { floors: &[0, 2], ..world(5, Forgetting::repaired(5)) });
}

#[test]
#[ignore = "4 million states, 80 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn two_of_five_nodes_forget_and_are_repaired() {
    holds(world(5, Forgetting { losses: 2, ..Forgetting::repaired(5) }));
}
