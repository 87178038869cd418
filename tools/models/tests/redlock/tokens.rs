//! Tokens, while no node forgets: leases run out at any moment, messages are lost, late or doubled.

use crate::model::Redlock;
use crate::search::{holds, outcomes};

#[test]
fn tokens_of_two_claims_rise_and_fence() {
    holds(Redlock { writes: true, ..Redlock::new(3, 2) });
}

#[test]
fn a_doubled_request_does_no_harm() {
    holds(Redlock { duplicates: 1, floors: &[0], ..Redlock::new(3, 2) });
}

#[test]
fn a_claim_may_try_again_under_the_same_owner() {
    holds(Redlock { rounds: 1, floors: &[0], ..Redlock::lean(3, 2) });
}

#[test]
fn a_claim_may_stop_waiting_for_a_node() {
    holds(Redlock { timeouts: true, floors: &[0], ..Redlock::new(3, 2) });
}

#[test]
fn names_may_share_a_counter() {
    holds(Redlock { strangers: 2, ..Redlock::lean(3, 2) });
}

#[test]
fn tokens_of_three_claims_rise() {
    holds(Redlock::lean(3, 3));
}

#[test]
fn tokens_rise_on_five_nodes() {
    holds(Redlock::lean(5, 2));
}

/// All counters are lost, and the tokens go on from the clock: single ones, and blocks of them.
#[test]
fn tokens_rise_from_the_clock_when_all_counters_are_lost() {
    holds(Redlock { restarts: 1, blocks: &[1, 3], floors: &[0], ..Redlock::lean(3, 2) });
    holds(Redlock { restarts: 2, blocks: &[1, 2], floors: &[0], ..Redlock::lean(3, 2) }.with_readers());
}

#[test]
fn the_lean_world_reaches_the_same_grants() {
    let full = outcomes(&Redlock::new(3, 2));
    assert_eq!(full, outcomes(&Redlock::lean(3, 2)));
    assert_eq!(full, outcomes(&Redlock { merge: false, ..Redlock::lean(3, 2) }));
    assert!(full.iter().any(|grants| grants.len() == 2));
}

#[test]
#[ignore = "20 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn merging_states_loses_no_grants() {
    assert_eq!(outcomes(&Redlock::new(3, 2)), outcomes(&Redlock { merge: false, ..Redlock::new(3, 2) }));
    let three = Redlock { floors: &[0], ..Redlock::lean(3, 3) };
    assert_eq!(outcomes(&three), outcomes(&Redlock { merge: false, ..three }));
}

#[test]
#[ignore = "2 million states, 15 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn two_claims_with_doubled_requests_and_any_counters() {
    holds(Redlock { duplicates: 1, ..Redlock::new(3, 2) });
    holds(Redlock { counters: &[0, 1, 2], floors: &[0, 2, 3], ..Redlock::new(3, 2) });
}

#[test]
#[ignore = "3 million states, half a minute: cargo test --release -p models --test redlock -- --ignored"]
fn three_claims_with_any_counters_that_write() {
    let world = Redlock { counters: &[0, 1], ..Redlock::lean(3, 3) };
    holds(Redlock { writes: true, ..world });
    holds(Redlock { strangers: 1, ..Redlock::lean(3, 3) });
}

#[test]
#[ignore = "a million states, 10 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn five_nodes_with_any_counters() {
    holds(Redlock { counters: &[0, 1, 2], floors: &[0, 2, 3], ..Redlock::lean(5, 2) });
}

#[test]
#[ignore = "8 million states, 3 minutes: cargo test --release -p models --test redlock -- --ignored"]
fn three_claims_and_every_message_on_its_own() {
    holds(Redlock { floors: &[0], ..Redlock::new(3, 3) });
}

#[test]
#[ignore = "7 million states in 3 GB, 2 minutes: cargo test --release -p models --test redlock -- --ignored"]
fn four_claims() {
    holds(Redlock { floors: &[0], ..Redlock::lean(3, 4) });
}
