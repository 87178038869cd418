//! Exclusion: what Redlock promises where clocks are right, and what becomes of it where they are not.

use crate::memory::Forgetting;
use crate::model::{Clocks, DOUBLE, EXCLUSIVE, Redlock};
use crate::search::{finds, holds, holds_only};

fn right_clocks() -> Redlock {
    Redlock { clocks: Clocks::Honest, ..Redlock::new(3, 2) }
}

/// The known double grant. This is why a token comes with every grant.
#[test]
fn a_lease_that_runs_out_early_makes_two_holders() {
    let steps = finds(&Redlock::new(3, 2), DOUBLE);
    assert!(steps.iter().any(|step| step.ends_with("is gone")), "{steps:?}");
}

#[test]
fn with_right_clocks_there_is_one_holder_at_most() {
    holds(right_clocks());
}

/// Votes of the first round are asked for late, and given back late.
#[test]
#[ignore = "13 million states, 3 minutes: cargo test --release -p models --test redlock -- --ignored"]
fn a_claim_that_tries_again_keeps_what_it_gets() {
    let world = Redlock { rounds: 1, floors: &[0], ..right_clocks() };
    holds(world.clone());
    holds(world.with_readers());
}

#[test]
fn a_node_that_forgets_makes_two_holders() {
    finds(&Redlock { forgetting: Some(Forgetting::carefree()), ..right_clocks() }, EXCLUSIVE);
}

/// The lock, and only the lock: see `forgetful.rs` for the tokens.
#[test]
fn delayed_restart_keeps_the_lock() {
    holds_only(Redlock { forgetting: Some(Forgetting::delayed()), ..right_clocks() }, EXCLUSIVE);
}
