//! Until when a session may be believed to be alive at the server. Pure: time is an argument.
//!
//! A single server starts the session's time again at each request. So the session lives at least until the sending of
//! an answered request plus its timeout.
//!
//! In an ensemble only the leader ends sessions, and it hears of a sign of life when it next pings the server that we
//! are connected to: every half tick. An answer that came by way of the leader (a write, a `sync`; not a read) proves
//! that our server was still in touch when it was given, so that everything sent more than half a tick *before* has
//! been reported. That is what is counted. A server that is cut off from its leader goes on answering reads for
//! `syncLimit` ticks, which proves nothing.

use std::collections::VecDeque;
use std::time::Duration;

use lockcore::Moment;
use lockcore::backend::valid_until;

#[derive(Debug)]
pub(crate) struct Belief {
    timeout: Duration,
    /// How much older than an answered request a sign of life must be to have been reported. Zero on a single server.
    lag: Duration,
    /// When the latest sign of life was sent that has surely arrived.
    confirmed: Moment,
    /// Answered requests that are not old enough yet, in order.
    recent: VecDeque<Moment>,
}

impl Belief {
    /// A session whose making was asked for at `asked`.
    pub(crate) fn new(timeout: Duration, lag: Duration, asked: Moment) -> Self {
        Self { timeout, lag, confirmed: asked, recent: VecDeque::new() }
    }

    /// A request that goes by way of the leader was sent at `sent` and has been answered.
    pub(crate) fn answered(&mut self, sent: Moment) {
        let reported = sent.before(self.lag);
        while let Some(&older) = self.recent.front().filter(|&&older| older <= reported) {
            self.confirmed = self.confirmed.max(older);
            self.recent.pop_front();
        }
        if self.lag.is_zero() {
            self.confirmed = self.confirmed.max(sent);
        } else if self.recent.back().is_none_or(|last| sent.since(*last) >= self.lag / 8) {
            // A busy session need not remember every request.
            self.recent.push_back(sent);
        }
    }

    /// Until when the session may be believed in.
    pub(crate) fn deadline(&self) -> Moment {
        valid_until(self.confirmed, self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(10);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_single_server_counts_from_the_last_answer() {
        let start = Moment::now();
        let mut belief = Belief::new(T, Duration::ZERO, start);
        assert_eq!(belief.deadline(), valid_until(start, T));
        belief.answered(start.after(ms(500)));
        assert_eq!(belief.deadline(), valid_until(start.after(ms(500)), T));
        // Answers may come out of order.
        belief.answered(start.after(ms(200)));
        assert_eq!(belief.deadline(), valid_until(start.after(ms(500)), T));
    }

    #[test]
    fn an_ensemble_counts_what_was_reported() {
        let start = Moment::now();
        let mut belief = Belief::new(T, ms(1000), start);
        belief.answered(start.after(ms(500)));
        assert_eq!(belief.deadline(), valid_until(start, T), "not reported yet");
        belief.answered(start.after(ms(1400)));
        assert_eq!(belief.deadline(), valid_until(start, T));
        belief.answered(start.after(ms(1500)));
        assert_eq!(belief.deadline(), valid_until(start.after(ms(500)), T));
        for at in 1501..4000 {
            belief.answered(start.after(ms(at)));
        }
        assert!(belief.recent.len() <= 10, "{}", belief.recent.len());
        assert!(belief.deadline() >= valid_until(start.after(ms(2800)), T));
    }
}
