//! Exclusion: what Redlock promises where clocks are right, and what becomes of it where they are not.

use crate::memory::Forgetting;
use crate::model::{Clocks, DOUBLE, EXCLUSIVE, Redlock};
use crate::search::{breaks, holds_only};

fn honest(nodes: usize, claims: usize) -> Redlock {
    Redlock { clocks: Clocks::Honest, floors: &[0], ..Redlock::new(nodes, claims) }
}

#[test]
fn leases_that_run_out_early_let_two_claims_believe() {
    let steps = breaks(Redlock::new(3, 2), DOUBLE);
    assert!(steps.iter().any(|step| step.ends_with("is gone")), "{steps:?}");
}

#[test]
fn with_right_clocks_one_claim_at_most_believes() {
    holds_only(honest(3, 2), EXCLUSIVE);
}

#[test]
fn a_node_that_forgets_lets_two_claims_believe() {
    breaks(Redlock { forgetting: Some(Forgetting::carefree()), ..honest(3, 2) }, EXCLUSIVE);
}

#[test]
fn delayed_restart_keeps_the_lock() {
    holds_only(Redlock { forgetting: Some(Forgetting::delayed()), ..honest(3, 2) }, EXCLUSIVE);
}

#[test]
fn delayed_restart_keeps_the_lock_dup() {
    holds_only(Redlock { duplicates: 1, forgetting: Some(Forgetting::delayed()), ..honest(3, 2) }, EXCLUSIVE);
}
