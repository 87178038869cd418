use proptest::prelude::*;

use super::*;
use crate::life::valid_until;

const TTL: Duration = Duration::from_secs(9);

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn asked() -> Life {
    let mut life = Life::new(at(0), TTL, true);
    life.begin_acquire();
    life.on(&|| at(0), Act::Asked);
    life
}

fn lease(now: Moment) -> Lease {
    Lease::new(now, valid_until(now, TTL))
}

const NOT_HELD: Act = Act::Freed(Ok(Released::NotHeld), 1.0);

#[test]
fn releases_are_repeated_eight_times_in_a_lease_or_every_two_seconds() {
    let seconds = Duration::from_secs;
    assert_eq!(longest_pause(seconds(80)), seconds(10));
    assert_eq!(longest_pause(seconds(1)), seconds(2));
}

#[test]
fn a_claim_is_granted_or_given_up() {
    let mut granted = asked();
    granted.on(&|| at(1), Act::Unattended { begun: false });
    granted.on(&|| at(2), Act::Granted);
    granted.on(&|| at(3), Act::GiveUp);
    assert!(granted.is_held() && !granted.is_taken());
    let mut given_up = asked();
    assert_eq!(given_up.on(&|| at(1), Act::Unattended { begun: false }), Next::Sleep(at(101)));
    assert_eq!(given_up.on(&|| at(101), Act::Tick), Next::GiveUp);
    assert_eq!(given_up.on(&|| at(101), Act::GiveUp), Next::Release);
    given_up.on(&|| at(102), Act::Granted);
    assert!(!given_up.is_held() && given_up.is_taken());
}

#[test]
fn an_answer_from_before_a_grant_ends_no_release() {
    let mut life = asked();
    life.on(&|| at(0), Act::Unattended { begun: false });
    life.on(&|| at(101), Act::GiveUp);
    for _ in 0..DENIALS {
        assert!(!life.is_denied());
        life.on(&|| at(102), Act::Sent);
        life.on(&|| at(102), NOT_HELD);
    }
    assert!(life.is_denied());
    life.on(&|| at(103), Act::Sent);
    // It was granted all the same, and a task releases it.
    life.on(&|| at(104), Act::Granted);
    life.on(&|| at(104), Act::Depart { known: true });
    assert!(!life.is_denied());
    assert_eq!(life.on(&|| at(105), NOT_HELD), Next::Release);
    assert!(life.is_leaving(&|| at(105)) && life.freed().is_none());
    life.on(&|| at(105), Act::Sent);
    assert_eq!(life.on(&|| at(106), NOT_HELD), Next::Over);
    assert_eq!(life.freed(), Some(Released::NotHeld));
}

#[test]
fn what_was_never_sent_is_not_released() {
    let mut life = Life::new(at(0), TTL, true);
    life.begin_acquire();
    life.on(&|| at(0), Act::Unattended { begun: false });
    assert_eq!(life.on(&|| at(101), Act::GiveUp), Next::Over);
    // Its task runs after all.
    life.on(&|| at(102), Act::Asked);
    life.on(&|| at(103), Act::Granted);
    assert!(!life.is_held());
    assert_eq!(life.on(&|| at(104), Act::Dropped), Next::Release);
}

#[test]
fn a_denied_claim_is_asked_for_until_its_lease_has_ended() {
    let mut life = asked();
    let (mut now, mut next) = (at(0), life.on(&|| at(0), Act::Dropped));
    while next != Next::Over {
        now = now.max(next.due(now));
        next = life.on(&|| now, Act::Tick);
        if next == Next::Release {
            assert_eq!(life.on(&|| now, Act::Sent), Next::Sleep(Moment::NEVER), "one at a time");
            next = life.on(&|| now, NOT_HELD);
        }
    }
    assert_eq!(now, at(0).after(TTL).after(MARGIN));
    assert!(life.is_denied());
}

#[test]
fn a_place_that_others_want_is_kept_without_a_caller() {
    let mut life = asked();
    (life.answered, life.wanted) = (true, true);
    life.on(&|| at(0), Act::Unattended { begun: true });
    assert!(matches!(life.on(&|| at(5_000), Act::Tick), Next::Sleep(_)));
    life.wanted = false;
    assert_eq!(life.on(&|| at(5_000), Act::Tick), Next::GiveUp);
}

