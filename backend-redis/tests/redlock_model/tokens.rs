//! Tokens, while no node forgets: leases may run out at any moment, messages may be lost, late or doubled.

use crate::model::{DOUBLE, Redlock};
use crate::search::{breaks, holds};

#[test]
fn leases_that_run_out_early_let_two_claims_believe() {
    let steps = breaks(Redlock::new(3, 2), DOUBLE);
    assert!(steps.iter().any(|step| step.ends_with("is gone")), "{steps:?}");
}

#[test]
fn two_claims() {
    holds(Redlock::new(3, 2));
}

#[test]
fn two_claims_lean() {
    holds(Redlock::lean(3, 2));
}

#[test]
fn three_claims_lean() {
    holds(Redlock::lean(3, 3));
}

#[test]
fn two_claims_five_lean() {
    holds(Redlock::lean(5, 2));
}
