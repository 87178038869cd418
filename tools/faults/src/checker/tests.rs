//! The checker on histories that are made up: of locks that keep their promises, and of those that break one.
//! `lockwell_conformance::history` has the tests of its own rules.

use std::num::NonZeroU32;

use lockwell::Mode;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::history::{Ask, End, History, Hold, Miss, Who, Why};
use super::check;
use crate::checker::rules::{Deprived, Findings, Outage, Rules, Span};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;

fn rules() -> Rules {
    Rules { ttl: SECOND, bound: SECOND, in_order: Some(SECOND / 2), ..Rules::default() }
}

fn hold(worker: u32, mode: Mode, token: u64, times: [u64; 4]) -> Hold {
    let [asked, from, until, answered] = times;
    let ask = Ask { who: Who { worker, task: 0 }, lock: 0, mode, asked };
    Hold { ask, token, from, until, end: End::Released, called: until, answered, told_late: 0 }
}

/// An exclusive hold, with times in milliseconds.
fn alone(worker: u32, token: u64, times: [u64; 4]) -> Hold {
    hold(worker, Mode::Exclusive, token, times.map(|time| time * MILLI))
}

fn permit(limit: u32) -> Mode {
    Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
}

fn found(holds: &[Hold], rules: &Rules) -> Findings {
    check(&History { holds: holds.to_vec(), ..History::default() }, rules)
}

/// What a lock in order does: `count` holds of `locks` locks by many workers.
fn legal(seed: u64, locks: u32, count: usize) -> History {
    let mut random = StdRng::seed_from_u64(seed);
    let mut history = History::default();
    for lock in 0..locks {
        let (mut now, mut token) = (SECOND, 0);
        while history.holds.len() < count * (lock as usize + 1) / locks as usize {
            token += random.random_range(1..5);
            let mut some = |most: usize| random.random_range(1..most);
            let group = match lock % 3 {
                0 => vec![Mode::Exclusive],
                1 => vec![if some(3) == 1 { Mode::Exclusive } else { Mode::Shared }; 1 + some(3)],
                _ => vec![permit(3); 1 + some(3)],
            };
            let group = if group[0] == Mode::Exclusive { vec![Mode::Exclusive] } else { group };
            let mut step = |most: u64| random.random_range(1..most);
            let mut last = now;
            for mode in group {
                token += 1;
                let asked = now - step(MILLI / 2);
                let from = now + step(1000);
                let until = from + step(MILLI);
                let answered = until + step(1000);
                last = last.max(answered);
                let who = Who { worker: u32::try_from(step(50)).unwrap(), task: 0 };
                let ask = Ask { who, lock, mode, asked };
                let (end, called) = (End::Released, until);
                history.holds.push(Hold { ask, token, from, until, end, called, answered, told_late: 0 });
            }
            now = last + step(1000);
        }
    }
    history
}

#[test]
fn a_release_of_what_another_holds_is_found() {
    let late = Hold { called: 50 * MILLI, answered: 51 * MILLI, ..alone(0, 1, [0, 10, 20, 51]) };
    let next = alone(1, 2, [0, 30, 60, 61]);
    assert_eq!(found(&[late, next], &rules()).foreign_releases, 1);
    let refused = Hold { end: End::Expired, ..late };
    assert_eq!(found(&[refused, next], &rules()).foreign_releases, 0);
    let granted_twice = found(&[Hold { until: 50 * MILLI, ..late }, next], &rules());
    assert_eq!((granted_twice.foreign_releases, granted_twice.overlaps), (0, 1));
}

/// An operator has freed a lock from one holder, at this time in milliseconds.
fn deprived(lock: u32, at: u64) -> Rules {
    let span = Span { from: at * MILLI, until: (at + 1) * MILLI };
    Rules { deprived: vec![Deprived { lock, span, holders: 1 }], ..rules() }
}

#[test]
fn who_is_deprived_on_purpose_may_be_told_a_little_later() {
    let was_freed = Hold { end: End::Taken, ..alone(0, 1, [0, 10, 30, 31]) };
    let history = [was_freed, alone(1, 2, [0, 20, 40, 41])];
    let findings = found(&history, &rules());
    assert_eq!((findings.overlaps, findings.taken), (1, 1));
    let findings = found(&history, &deprived(0, 15));
    assert_eq!((findings.overlaps, findings.overlaps_after_force, findings.taken), (0, 1, 0));
    for other in [deprived(1, 15), deprived(0, 50)] {
        let findings = found(&history, &other);
        assert_eq!((findings.overlaps, findings.taken), (1, 1), "another lock, or later: {other:?}");
    }
    // The news of the older grant came after that of the newer one.
    let late = [alone(1, 2, [0, 10, 30, 31]), Hold { end: End::Taken, ..alone(0, 1, [0, 20, 40, 41]) }];
    let findings = found(&late, &deprived(0, 5));
    assert!(findings.is_clean(), "{findings:?}");
    let after = [alone(1, 2, [0, 10, 30, 31]), Hold { end: End::Taken, ..alone(0, 1, [0, 35, 40, 41]) }];
    assert!(found(&after, &deprived(0, 5)).is_clean());
    assert_eq!(found(&after, &rules()).tokens_fallen, 1);
    let long =
        [Hold { end: End::Taken, ..alone(0, 1, [0, 10, 1100, 1101]) }, alone(1, 2, [0, 20, 1090, 1091])];
    assert_eq!(found(&long, &deprived(0, 15)).overlaps, 1, "longer than a lease");
    let again = Hold { end: End::Taken, ..alone(2, 3, [0, 50, 60, 61]) };
    let findings = found(&[history[0], history[1], again], &deprived(0, 15));
    assert_eq!(findings.taken, 1, "one was freed on purpose, and two lost their locks");
}

