//! When, and with which others, a request is sent again whose outcome is unknown.
//!
//! A request may be the reason for which its connection closed, and would take others with it each time. So
//! requests that are sent again share no call with new ones, and fewer and fewer of them share one, as long
//! as the server answers others. While it answers nobody the reason is not in a request, and their number
//! stays.

use std::time::Duration;

use crate::Moment;

/// The first and the longest pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(256));

/// What is known of a request whose outcome is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    /// How often it was sent.
    pub(super) tries: u32,
    /// When it was sent for the first time.
    pub(super) began: Moment,
    /// It is not sent again earlier.
    pub(super) not_before: Moment,
    /// The most requests in its next call.
    pub(super) most: usize,
}

impl Retry {
    /// A request was sent then in a call with this number of requests, and its outcome is unknown.
    /// `answered`: when the server has last answered a request of the same key.
    pub(super) fn after(
        last: Option<Self>,
        sent: Moment,
        size: usize,
        answered: Option<Moment>,
        not_before: Moment,
    ) -> Self {
        let (tries, began) = last.map_or((0, sent), |last| (last.tries, last.began));
        let halves = last.is_none_or(|last| answered.is_some_and(|answered| answered >= last.began));
        let most = if halves { (size / 2).max(1) } else { last.map_or(size, |last| last.most) };
        Self { tries: tries + 1, began, not_before, most }
    }
}

/// How long to wait before the next try. `spread` is from 0 to 1.
pub(super) fn pause(tries: u32, spread: f64) -> Duration {
    let nominal = PAUSE.0.saturating_mul(1 << tries.min(16)).min(PAUSE.1);
    nominal.mul_f64(0.5 + spread / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn calls_are_halved_while_others_are_answered() {
        let now = Moment::now();
        let later = |millis| now.after(MILLI * millis);
        let first = Retry::after(None, now, 21, None, later(2));
        assert_eq!((first.tries, first.began, first.most), (1, now, 10));
        let outage = Retry::after(Some(first), later(3), 10, None, later(5));
        assert_eq!((outage.tries, outage.most), (2, 10));
        let old = now.before(MILLI);
        assert_eq!(Retry::after(Some(first), later(3), 10, Some(old), later(5)).most, 10);
        let other = Retry::after(Some(outage), later(6), 10, Some(later(4)), later(9));
        assert_eq!((other.tries, other.began, other.most), (3, now, 5));
        assert_eq!(Retry::after(Some(other), later(9), 1, Some(later(9)), later(9)).most, 1);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        assert_eq!(
            [0, 1, 4, 30].map(|tries| pause(tries, 1.0)),
            [2, 4, 32, 256].map(|millis| MILLI * millis)
        );
        assert_eq!(pause(1, 0.0), MILLI * 2);
    }
}
