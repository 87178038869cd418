use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(9);

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn fresh() -> Lease {
    Lease::new(TTL, belief(at(0), TTL))
}

#[test]
fn belief_ends_before_the_server_does() {
    assert_eq!(belief(at(0), TTL), at(9_000 - 90 - 2));
    assert_eq!(belief(at(5), Duration::from_millis(1)), at(5));
}

#[test]
fn renews_when_a_third_is_gone_and_starts_anew() {
    let mut lease = fresh();
    let Advice::Rest(when) = lease.on(at(0), Event::Tick) else { panic!("too early") };
    assert_eq!(when, at(8_908 - 6_000));
    assert_eq!(lease.on(when, Event::Tick), Advice::Renew);
    assert!(matches!(lease.on(when, Event::Sent), Advice::Rest(_)));
    assert!(matches!(lease.on(when, Event::Tick), Advice::Rest(_)), "one renewal is under way at a time");
    assert_eq!(lease.on(at(3_000), Event::Renewed(at(11_800))), Advice::Rest(at(5_800)));
    assert_eq!(lease.standing(), Standing::Held);
}

#[test]
fn an_unknown_renewal_is_doubt_and_is_tried_again() {
    let mut lease = fresh();
    lease.on(at(3_000), Event::Sent);
    assert_eq!(lease.on(at(3_100), Event::Unknown), Advice::Rest(at(3_550)));
    assert_eq!(lease.standing(), Standing::Suspect);
    assert_eq!(lease.on(at(3_500), Event::Tick), Advice::Rest(at(3_550)), "the pause is kept");
    assert_eq!(lease.on(at(3_550), Event::Tick), Advice::Renew);
    assert_eq!(lease.deadline(), at(8_908), "the deadline stands");
    lease.on(at(3_550), Event::Sent);
    lease.on(at(3_600), Event::Renewed(at(12_000)));
    assert_eq!(lease.standing(), Standing::Held);
}

#[test]
fn a_slow_renewal_makes_suspect_before_it_fails() {
    let mut lease = fresh();
    lease.on(at(3_000), Event::Sent);
    let Advice::Rest(when) = lease.on(at(3_001), Event::Tick) else { panic!() };
    lease.on(when, Event::Tick);
    assert_eq!(lease.standing(), Standing::Suspect);
}

#[test]
fn good_news_after_the_deadline_is_no_news() {
    let mut lease = fresh();
    lease.on(at(3_000), Event::Sent);
    assert_eq!(lease.on(at(8_908), Event::Renewed(at(20_000))), Advice::Done);
    assert_eq!(lease.standing(), Standing::Lost(Loss::Expired));
}

#[test]
fn the_server_has_the_last_word() {
    let mut lease = fresh();
    assert_eq!(lease.on(at(1), Event::Gone), Advice::Done);
    assert_eq!(lease.standing(), Standing::Lost(Loss::Taken));
    assert_eq!(lease.on(at(2), Event::GivenUp), Advice::Done);
    assert_eq!(lease.standing(), Standing::Lost(Loss::Taken));
}

#[test]
fn a_hold_has_its_longest_time_whatever_is_renewed() {
    let limits = Limits { max_hold: Some(Duration::from_secs(5)), progress: None };
    let mut lease = fresh().limited(at(0), limits);
    assert_eq!(lease.deadline(), at(5_000));
    lease.on(at(3_000), Event::Renewed(at(11_800)));
    assert_eq!((lease.deadline(), lease.standing()), (at(5_000), Standing::Held));
    assert_eq!(lease.on(at(4_000), Event::Tick), Advice::Rest(at(5_000)), "nothing is due before the end");
    assert_eq!(lease.standing_at(at(5_000)), Standing::Lost(Loss::HeldTooLong), "the clock decides");
    assert_eq!(lease.on(at(5_000), Event::Tick), Advice::Done);
    assert_eq!(lease.standing(), Standing::Lost(Loss::HeldTooLong));
}

