//! Tokens, when a node loses its counter along with the lock.

use crate::memory::Forgetting;
use crate::model::{DISTINCT, RISING, Redlock};
use crate::search::{breaks, holds};

fn lean(nodes: usize, claims: usize, rule: Forgetting) -> Redlock {
    Redlock { forgetting: Some(rule), ..Redlock::lean(nodes, claims) }
}

#[test]
fn a_node_that_forgets_lets_tokens_fall() {
    breaks(lean(3, 2, Forgetting::carefree()), RISING);
}

#[test]
fn a_node_that_forgets_lets_tokens_fall2() {
    breaks(lean(3, 2, Forgetting::carefree()), DISTINCT);
}

#[test]
fn delayed_restart_does_not_keep_the_tokens_rising() {
    breaks(lean(3, 2, Forgetting::delayed()), RISING);
}

#[test]
fn delayed_restart_does_not_keep_the_tokens_rising2() {
    breaks(lean(3, 2, Forgetting::delayed()), DISTINCT);
}

#[test]
fn a_repair_must_wait_for_claims_under_way() {
    let rule = Forgetting { delay: false, ..Forgetting::repaired(3) };
    breaks(lean(3, 2, rule.with(|it| it.after_delay = false)), RISING);
}

#[test]
fn a_repair_must_read_after_the_delay() {
    breaks(lean(3, 2, Forgetting::repaired(3).with(|it| it.after_delay = false)), RISING);
}

#[test]
fn a_repair_must_read_a_majority() {
    breaks(lean(3, 2, Forgetting::repaired(3).with(|it| it.reads = 1)), RISING);
}

#[test]
fn a_repair_must_read_a_majority5() {
    breaks(lean(5, 2, Forgetting::repaired(5).with(|it| it.reads = 2)), RISING);
}

#[test]
fn a_repair_must_not_read_a_node_that_forgot() {
    let rule = Forgetting { losses: 2, ..Forgetting::repaired(3) };
    breaks(lean(3, 2, rule.with(|it| it.from_lost = true)), RISING);
}

#[test]
fn a_repair_is_void_when_the_node_forgets_again() {
    let rule = Forgetting { losses: 2, ..Forgetting::repaired(3) };
    breaks(lean(3, 2, rule.with(|it| it.same_run = false)), RISING);
}

#[test]
fn repaired_full() {
    holds(Redlock { lean: false, ..lean(3, 2, Forgetting::repaired(3)) });
}

#[test]
fn repaired_lean() {
    holds(lean(3, 2, Forgetting::repaired(3)));
}

#[test]
fn repaired_lean_race() {
    holds(lean(3, 2, Forgetting { losses: 2, ..Forgetting::repaired(3) }.with(|it| it.at_once = 2)));
}

#[test]
fn repaired_lean3() {
    holds(lean(3, 3, Forgetting::repaired(3)));
}

#[test]
fn repaired_lean5() {
    holds(lean(5, 2, Forgetting { losses: 1, ..Forgetting::repaired(5) }));
}

#[test]
fn repaired_lean52() {
    holds(lean(5, 2, Forgetting { losses: 2, ..Forgetting::repaired(5) }.with(|it| it.at_once = 2)));
}
