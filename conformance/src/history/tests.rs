//! The checker itself is checked.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Moment {
    Moment::from_nanos(1_000_000_000).after(Duration::from_millis(millis))
}

fn held(mode: Mode, token: u64, from: u64, until: u64) -> Validity {
    Validity {
        lock: LockName::new("a").unwrap(),
        mode,
        who: format!("holder of {token}"),
        token: FencingToken::new(token),
        asked: at(from),
        from: at(from),
        until: at(until),
    }
}

fn alone(token: u64, from: u64, until: u64) -> Validity {
    held(Mode::Exclusive, token, from, until)
}

fn of_limit(limit: u32) -> Mode {
    Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
}

fn permit(token: u64, from: u64, until: u64) -> Validity {
    held(of_limit(2), token, from, until)
}

#[test]
fn one_after_the_other_is_right() {
    assert!(check(&[alone(1, 0, 10), alone(2, 10, 20), alone(7, 25, 30)]).is_empty());
    assert!(check(&[]).is_empty());
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    assert!(check(&[alone(7, 25, 30), alone(1, 0, 10), alone(2, 10, 20)]).is_empty());
}

#[test]
fn an_overlap_is_found_wherever_it_is() {
    for second in [(5, 8), (5, 15), (0, 10), (9, 10), (9, 99)] {
        let found = check(&[alone(1, 0, 10), alone(2, second.0, second.1), alone(3, 200, 201)]);
        assert!(matches!(found[..], [Violation::Overlap(..)]), "{second:?}: {found:?}");
    }
    // Behind a short one inside a long one.
    let found = check(&[alone(1, 0, 100), alone(1, 10, 10), alone(2, 50, 60)]);
    assert!(matches!(found[0], Violation::Overlap(..)), "{found:?}");
    let text = check(&[alone(1, 0, 10), alone(2, 5, 15)])[0].to_string();
    assert!(text.contains("held at the same time") && text.contains("token 2 from 5ms to 15ms"), "{text}");
}

#[test]
fn locks_have_nothing_to_do_with_each_other() {
    let mut other = alone(1, 5, 15);
    other.lock = LockName::new("b").unwrap();
    assert!(check(&[alone(1, 0, 10), other]).is_empty());
}

#[test]
fn readers_meet_but_no_writer_meets_them() {
    let reader = |token, from, until| held(Mode::Shared, token, from, until);
    assert!(check(&[reader(1, 0, 10), reader(3, 5, 15), reader(2, 6, 7), alone(4, 15, 20)]).is_empty());
    assert!(matches!(check(&[reader(1, 0, 10), alone(2, 5, 15)])[..], [Violation::Overlap(..)]));
    assert!(matches!(check(&[alone(1, 0, 10), reader(2, 5, 15)])[..], [Violation::Overlap(..)]));
    assert!(matches!(
        check(&[reader(1, 0, 3), reader(2, 2, 20), alone(3, 10, 11)])[..],
        [Violation::Overlap(..)]
    ));
}

#[test]
fn permits_are_counted() {
    assert!(check(&[permit(1, 0, 10), permit(2, 5, 15), permit(3, 10, 20)]).is_empty());
    let found = check(&[permit(1, 0, 10), permit(2, 5, 15), permit(3, 9, 20)]);
    assert!(matches!(found[..], [Violation::Overlap(..)]), "{found:?}");
}

#[test]
fn tokens_that_do_not_rise_are_found() {
    let found = check(&[alone(5, 0, 10), alone(3, 10, 20)]);
    assert!(matches!(found[..], [Violation::TokenFell(..)]), "{found:?}");
    let found = check(&[alone(9, 0, 1), alone(10, 1, 2), alone(11, 2, 3), alone(10, 4, 5)]);
    assert!(found.iter().any(|one| matches!(one, Violation::TokenFell(..))), "{found:?}");
    assert!(found.iter().any(|one| matches!(one, Violation::TokenTwice(..))), "{found:?}");
    let found = check(&[alone(5, 0, 10), alone(5, 10, 20)]);
    assert!(matches!(found[..], [Violation::TokenTwice(..)]), "{found:?}");
}