#[test]
fn progress_keeps_a_lock_and_its_absence_ends_it() {
    let limits = Limits { max_hold: None, progress: Some(Duration::from_secs(2)) };
    let mut lease = fresh().limited(at(0), limits);
    for second in 1..8 {
        lease.on(at(second * 1_000), Event::Progress);
        assert_eq!(lease.deadline(), at((second + 2) * 1_000).min(at(8_908)));
    }
    lease.on(at(7_500), Event::Renewed(at(16_000)));
    assert_eq!(lease.on(at(9_000), Event::Progress), Advice::Done, "a report that comes too late");
    assert_eq!(lease.standing(), Standing::Lost(Loss::NoProgress));
    let mut cut_off = fresh().limited(at(0), Limits { progress: Some(Duration::from_mins(1)), ..limits });
    cut_off.on(at(8_908), Event::Tick);
    assert_eq!(cut_off.standing(), Standing::Lost(Loss::Expired), "the lease itself ran out first");
}

#[test]
fn fresh_is_what_needs_no_renewal() {
    let mut lease = fresh().limited(at(0), Limits { max_hold: Some(Duration::from_secs(5)), progress: None });
    let left = |lease: &Lease, now| lease.left(now).map(|left| (left.until, left.fresh));
    assert_eq!(left(&lease, at(100)), Some((at(8_908), true)), "the next holder has limits of its own");
    assert_eq!(left(&lease, lease.renew_at()), Some((at(8_908), false)), "a renewal is due");
    lease.on(at(200), Event::Sent);
    assert_eq!(left(&lease, at(300)), Some((at(8_908), false)), "a renewal is under way");
    lease.on(at(300), Event::Unknown);
    assert_eq!(left(&lease, at(301)), Some((at(8_908), false)), "in doubt");
    assert_eq!(left(&lease, at(5_000)), None, "held for too long");
    lease.on(at(5_000), Event::GivenUp);
    assert_eq!(lease.standing(), Standing::Lost(Loss::HeldTooLong), "what is lost is not given up");
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let kind = prop_oneof![
        6 => Just(Event::Tick),
        3 => Just(Event::Sent),
        3 => (0u64..40_000).prop_map(|millis| Event::Renewed(at(millis))),
        3 => Just(Event::Unknown),
        3 => Just(Event::Progress),
        1 => Just(Event::Gone),
        1 => Just(Event::GivenUp),
    ];
    (0u64..2_000, kind)
}

proptest! {
    /// Whatever happens in whatever order: the deadline never moves back, an end is final, a lease past its deadline
    /// is never believed in, and the keeper is never told to sleep beyond the deadline.
    #[test]
    fn no_order_of_events_breaks_the_rules(
        events in prop::collection::vec(event(), 0..60),
        max_hold in prop::option::of(1u64..60_000),
        progress in prop::option::of(1u64..20_000),
    ) {
        let limits = Limits {
            max_hold: max_hold.map(Duration::from_millis),
            progress: progress.map(Duration::from_millis),
        };
        let mut lease = fresh().limited(at(0), limits);
        let mut now = at(0);
        for (pause, event) in events {
            now = now.after(Duration::from_millis(pause));
            let before = lease;
            let advice = lease.on(now, event);
            prop_assert!(lease.deadline() >= before.deadline());
            prop_assert!(lease.deadline() <= max_hold.map_or(Moment::NEVER, at));
            match before.standing() {
                Standing::Lost(_) | Standing::Released => {
                    prop_assert_eq!(lease.standing(), before.standing());
                    prop_assert_eq!(advice, Advice::Done);
                }
                _ => match lease.standing() {
                    Standing::Held | Standing::Suspect => {
                        prop_assert!(now < lease.deadline());
                        match advice {
                            Advice::Rest(until) => prop_assert!(until <= lease.deadline()),
                            Advice::Renew => prop_assert!(event == Event::Tick),
                            Advice::Done => prop_assert!(false, "a live lease is not done"),
                        }
                    }
                    _ => prop_assert_eq!(advice, Advice::Done),
                },
            }
        }
    }
}
