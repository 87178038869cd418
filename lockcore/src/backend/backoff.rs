//! Pauses between tries.

use std::time::Duration;

use crate::Clock;

/// Pauses that double from try to try, up to a maximum, with jitter, so that clients that collided do not
/// collide again.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// The first and the longest pause.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first.min(longest), longest }
    }

    /// The next pause: a random time from a half to the whole of its nominal length.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        self.next = (self.next * 2).min(self.longest);
        pause
    }

    /// Sleeps for the next pause, by the timers of the runtime.
    ///
    /// # Cancel safety
    /// Cancel safe: a pause that was cancelled counts as one.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }

    /// Sleeps for the next pause, by this clock.
    ///
    /// # Cancel safety
    /// Cancel safe: a pause that was cancelled counts as one.
    pub async fn pause_by(&mut self, clock: &Clock) {
        clock.sleep(self.next_pause()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(10), millis(35));
        for whole in [10, 20, 35, 35] {
            let pause = backoff.next_pause();
            assert!(pause >= millis(whole) / 2 && pause <= millis(whole), "{pause:?} of {whole} ms");
        }
    }
}