#[test]
fn readers_that_were_asked_for_together_may_come_in_either_order() {
    let reader =
        |token, asked, from, until| Validity { asked: at(asked), ..held(Mode::Shared, token, from, until) };
    // Granted first, but the answer took longer.
    assert!(check(&[reader(6, 0, 1, 2), reader(5, 0, 3, 4)]).is_empty());
    let found = check(&[reader(6, 0, 1, 2), reader(5, 2, 3, 4)]);
    assert!(matches!(found[..], [Violation::TokenFell(..)]), "{found:?}");
    // With a writer the order is known from who held when.
    let writer = |token, asked, from, until| Validity { asked: at(asked), ..alone(token, from, until) };
    let found = check(&[reader(6, 0, 1, 2), writer(5, 0, 3, 4)]);
    assert!(matches!(found[..], [Violation::TokenFell(..)]), "{found:?}");
    let found = check(&[writer(6, 0, 1, 2), reader(7, 0, 3, 4), reader(5, 0, 3, 4)]);
    assert!(matches!(found[..], [Violation::TokenFell(..)]), "{found:?}");
}

#[test]
fn a_grant_that_was_never_valid_has_a_token() {
    assert!(check(&[alone(1, 0, 10), alone(2, 5, 5), alone(3, 10, 20)]).is_empty());
    let found = check(&[alone(9, 5, 5), alone(3, 10, 20)]);
    assert!(matches!(found[..], [Violation::TokenFell(..)]), "{found:?}");
}

#[test]
fn a_long_history_is_quick_to_check() {
    let mut history: Vec<_> = (0..200_000).map(|n| alone(n + 1, n * 2, n * 2 + 1)).collect();
    assert!(check(&history).is_empty());
    history.push(alone(900_000, 300_000, 300_001));
    assert!(!check(&history).is_empty());
}

#[test]
fn every_grant_that_begins_within_another_is_found() {
    let mut pairs = Vec::new();
    let sorted = [alone(1, 0, 100), alone(2, 10, 20), alone(3, 30, 40), alone(4, 100, 110)];
    overlaps(&sorted, |other, next| pairs.push((other.token.get(), next.token.get())));
    assert_eq!(pairs, [(1, 2), (1, 3)]);
}

#[test]
fn whoever_comes_later_is_served_later() {
    let asked = |asked, token, from| Validity { asked: at(asked), ..alone(token, from, from + 5) };
    let passed_over = |overtaker| {
        let sorted = [asked(0, 1, 10), asked(overtaker, 2, 620), asked(5, 3, 640)];
        let mut pairs = Vec::new();
        out_of_order(&sorted, Duration::from_millis(500), |late, first| {
            pairs.push((late.token.get(), first.token.get()));
        });
        pairs
    };
    assert_eq!(passed_over(600), [(2, 3)]);
    assert!(passed_over(400).is_empty(), "so close to each other, nobody knows who was first at the server");
}

/// Some holds of one lock at random, legal or not.
fn any_holds() -> impl Strategy<Value = Vec<Validity>> {
    let mode = prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), Just(of_limit(1)), Just(of_limit(2))];
    let one = (mode, 1..20_u64, 0..60_u64, 0..10_u64, 0..12_u64);
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let make = |(mode, token, asked, waited, lasts): (Mode, u64, u64, u64, u64)| Validity {
            asked: at(asked),
            ..held(mode, token, asked + waited, asked + waited + lasts)
        };
        all.into_iter().map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_sweep_finds_what_looking_at_every_pair_finds(holds in any_holds()) {
        let found = check(&holds);
        let has = |wanted: fn(&Violation) -> bool| found.iter().any(wanted);
        prop_assert_eq!(has(|one| matches!(one, Violation::TokenFell(..))), naive::has_fallen(&holds));
        prop_assert_eq!(has(|one| matches!(one, Violation::Overlap(..))), naive::has_overlap(&holds));
    }
}