#[test]
fn what_a_late_copy_takes_is_released() {
    let mut life = asked();
    life.note_in_doubt(at(0));
    let ends = life.in_doubt_until().unwrap();
    let Next::Sleep(next) = life.on(&|| at(10), Act::Released) else { panic!("a copy may come") };
    assert!(next > at(10) && life.is_watched());
    assert_eq!(life.on(&|| next, Act::Tick), Next::Release);
    life.on(&|| next, Act::Sent);
    life.on(&|| next, Act::Freed(Ok(Released::Released), 0.5));
    assert!(life.is_watched(), "there may be another one");
    assert_eq!(life.on(&|| ends, Act::Tick), Next::Over);
    let mut life = asked();
    life.note_in_doubt(at(0));
    life.on(&|| at(10), Act::Released);
    assert_eq!(life.on(&|| at(20), Act::Closed), Next::Over);
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Tick),
        2 => Just(Act::Asked),
        1 => Just(Act::Granted),
        1 => Just(Act::Passed),
        1 => any::<bool>().prop_map(|known| Act::Depart { known }),
        1 => Just(Act::Hold(lease(at(0)))),
        2 => any::<bool>().prop_map(|begun| Act::Unattended { begun }),
        1 => Just(Act::GiveUp),
        1 => any::<bool>().prop_map(|known| Act::Leave { known }),
        1 => (any::<bool>(), 0..20_000_u64).prop_map(|(known, from)| Act::TakeOver { known, from: at(from) }),
        3 => Just(Act::Sent),
        2 => Just(NOT_HELD),
        1 => Just(Act::Freed(Ok(Released::Released), 0.5)),
        2 => any::<bool>().prop_map(|in_doubt| Act::Freed(Err(in_doubt), 0.0)),
        1 => Just(Act::Released),
        1 => Just(Act::HoldsNothing),
        1 => Just(Act::Dropped),
        1 => Just(Act::Closed),
    ]
}

proptest! {
    #[test]
    fn every_claim_that_was_sent_is_released(
        acts in prop::collection::vec((0..800_u64, act()), 1..60),
        in_doubt in any::<bool>(),
    ) {
        let mut life = asked();
        if in_doubt {
            life.note_in_doubt(at(0));
        }
        let mut now = at(0);
        for (pause, act) in acts {
            now = now.after(Duration::from_millis(pause));
            let before = life.clone();
            let next = life.on(&|| now, act);
            // It is granted or given up, never both: only whoever has it ends a hold, or lets go of it.
            let may_end = matches!(act, Act::Leave { .. } | Act::Depart { .. } | Act::TakeOver { .. } | Act::Released | Act::HoldsNothing | Act::Dropped);
            let ends = before.is_held() && !life.is_held();
            prop_assert!(!ends || may_end || before.task.is_some(), "{act:?}: {before:?} {life:?}");
            let begins = !before.is_held() && life.is_held();
            prop_assert!(!begins || before.stage == Stage::Asked, "{act:?}: {before:?}");
            // Nothing but an answer ends a release.
            let is_answer = matches!(act, Act::Released | Act::HoldsNothing | Act::Freed(Ok(_), _));
            let keeper_ends = before.keeper.is_some_and(|it| now >= it.until || before.is_denied());
            let over = before.stage != Stage::Over && life.stage == Stage::Over;
            prop_assert!(!over || is_answer || keeper_ends, "{act:?}: {before:?}");
            // The keeper is not busy with nothing.
            if let Next::Sleep(until) = next {
                prop_assert!(until > now, "{act:?}: {life:?}");
            }
        }
        // Whoever had it is gone. The keeper releases it, unless there is nothing to release.
        let was_over = life.stage == Stage::Over && !life.acquiring;
        let mut next = life.on(&|| now, Act::Dropped);
        prop_assert!(life.is_taken() || was_over || next == Next::Unanswered, "{life:?}");
        for _ in 0..10_000 {
            next = match next {
                Next::Over | Next::Unanswered => break,
                Next::Release => {
                    life.on(&|| now, Act::Sent);
                    life.on(&|| now, Act::Freed(Err(true), 0.0))
                }
                // One is under way, and has no answer.
                Next::Sleep(Moment::NEVER) => life.on(&|| now, Act::Freed(Err(true), 0.0)),
                Next::Sleep(until) => {
                    now = until;
                    life.on(&|| now, Act::Tick)
                }
                Next::GiveUp => life.on(&|| now, Act::GiveUp),
            };
        }
        prop_assert!(matches!(next, Next::Over | Next::Unanswered), "it ends with its lease: {life:?}");
    }
}