#[test]
fn a_process_that_is_deprived_passes_the_lock_on_until_it_is_told() {
    let passed_on = [
        alone(0, 1, [0, 10, 30, 31]),
        Hold { end: End::Taken, ..alone(0, 2, [0, 31, 40, 41]) },
        alone(1, 3, [0, 20, 50, 51]),
    ];
    let findings = found(&passed_on, &deprived(0, 15));
    assert_eq!((findings.overlaps, findings.overlaps_after_force, findings.taken), (0, 2, 0));
    assert_eq!(found(&passed_on, &rules()).overlaps, 2);
    // Another process was told, or nobody.
    let other = Hold { end: End::Taken, ..alone(2, 2, [0, 31, 40, 41]) };
    assert_eq!(found(&[passed_on[0], other, passed_on[2]], &deprived(0, 15)).overlaps, 1);
    assert_eq!(found(&[passed_on[0], passed_on[2]], &deprived(0, 15)).overlaps, 1);
}

#[test]
fn no_fault_excuses_what_was_before_it() {
    let history = [alone(0, 1, [0, 10, 30, 31]), alone(1, 2, [0, 20, 40, 41])];
    let fault = |from: u64| Rules { faults: vec![Span { from: from * MILLI, until: SECOND }], ..rules() };
    let before = |from| found(&history, &fault(from)).overlaps_before;
    assert_eq!((before(15), before(25)), (0, 1));
}

#[test]
fn a_lease_that_nobody_renews_is_found() {
    let ran_out = Hold { end: End::Expired, ..alone(0, 1, [0, 10, 30, 31]) };
    assert_eq!(found(&[ran_out], &rules()).ran_out, 1);
    let fault = Span { from: 5 * MILLI, until: 20 * MILLI };
    assert_eq!(
        found(&[ran_out], &Rules { faults: vec![fault], ..rules() }).ran_out,
        0,
        "a fault was at work"
    );
}

#[test]
fn a_free_lock_that_is_withheld_is_found() {
    let first = alone(0, 1, [0, 10, 20, 21]);
    let in_time = alone(1, 2, [0, 900, 910, 911]);
    let late = alone(1, 2, [0, 1100, 1110, 1111]);
    assert_eq!(found(&[first, in_time], &rules()).late_grants, 0);
    let findings = found(&[first, late], &rules());
    assert_eq!((findings.late_grants, findings.longest_withheld_us), (1, 1_079_000));
    // Somebody who has died holds on for a lease.
    let dead = Hold { end: End::Unfinished, called: 0, answered: 0, ..first };
    assert_eq!(found(&[dead, late], &rules()).late_grants, 0);
    let later = alone(1, 2, [0, 2600, 2610, 2611]);
    assert_eq!(found(&[dead, later], &rules()).late_grants, 1);
    // In a fault, and a lease and a bound after it, everything may take longer.
    let fault = Span { from: 100 * MILLI, until: 200 * MILLI };
    let faults = Rules { faults: vec![fault], ..rules() };
    assert_eq!(found(&[first, late], &faults).late_grants, 0);
    // Who waits in vain is told so, and it is found, too.
    let miss = Miss { ask: late.ask, answered: 1200 * MILLI, why: Why::TimedOut };
    let history = History { holds: vec![first], misses: vec![miss], ..History::default() };
    assert_eq!(check(&history, &rules()).late_grants, 1);
}

#[test]
fn a_permit_that_is_withheld_is_found() {
    let at = |worker, token, times: [u64; 4]| hold(worker, permit(2), token, times.map(|time| time * MILLI));
    let one = at(0, 1, [0, 10, 5000, 5001]);
    let in_time = [one, at(1, 2, [0, 20, 2000, 2001]), at(2, 3, [1, 2900, 2950, 2951])];
    assert_eq!(found(&in_time, &rules()).late_grants, 0);
    let late = [one, in_time[1], at(2, 3, [1, 3100, 3150, 3151])];
    assert_eq!(found(&late, &rules()).late_grants, 1);
    // Both are held, by one after the other.
    let taken = [one, in_time[1], at(3, 4, [1, 2001, 4000, 4001]), at(2, 3, [1, 4100, 4150, 4151])];
    assert_eq!(found(&taken, &rules()).late_grants, 0);
}

