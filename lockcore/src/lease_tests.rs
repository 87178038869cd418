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

fn event() -> impl Strategy<Value = (u64, Event)> {
    let kind = prop_oneof![
        6 => Just(Event::Tick),
        3 => Just(Event::Sent),
        3 => (0u64..40_000).prop_map(|millis| Event::Renewed(at(millis))),
        3 => Just(Event::Unknown),
        1 => Just(Event::Gone),
        1 => Just(Event::GivenUp),
    ];
    (0u64..2_000, kind)
}

proptest! {
    /// Whatever happens in whatever order: the deadline never moves back, an end is final, a lease past its deadline
    /// is never believed in, and the keeper is never told to sleep beyond the deadline.
    #[test]
    fn no_order_of_events_breaks_the_rules(events in prop::collection::vec(event(), 0..60)) {
        let mut lease = fresh();
        let mut now = at(0);
        for (pause, event) in events {
            now = now.after(Duration::from_millis(pause));
            let before = lease;
            let advice = lease.on(now, event);
            prop_assert!(lease.deadline() >= before.deadline());
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
