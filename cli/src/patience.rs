//! How long a command waits, in all: for a lock server that is away, and for the lock.

use std::time::Duration;

use lockwell::backend::Backoff;
use lockwell::{Error, ErrorKind};
use tokio::time::{Instant, sleep};

use crate::exit::Failure;
use crate::say::{Voice, rounded};

/// The pauses between tries to reach the server.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How long connecting may take: as long as the caller would wait for the lock, within these bounds. The
/// lower one is this much more than the time that the backend takes to give up, since it knows the reason.
const MORE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// How long a command without a wait waits for the end of a grace period at most.
const GRACE: Duration = Duration::from_mins(10);

/// The wait of a command, from its start.
pub(crate) struct Patience {
    wait: Option<Duration>,
    began: Instant,
    pauses: Backoff,
    has_failed: bool,
    voice: Voice,
}

impl Patience {
    /// `None`: nothing says how long to wait. Then, as with a wait of zero, a server that is away is not
    /// waited for.
    pub(crate) fn new(wait: Option<Duration>, voice: Voice) -> Self {
        let pauses = Backoff::new(PAUSES.0, PAUSES.1);
        Self { wait, began: Instant::now(), pauses, has_failed: false, voice }
    }

    pub(crate) fn none(voice: Voice) -> Self {
        Self::new(None, voice)
    }

    pub(crate) fn voice(&self) -> Voice {
        self.voice
    }

    /// Takes the wait of the configuration if the command line gives none.
    pub(crate) fn or(&mut self, wait: Option<Duration>) {
        self.wait = self.wait.or(wait);
    }

    /// What is left of the wait.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.wait.map(|wait| wait.saturating_sub(self.began.elapsed()))
    }

    /// How long one try to connect may take. `timeout` is that of one request.
    pub(crate) fn limit(&self, timeout: Duration) -> Duration {
        let shortest = (timeout + MORE).min(LONGEST);
        self.left().map_or(LONGEST, |left| left.clamp(shortest, LONGEST))
    }

    /// As [`again`](Self::again), after an error of the library. Without a wait, the grace period of
    /// a server that may have forgotten grants is waited for all the same: the lock may be free.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn after(&mut self, error: Error) -> Result<(), Failure> {
        let waits = self.wait.is_some_and(|wait| !wait.is_zero());
        if error.kind() != ErrorKind::GracePeriod || waits || self.began.elapsed() > GRACE {
            return self.again(error.into()).await;
        }
        if !self.has_failed {
            self.has_failed = true;
            self.voice.warn(&format!("{error:#}; waiting for that"));
        }
        sleep(PAUSES.1).await;
        Ok(())
    }

    /// Pauses before the next try after a failure that may pass, and says so the first time. Returns the
    /// failure when the wait is over.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn again(&mut self, mut failure: Failure) -> Result<(), Failure> {
        let left = self.left().unwrap_or_default();
        if left.is_zero() {
            if self.has_failed {
                let waited = rounded(self.wait.unwrap_or_default());
                failure.message = format!("{}; tried again for {waited}", failure.message);
            }
            return Err(failure);
        }
        if !self.has_failed {
            self.has_failed = true;
            self.voice.warn(&format!("{}; trying again for {}", failure.message, rounded(left)));
        }
        tracing::info!(failure = failure.message, "trying again");
        sleep(self.pauses.next_pause().min(left)).await;
        Ok(())
    }
}

/// Whether the server may be back in a moment: it did not answer, or could not. A wrong password or address
/// stays wrong, and a lock that is held has been waited for.
pub(crate) fn may_pass(error: &Error) -> bool {
    use lockwell::ErrorKind::{GracePeriod, Overloaded, UnknownOutcome, Unreachable};
    error.is_retryable() && matches!(error.kind(), GracePeriod | Overloaded | UnknownOutcome | Unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_grace_period_is_waited_for_without_a_wait() {
        let mut patience = Patience::none(Voice::Quiet);
        let begun = Instant::now();
        let closed = || Error::new(ErrorKind::GracePeriod, "closed");
        while patience.after(closed()).await.is_ok() {}
        assert!((GRACE..GRACE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        let other = Patience::none(Voice::Quiet).after(Error::new(ErrorKind::Unreachable, "away")).await;
        assert!(other.unwrap_err().message.contains("away"));
        let mut patience = Patience::new(Some(Duration::from_secs(5)), Voice::Quiet);
        let begun = Instant::now();
        while patience.after(closed()).await.is_ok() {}
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn it_ends_with_the_wait_and_without_one_at_once() {
        for wait in [None, Some(Duration::ZERO)] {
            let failure =
                Patience::new(wait, Voice::Quiet).again(Failure::new(69, "away")).await.unwrap_err();
            assert_eq!(failure.message, "away");
        }
        let mut patience = Patience::new(Some(Duration::from_millis(250)), Voice::Quiet);
        let begun = Instant::now();
        let mut tries = 0;
        let failure = loop {
            match patience.again(Failure::new(69, "away")).await {
                Ok(()) => tries += 1,
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure.message, "away; tried again for 250ms");
        assert!(tries > 1 && begun.elapsed() >= Duration::from_millis(250), "{tries}");
    }
}
