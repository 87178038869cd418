//! Notices that this process was stopped, or its machine: nothing renews a lock meanwhile.

use std::time::Duration;

use lockwell::backend::Moment;
use tokio::time::sleep;

/// How often the clock is read.
const EVERY: Duration = Duration::from_millis(250);

/// A gap that is shorter is no stop: the machine is busy.
const SHORTEST: Duration = Duration::from_millis(300);

/// The times at which this process ran.
pub(crate) struct Pulse {
    last: Moment,
    /// The latest stop: its end, and how long it was.
    stop: Option<(Moment, Duration)>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { last: Moment::now(), stop: None }
    }

    /// Reads the clock every now and then, for ever, and each time that it is called: who cancels it often
    /// does not let it come to the end of a sleep.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn beat(&mut self) {
        loop {
            self.note(Moment::now());
            sleep(EVERY).await;
        }
    }

    fn note(&mut self, now: Moment) {
        let gap = now.since(self.last).saturating_sub(EVERY);
        if gap >= SHORTEST {
            self.stop = Some((now, gap));
        }
        self.last = now;
    }

    /// How long this process was stopped within the last lease, if that may have cost it. Leases are renewed
    /// after a third of their time, so a shorter stop leaves another third.
    pub(crate) fn stopped(&mut self, ttl: Duration, now: Moment) -> Option<Duration> {
        self.note(now);
        let may_cost = |(end, gap): &(Moment, Duration)| now.since(*end) <= ttl && *gap >= ttl / 3;
        self.stop.filter(may_cost).map(|(_, gap)| gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_gap_is_a_stop_for_a_while() {
        let mut pulse = Pulse::new();
        let mut now = pulse.last;
        let ttl = Duration::from_secs(3);
        for _ in 0..20 {
            now = now.after(EVERY + Duration::from_millis(100));
            assert_eq!(pulse.stopped(ttl, now), None);
        }
        now = now.after(Duration::from_millis(900) + EVERY);
        assert_eq!(pulse.stopped(ttl, now), None, "a busy machine");
        now = now.after(Duration::from_millis(3500) + EVERY);
        assert_eq!(pulse.stopped(ttl, now), Some(Duration::from_millis(3500)));
        for _ in 0..20 {
            now = now.after(EVERY);
            pulse.note(now);
        }
        assert_eq!(pulse.stopped(ttl, now), None, "it did not matter any more");
    }

    /// As by a parent that asks all the time. Otherwise the whole time would look like a stop at its end.
    #[tokio::test]
    async fn who_cancels_it_lets_it_read_the_clock() {
        let mut pulse = Pulse::new();
        for _ in 0..3 {
            let last = pulse.last;
            sleep(EVERY / 10).await;
            drop(tokio::time::timeout(Duration::ZERO, pulse.beat()).await);
            assert!(pulse.last > last);
        }
    }
}