#[test]
fn attempts_without_a_wait_hide_nothing() {
    let first = alone(0, 1, [0, 10, 20, 21]);
    let miss = |asked: u64, answered: u64, why| {
        let ask = Ask { asked: asked * MILLI, ..alone(1, 2, [0, 0, 0, 0]).ask };
        Miss { ask, answered: answered * MILLI, why }
    };
    let waits = miss(0, 2000, Why::TimedOut);
    let misses = (1..20).map(|turn| miss(turn * 100, turn * 100 + 1, Why::Held)).chain([waits]).collect();
    let history = History { holds: vec![first], misses, ..History::default() };
    assert_eq!(check(&history, &rules()).late_grants, 1);
}

#[test]
fn a_worker_that_does_not_come_back_is_found() {
    let fault = Span { from: 100 * MILLI, until: 200 * MILLI };
    let rules = Rules { faults: vec![fault, Span { from: 6 * SECOND, until: u64::MAX }], ..rules() };
    let error = |asked: u64| {
        let ask = Ask { asked: asked * MILLI, ..alone(0, 1, [0, 0, 0, 0]).ask };
        Miss { ask, answered: (asked + 10) * MILLI, why: Why::Failed }
    };
    let number = |errors: &[u64], holds: &[Hold]| {
        let misses = errors.iter().map(|asked| error(*asked)).collect();
        check(&History { holds: holds.to_vec(), misses, ..History::default() }, &rules).cut_off
    };
    // A lease and half a bound after the fault, there must be locks again.
    let other = alone(1, 2, [3000, 3001, 3010, 3011]);
    assert_eq!(number(&[150, 900, 1600, 1690, 3000, 4000, 5000], &[other]), 1);
    assert_eq!(number(&[150, 900, 1600, 1650, 1680], &[other]), 0);
    assert_eq!(number(&[150, 3000, 4000, 5000], &[other, alone(0, 1, [4500, 4501, 4502, 4503])]), 0);
    assert_eq!(number(&[3000, 4000], &[other]), 0, "so few can be an accident");
    assert_eq!(number(&[5991, 5995, 5999], &[other]), 0, "they end in the next fault");
}

#[test]
fn whoever_comes_later_is_served_later() {
    let first = alone(0, 1, [0, 10, 20, 21]);
    let passed_over = alone(1, 3, [5, 640, 650, 651]);
    let overtaker = |asked| alone(2, 2, [asked, 620, 630, 631]);
    assert_eq!(found(&[first, overtaker(600), passed_over], &rules()).out_of_order, 1);
    // So close to each other, nobody knows who was first at the server.
    assert_eq!(found(&[first, overtaker(400), passed_over], &rules()).out_of_order, 0);
    let unordered = Rules { in_order: None, ..rules() };
    assert_eq!(found(&[first, overtaker(600), passed_over], &unordered).out_of_order, 0);
}

#[test]
fn the_validity_of_one_that_is_cut_off_ends() {
    let span = Span { from: 100 * MILLI, until: 3000 * MILLI };
    let outage = |worker| Rules { outages: vec![Outage { span, worker }], ..rules() };
    let in_time = alone(0, 1, [0, 10, 1100, 1101]);
    let too_long = alone(0, 1, [0, 10, 1101, 1102]);
    assert_eq!(found(&[in_time], &outage(None)).not_told, 0);
    assert_eq!(found(&[too_long], &outage(None)).not_told, 1);
    assert_eq!(found(&[too_long], &outage(Some(0))).not_told, 1);
    assert_eq!(found(&[too_long], &outage(Some(1))).not_told, 0, "another was cut off");
    assert_eq!(found(&[alone(0, 1, [0, 3010, 3500, 3501])], &outage(None)).not_told, 0, "after it");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_that_keeps_its_promises_is_clean(seed: u64) {
        let findings = check(&legal(seed, 6, 600), &rules());
        prop_assert!(findings.is_clean(), "{:?}", findings);
    }

    /// One hold of a legal history is spoiled.
    #[test]
    fn one_wrong_hold_is_found(seed: u64, at: prop::sample::Index, what in 0..4) {
        let mut history = legal(seed, 1, 200);
        history.holds.sort_by_key(|hold| hold.from);
        let at = 1 + at.index(history.holds.len() - 1);
        let before = history.holds[at - 1];
        let hold = &mut history.holds[at];
        match what {
            0 => hold.from = before.until - 1,
            1 => hold.token = before.token,
            2 => hold.token = before.token - 1,
            _ => {
                let called = hold.from + 1;
                (history.holds[at - 1].called, history.holds[at - 1].answered) = (called, called + 1);
            }
        }
        let findings = check(&history, &rules());
        let number = match what {
            0 => findings.overlaps,
            1 => findings.tokens_twice,
            2 => findings.tokens_fallen,
            _ => findings.foreign_releases,
        };
        prop_assert!(number > 0, "{}: {:?}", what, findings);
    }
}
