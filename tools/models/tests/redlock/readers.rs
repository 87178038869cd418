//! Readers, writers that become readers, and blocks of tokens.

use crate::memory::Forgetting;
use crate::model::{Clocks, Kinds, Redlock};
use crate::search::{holds, outcomes};

fn right_clocks() -> Redlock {
    Redlock { clocks: Clocks::Honest, floors: &[0], ..Redlock::new(3, 2) }
}

#[test]
fn a_writer_is_the_only_holder() {
    holds(right_clocks().with_readers());
}

#[test]
fn tokens_of_readers_rise_and_fence() {
    holds(Redlock { writes: true, ..Redlock::lean(3, 2) }.with_readers());
}

#[test]
fn tokens_of_readers_rise_on_five_nodes() {
    holds(Redlock { floors: &[0], ..Redlock::lean(5, 2) }.with_readers());
}

#[test]
#[ignore = "3 million states, half a minute: cargo test --release -p models --test redlock -- --ignored"]
fn a_reader_may_try_again_under_the_same_owner() {
    holds(Redlock { rounds: 1, floors: &[0], ..Redlock::lean(3, 2) }.with_readers());
}

#[test]
fn a_writer_that_becomes_a_reader_is_not_beside_a_writer() {
    holds(right_clocks().with_downgrades());
}

#[test]
fn readers_and_nodes_that_forget_and_are_repaired() {
    let rule = Some(Forgetting::repaired(3));
    holds(Redlock { forgetting: rule, floors: &[0], ..Redlock::lean(3, 2) }.with_readers());
}

#[test]
fn blocks_of_tokens_are_disjoint() {
    holds(Redlock { blocks: &[1, 2, 3], ..Redlock::lean(3, 2) });
    holds(Redlock { blocks: &[1, 2], ..Redlock::lean(3, 2) }.with_readers());
}

#[test]
#[ignore = "half a minute without optimisation: cargo test --release -p models --test redlock -- --ignored"]
fn the_lean_world_reaches_the_same_grants_of_readers() {
    let full = Redlock { floors: &[0], blocks: &[1, 2], ..Redlock::new(3, 2) };
    let lean = Redlock { floors: &[0], blocks: &[1, 2], ..Redlock::lean(3, 2) };
    assert_eq!(outcomes(&full.with_readers()), outcomes(&lean.with_readers()));
}

#[test]
#[ignore = "2 million states, 20 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn readers_and_every_message_on_its_own() {
    holds(Redlock::new(3, 2).with_readers());
    holds(Redlock { duplicates: 1, floors: &[0], ..Redlock::new(3, 2) }.with_readers());
    holds(Redlock { duplicates: 1, ..right_clocks() }.with_downgrades());
}

#[test]
#[ignore = "half a million states, 2 seconds with optimisation and many without: cargo test --release -p models --test redlock -- --ignored"]
fn readers_of_nodes_that_forget_with_right_clocks() {
    let rule = Some(Forgetting::repaired(3));
    holds(Redlock { forgetting: rule, ..right_clocks() }.with_downgrades());
}

#[test]
#[ignore = "a quarter of a million states, 2 seconds with optimisation and many without: cargo test --release -p models --test redlock -- --ignored"]
fn three_claims_of_readers_and_writers() {
    holds(Redlock { floors: &[0], ..Redlock::lean(3, 3) }.with_readers());
}

/// Three readers alone would be the biggest search by far, and there is no writer to be kept out.
#[test]
#[ignore = "4 million states, a minute and a half: cargo test --release -p models --test redlock -- --ignored"]
fn three_claims_with_right_clocks() {
    for readers in 0..=2 {
        holds(Redlock { claims: 3, kinds: Kinds::Readers(readers), ..right_clocks() });
    }
}

#[test]
#[ignore = "15 million states in 5 GB, 5 minutes: cargo test --release -p models --test redlock -- --ignored"]
fn three_claims_with_blocks_of_tokens() {
    holds(Redlock { blocks: &[1, 2], floors: &[0, 2], ..Redlock::lean(3, 3) }.with_readers());
}
