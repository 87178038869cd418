//! How long a claim waits.

use std::future::Future;
use std::time::Duration;

use super::{Claim, Wait};
use crate::{Error, ErrorKind, Moment, Result};

/// How long a claim whose wait has ended still waits for an answer that is on its way.
const LATE_ANSWER: Duration = Duration::from_millis(12);

/// How long a request whose wait has ended still waits for the backend's own answer, which may need
/// [`LATE_ANSWER`]. It says more than "timed out": that the server cannot be reached, for instance.
pub(crate) const BACKEND_ANSWER: Duration = Duration::from_millis(20);

/// If a request has been under way for longer than this when the wait ends, the error is that the server does
/// not answer.
const SILENCE: Duration = Duration::from_millis(500);

/// A claim has at least this long for the first answer of the server, however short its wait is. A wait of a
/// few milliseconds would otherwise end before the answer that a free lock is granted, on a busy machine or
/// over a slow network.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(1);

impl Claim {
    /// Resolves when the wait is over: its time has passed, or the claim was cancelled. A claim that has no
    /// answer yet has a second for it, however short its wait is.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn wait_over(&self) {
        loop {
            let bell = self.0.bell.notified();
            if self.is_wait_over() {
                return;
            }
            // An answer changes the end, and so does a task that waits behind this claim.
            match self.wait() {
                Wait::Until(end) if !self.keeps_place() => tokio::select! {
                    () = bell => (),
                    () = self.clock().sleep_until(self.covering_the_answer(end)) => (),
                },
                _ => bell.await,
            }
        }
    }

    /// Resolves when the time for which the caller waits is over, and the backend should have answered.
    pub(crate) async fn end_of_wait(&self) {
        let end = match self.wait() {
            Wait::No => return,
            Wait::Forever => return std::future::pending().await,
            Wait::Until(end) => end,
        };
        let clock = self.clock();
        let is_over = || clock.has_passed(self.covering_the_answer(end));
        loop {
            let bell = self.0.bell.notified();
            // An answer changes the end.
            tokio::select! {
                () = bell => (),
                () = clock.sleep_until(self.covering_the_answer(end)) => (),
            }
            // And so does a turn that has come meanwhile in this process: then the answer is still to come.
            if is_over() {
                clock.sleep(BACKEND_ANSWER).await;
                if is_over() {
                    return;
                }
            }
        }
    }

    /// The end of the wait: later than it was set while the first answer is still to come.
    fn covering_the_answer(&self, end: Moment) -> Moment {
        self.life(|life| if life.answered { end } else { end.max(life.began.after(FIRST_ANSWER)) })
    }

    /// For backends: waits for the answer to a request until the wait is over, plus a
    /// moment for an answer that is on its way. The request is then dropped, and its outcome is unknown.
    pub async fn within_wait<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        if self.wait() == Wait::No {
            return answer.await;
        }
        let asked = self.clock().now();
        match self.while_wanted(answer).await {
            Some(answer) => answer,
            None => Err(self.wait_over_error(asked)),
        }
    }

    /// For backends: polls some work until the wait is over, plus a moment for an answer that is on its way.
    /// `None`: that time was over before the work was done.
    pub async fn while_wanted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = self.wait_over() => (),
        }
        self.clock().timeout(LATE_ANSWER, work).await
    }

    /// For backends: the error of a wait that ended while a request was under way. `asked` is the time at
    /// which that request was sent.
    pub fn wait_over_error(&self, asked: Moment) -> Error {
        // Without a first answer nobody knows whether the lock is held.
        if self.clock().now().since(asked) > SILENCE || !self.has_answer() {
            Error::silence()
        } else {
            Error::new(ErrorKind::TimedOut, "the wait ended while a request was under way")
        }
    }

    /// Notes that the server is away, for this reason. What it has answered before does not count any more: it
    /// may have forgotten the claim, so there is no place to keep for others.
    pub(crate) fn note_away(&self, reason: Option<&Error>) {
        self.note_obstacle(reason);
        self.life(|life| life.answered = false);
    }

    /// Why the server decides nothing about the claim now.
    pub(crate) fn obstacle(&self) -> Option<Error> {
        self.state().obstacle.as_ref().map(Error::duplicate)
    }

    /// The error of a task that has waited behind this claim, if the server has left it without an answer, or
    /// has answered that it decides nothing now.
    pub(crate) fn silence(&self) -> Option<Error> {
        let silent = || !self.has_answer() && self.clock().now().since(self.began()) > SILENCE;
        self.obstacle().or_else(|| silent().then(|| self.wait_over_error(self.began())))
    }

    /// Whether the wait is over: its time has passed, or the claim was cancelled.
    pub fn is_wait_over(&self) -> bool {
        let (cancelled, keeps_place) = self.life(|life| (life.is_cancelled(), life.keeps_place()));
        cancelled
            || match self.wait() {
                _ if keeps_place => false,
                Wait::No => true,
                Wait::Until(end) => self.clock().has_passed(self.covering_the_answer(end)),
                Wait::Forever => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockName, Mode};

    fn claim(wait: Wait) -> Claim {
        let name = LockName::new("a").unwrap();
        Claim::new(name, Mode::Exclusive, Duration::from_secs(1), wait, "test".into())
    }

    #[tokio::test]
    async fn a_cancel_is_seen_before_and_after() {
        let claim = claim(Wait::Forever);
        let waiting = tokio::spawn({
            let claim = claim.clone();
            async move { claim.wait_over().await }
        });
        tokio::task::yield_now().await;
        assert!(!claim.is_wait_over());
        claim.cancel();
        waiting.await.unwrap();
        claim.wait_over().await;
    }

    #[tokio::test]
    async fn the_end_of_the_wait_needs_no_cancellation() {
        let end = Moment::now().after(Duration::from_millis(10));
        let claim = claim(Wait::Until(end));
        claim.note_waiting();
        claim.wait_over().await;
        assert!(end.has_passed() && claim.is_wait_over() && !claim.is_cancelled());
    }

    #[tokio::test]
    async fn a_wait_covers_the_first_answer() {
        let short = Wait::Until(Moment::now());
        let answered = claim(short);
        assert!(!answered.is_wait_over());
        let waiting = tokio::spawn({
            let claim = answered.clone();
            async move { claim.wait_over().await }
        });
        tokio::task::yield_now().await;
        answered.note_waiting();
        waiting.await.unwrap();
        assert!(answered.is_wait_over());
        // Its turn has come in this process: the server is asked only now.
        answered.begin_now();
        assert!(!answered.is_wait_over());
        let unanswered = claim(short);
        unanswered.wait_over().await;
        assert!(Moment::now().since(unanswered.began()) >= FIRST_ANSWER && unanswered.is_wait_over());
        assert_eq!(unanswered.wait_over_error(Moment::now()).kind(), ErrorKind::Unreachable);
    }
}
