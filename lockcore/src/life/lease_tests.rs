use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::life::valid_until;

const TTL: Duration = Duration::from_secs(9);

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn fresh() -> Lease {
    Lease::new(at(0), valid_until(at(0), TTL))
}

#[test]
fn validity_ends_before_the_lease_at_the_server() {
    assert_eq!(valid_until(at(0), TTL), at(9_000 - 90 - 2));
    assert_eq!(valid_until(at(5), Duration::from_millis(1)), at(5));
}

fn pause(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn renews_when_a_third_is_gone_and_starts_anew() {
    let mut lease = fresh();
    let Advice::Sleep(when) = lease.on(at(0), Event::Tick) else { panic!("too early") };
    assert_eq!(when, at(0).after(pause(8_908) / 3));
    assert_eq!(lease.on(when, Event::Tick), Advice::Renew);
    assert!(matches!(lease.on(when, Event::Sent), Advice::Sleep(_)));
    assert!(matches!(lease.on(when, Event::Tick), Advice::Sleep(_)), "one renewal is under way at a time");
    let renewed = Event::Renewed(at(3_000), at(12_000));
    assert_eq!(lease.on(at(3_010), renewed), Advice::Sleep(at(6_000)));
    assert_eq!(lease.state(), LeaseState::Held);
}

#[test]
fn a_provisional_lease_is_renewed_soon_and_then_like_any_other() {
    // Counted from a heartbeat that was sent a second ago.
    let mut lease = Lease::new(at(0), at(3_000)).provisional(at(1_000));
    assert_eq!(lease.renew_at(), at(1_020));
    assert_eq!(lease.on(at(1_010), Event::Tick), Advice::Sleep(at(1_020)), "not even along with others");
    assert_eq!(lease.on(at(1_020), Event::Tick), Advice::Renew);
    lease.on(at(1_020), Event::Sent);
    assert_eq!(lease.on(at(1_021), Event::Renewed(at(1_020), at(10_020))), Advice::Sleep(at(4_020)));
    assert_eq!(lease.deadline(), at(10_020));
}

#[test]
fn all_times_follow_the_validity_of_the_last_renewal() {
    // The ttl is nine seconds, but a session allows 600 ms.
    let mut lease = Lease::new(at(0), at(600));
    assert_eq!(lease.on(at(0), Event::Tick), Advice::Sleep(at(200)));
    assert_eq!(lease.renewal_timeout(at(200)), pause(150));
    lease.on(at(200), Event::Sent);
    assert_eq!(lease.on(at(203), Event::Renewed(at(200), at(800))), Advice::Sleep(at(400)));
}

#[test]
fn an_idle_lock_is_renewed_at_most_six_times_in_its_validity() {
    for (ttl, extended) in [(9_000, 9_000), (9_000, 300), (300, 300), (30_000, 2_000)] {
        let mut lease = Lease::new(at(0), at(ttl));
        let mut renewals = Vec::new();
        // Another lease of the same client wakes the keeper every other millisecond.
        for now in (0..3 * ttl).step_by(2).map(at) {
            if lease.on(now, Event::Tick) == Advice::Renew {
                renewals.push(now);
                lease.on(now, Event::Sent);
                lease.on(now.after(pause(1)), Event::Renewed(now, now.after(pause(extended))));
            }
        }
        assert_eq!(lease.state(), LeaseState::Held);
        for window in renewals.windows(7) {
            assert!(window[6].since(window[0]) >= pause(extended), "{ttl}, {extended}: {window:?}");
        }
    }
}

#[test]
fn a_renewal_that_extends_nothing_does_not_shorten_the_validity() {
    let mut lease = Lease::new(at(0), at(9_000));
    lease.on(at(3_000), Event::Sent);
    lease.on(at(3_100), Event::Renewed(at(3_000), at(9_000)));
    assert_eq!(lease.left(at(3_100)).map(|left| left.sent), Some(at(0)));
    assert_eq!(lease.renewal_timeout(at(3_100)), pause(2_250));
}

#[test]
fn renewals_that_extend_nothing_do_not_become_a_storm() {
    let mut lease = fresh();
    let (mut sent, mut now) = (0, at(0));
    while lease.state() == LeaseState::Held {
        match lease.on(now, Event::Tick) {
            Advice::Sleep(until) => now = until.max(now.after(pause(1))),
            Advice::Renew => {
                sent += 1;
                lease.on(now, Event::Sent);
                lease.on(now, Event::Renewed(now, at(8_908)));
            }
            Advice::Done => break,
        }
    }
    assert!(sent < 30, "{sent} renewals");
}

#[test]
fn an_unknown_renewal_is_doubt_and_is_tried_again() {
    let mut lease = fresh();
    lease.on(at(3_000), Event::Sent);
    assert_eq!(lease.on(at(3_100), Event::Unknown(pause(450))), Advice::Sleep(at(3_550)));
    assert_eq!((lease.state(), lease.failures()), (LeaseState::Suspect, 1));
    assert_eq!(lease.on(at(3_500), Event::Tick), Advice::Sleep(at(3_550)), "the pause is kept");
    assert_eq!(lease.on(at(3_550), Event::Tick), Advice::Renew);
    assert_eq!(lease.deadline(), at(8_908), "the deadline stands");
    lease.on(at(3_550), Event::Sent);
    lease.on(at(3_600), Event::Renewed(at(3_550), at(12_000)));
    assert_eq!((lease.state(), lease.failures()), (LeaseState::Held, 0));
}

#[test]
fn there_is_time_to_halve_a_batch_nine_times() {
    let mut lease = fresh();
    let mut now = lease.renew_at();
    for _ in 0..10 {
        assert_eq!(lease.on(now, Event::Tick), Advice::Renew, "at {now:?}");
        lease.on(now, Event::Sent);
        now = now.after(lease.renewal_timeout(now));
        let pause = lease.retry_pause(now, 1.0);
        lease.on(now, Event::Unknown(pause));
        now = now.after(pause);
    }
    assert_eq!(lease.on(now, Event::Tick), Advice::Renew, "one lease alone has its turn before the deadline");
}

#[test]
fn a_slow_renewal_makes_suspect_before_it_fails() {
    let mut lease = fresh();
    lease.on(at(3_000), Event::Sent);
    let Advice::Sleep(when) = lease.on(at(3_001), Event::Tick) else { panic!() };
    lease.on(when, Event::Tick);
    assert_eq!(lease.state(), LeaseState::Suspect);
}

#[test]
fn good_news_after_the_deadline_is_no_news() {
    let mut lease = fresh();
    lease.on(at(3_000), Event::Sent);
    assert_eq!(lease.on(at(8_908), Event::Renewed(at(3_000), at(20_000))), Advice::Done);
    assert_eq!(lease.state(), LeaseState::Lost(Loss::Expired));
}

#[test]
fn the_server_has_the_last_word() {
    let mut lease = fresh();
    assert_eq!(lease.on(at(1), Event::Gone), Advice::Done);
    assert_eq!(lease.state(), LeaseState::Lost(Loss::Taken));
    assert_eq!(lease.on(at(2), Event::Released), Advice::Done);
    assert_eq!(lease.state(), LeaseState::Lost(Loss::Taken));
}

#[test]
fn a_hold_has_its_longest_time_whatever_is_renewed() {
    let limits = Limits { max_hold: Some(Duration::from_secs(5)), progress: None };
    let mut lease = fresh().limited(at(0), limits);
    assert_eq!(lease.deadline(), at(5_000));
    lease.on(at(3_000), Event::Renewed(at(3_000), at(11_900)));
    assert_eq!((lease.deadline(), lease.state()), (at(5_000), LeaseState::Held));
    assert_eq!(lease.on(at(4_000), Event::Tick), Advice::Sleep(at(5_000)), "nothing is due before the end");
    assert_eq!(lease.state_at(at(5_000)), LeaseState::Lost(Loss::HeldTooLong), "the clock decides");
    assert_eq!(lease.on(at(5_000), Event::Tick), Advice::Done);
    assert_eq!(lease.state(), LeaseState::Lost(Loss::HeldTooLong));
}

#[test]
fn progress_keeps_a_lock_and_its_absence_ends_it() {
    let limits = Limits { max_hold: None, progress: Some(Duration::from_secs(2)) };
    let mut lease = fresh().limited(at(0), limits);
    for second in 1..8 {
        lease.on(at(second * 1_000), Event::Progress);
        assert_eq!(lease.deadline(), at((second + 2) * 1_000).min(at(8_908)));
    }
    lease.on(at(7_500), Event::Renewed(at(7_500), at(16_000)));
    assert_eq!(lease.on(at(9_000), Event::Progress), Advice::Done, "a report that comes too late");
    assert_eq!(lease.state(), LeaseState::Lost(Loss::NoProgress));
    let mut cut_off = fresh().limited(at(0), Limits { progress: Some(Duration::from_secs(60)), ..limits });
    cut_off.on(at(8_908), Event::Tick);
    assert_eq!(cut_off.state(), LeaseState::Lost(Loss::Expired), "the lease itself ran out first");
}

#[test]
fn fresh_is_what_needs_no_renewal() {
    let mut lease = fresh().limited(at(0), Limits { max_hold: Some(Duration::from_secs(5)), progress: None });
    let left = |lease: &Lease, now| lease.left(now).map(|left| (left.until, left.fresh));
    assert_eq!(left(&lease, at(100)), Some((at(8_908), true)), "the next holder has limits of its own");
    assert_eq!(left(&lease, lease.renew_at()), Some((at(8_908), false)), "a renewal is due");
    lease.on(at(200), Event::Sent);
    assert_eq!(left(&lease, at(300)), Some((at(8_908), false)), "a renewal is under way");
    lease.on(at(300), Event::Unknown(pause(10)));
    assert_eq!(left(&lease, at(301)), Some((at(8_908), false)), "in doubt");
    assert_eq!(left(&lease, at(5_000)), None, "held for too long");
    lease.on(at(5_000), Event::Released);
    assert_eq!(lease.state(), LeaseState::Lost(Loss::HeldTooLong), "what is lost stays lost");
}

/// With a validity whose parts are whole: a third is 8 s, a sixth 4 s, an eighth 3 s.
fn round() -> Lease {
    Lease::new(at(0), at(24_000))
}

#[test]
fn the_window_for_renewals_in_a_batch_is_an_eighth_of_the_validity() {
    assert_eq!(round().on(at(4_999), Event::Tick), Advice::Sleep(at(8_000)));
    assert_eq!(round().on(at(5_000), Event::Tick), Advice::Renew, "along with others");
    let mut doubted = round();
    doubted.on(at(1_000), Event::Unknown(pause(5_000)));
    assert_eq!(doubted.on(at(5_999), Event::Tick), Advice::Sleep(at(6_000)), "in doubt it keeps its pause");
    assert_eq!(doubted.on(at(6_000), Event::Tick), Advice::Renew);
}

#[test]
fn after_a_renewal_that_extends_nothing_a_sixth_of_the_validity_passes() {
    let mut lease = round();
    lease.on(at(8_000), Event::Sent);
    let next = at(8_000).after(pause(16_000) / 3);
    assert_eq!(lease.on(at(8_000), Event::Renewed(at(8_000), at(24_000))), Advice::Sleep(next));
    assert_eq!(lease.on(at(11_999), Event::Tick), Advice::Sleep(next), "not even along with others");
    assert_eq!(lease.on(at(12_000), Event::Tick), Advice::Renew);
    // Near its end a third of what is left counts, and 5 ms at least.
    let mut short = round();
    short.on(at(23_997), Event::Renewed(at(23_990), at(23_999)));
    assert_eq!(short.deadline(), at(24_000), "an earlier deadline changes nothing");
    assert_eq!(short.on(at(23_998), Event::Tick), Advice::Sleep(at(24_000)));
}

#[test]
fn a_renewal_is_overdue_after_an_eighth_of_the_validity() {
    let mut lease = round();
    assert_eq!(lease.on(at(8_000), Event::Sent), Advice::Sleep(at(11_000)));
    lease.on(at(10_999), Event::Tick);
    assert_eq!(lease.state(), LeaseState::Held);
    assert_eq!(
        lease.on(at(11_000), Event::Tick),
        Advice::Sleep(at(24_000)),
        "there is nothing to do but to wait"
    );
    assert_eq!(lease.state(), LeaseState::Suspect);
    // Within bounds: 5 ms and 5 s.
    assert_eq!(Lease::new(at(0), at(16)).on(at(1), Event::Sent), Advice::Sleep(at(6)));
    assert_eq!(Lease::new(at(0), at(400_000)).on(at(1), Event::Sent), Advice::Sleep(at(5_001)));
    // And never beyond the deadline.
    assert_eq!(round().on(at(23_000), Event::Sent), Advice::Sleep(at(24_000)));
}

#[test]
fn a_renewal_may_take_a_quarter_of_the_validity_and_in_doubt_of_what_is_left() {
    let mut lease = Lease::new(at(0), at(12_000));
    assert_eq!(lease.renewal_timeout(at(8_000)), pause(3_000));
    lease.on(at(8_000), Event::Unknown(pause(0)));
    assert_eq!(lease.renewal_timeout(at(8_000)), pause(1_000));
    assert_eq!(lease.renewal_timeout(at(11_999)), pause(5), "5 ms at least");
    assert_eq!(Lease::new(at(0), at(60_000)).renewal_timeout(at(0)), pause(5_000), "5 s at most");
}

#[test]
fn the_pause_after_a_failure_is_a_twelfth_of_what_is_left_or_half_of_that() {
    let lease = Lease::new(at(0), at(12_000));
    assert_eq!(lease.retry_pause(at(6_000), 1.0), pause(500));
    assert_eq!(lease.retry_pause(at(6_000), 0.0), pause(250));
    assert_eq!(lease.retry_pause(at(11_999), 1.0), pause(5), "5 ms at least");
    assert_eq!(Lease::new(at(0), at(60_000)).retry_pause(at(0), 1.0), pause(1_000), "a second at most");
}

#[test]
fn a_provisional_lease_that_ends_soon_is_renewed_after_a_third_of_what_is_left() {
    let mut lease = Lease::new(at(0), at(1_030)).provisional(at(1_000));
    assert_eq!(lease.on(at(1_009), Event::Tick), Advice::Sleep(at(1_010)));
    assert_eq!(lease.on(at(1_010), Event::Tick), Advice::Renew);
}

#[test]
fn of_several_reasons_for_a_loss_the_first_counts() {
    let both = Limits { max_hold: Some(pause(5_000)), progress: Some(pause(5_000)) };
    assert_eq!(round().limited(at(0), both).state_at(at(5_000)), LeaseState::Lost(Loss::HeldTooLong));
    let all = Limits { max_hold: Some(pause(24_000)), progress: Some(pause(24_000)) };
    assert_eq!(round().limited(at(0), all).state_at(at(24_000)), LeaseState::Lost(Loss::Expired));
    // The server's answer counts even if the lease has run out by then.
    let mut stolen = round();
    stolen.on(at(24_001), Event::Gone);
    assert_eq!(stolen.state(), LeaseState::Lost(Loss::Taken));
}

#[test]
fn a_report_of_progress_never_shortens_a_hold() {
    let limits = Limits { max_hold: None, progress: Some(pause(2_000)) };
    let mut lease = round().limited(at(0), limits);
    lease.on(at(1_500), Event::Progress);
    // Another task read the clock earlier, and comes later.
    lease.on(at(1_400), Event::Progress);
    assert_eq!(lease.deadline(), at(3_500));
}

fn event() -> impl Strategy<Value = (u64, Event)> {
    let kind = prop_oneof![
        6 => Just(Event::Tick),
        3 => Just(Event::Sent),
        3 => (0u64..40_000, 0u64..20_000)
            .prop_map(|(sent, valid)| Event::Renewed(at(sent), at(sent + valid))),
        3 => (0u64..500).prop_map(|millis| Event::Unknown(pause(millis))),
        3 => Just(Event::Progress),
        1 => Just(Event::Gone),
        1 => Just(Event::Released),
    ];
    (0u64..2_000, kind)
}

proptest! {
    /// Whatever happens in whatever order: the deadline never moves back, an end is final, a lease past its
    /// deadline never counts as held, and the keeper is never told to sleep beyond the deadline.
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
            match before.state() {
                LeaseState::Lost(_) | LeaseState::Released => {
                    prop_assert_eq!(lease.state(), before.state());
                    prop_assert_eq!(advice, Advice::Done);
                }
                _ => match lease.state() {
                    LeaseState::Held | LeaseState::Suspect => {
                        prop_assert!(now < lease.deadline());
                        match advice {
                            Advice::Sleep(until) => prop_assert!(until <= lease.deadline()),
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
