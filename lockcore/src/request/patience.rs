//! When an acquire that has failed is tried again.

use std::future::{Future, pending};
use std::time::Duration;

use crate::backend::Backoff;
use crate::{Clock, Error, ErrorKind, Moment, Result};

/// The pauses between two tries. Nothing says that a server is back, or that a grace period is over.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long an acquire goes on while the server is away.
#[derive(Debug)]
pub(crate) struct Patience {
    /// How long the server may be away.
    limit: Duration,
    /// Whether the end of a grace period is waited for, however long it takes.
    grace: bool,
    pauses: Backoff,
    /// Since when the server has been away, and the last reason that says something.
    away: Option<(Moment, Error)>,
}

impl Patience {
    pub(super) fn new(limit: Duration, grace: bool) -> Self {
        Self { limit, grace, pauses: Backoff::new(PAUSES.0, PAUSES.1), away: None }
    }

    /// Goes on after the error that has ended an earlier claim of the same request, for what is left.
    pub(super) fn after(self, error: &Error) -> Self {
        // No other claim follows its copy.
        Self { away: error.away_since().map(|since| (since, error.duplicate())), ..self }
    }

    /// The server has answered since the last error.
    pub(super) fn begin_anew(&mut self) {
        *self = Self::new(self.limit, self.grace);
    }

    /// Takes the error of a try. If there is no other try, the reason is returned: this error, or an earlier
    /// one that says more.
    pub(super) fn hear(&mut self, error: Error, clock: &Clock) -> Result<()> {
        let now = clock.now();
        let may_pass = may_pass(&error);
        let is_grace = error.kind() == ErrorKind::GracePeriod;
        let (since, reason) = match self.away.take() {
            Some(before) if error.is_silence() || error.kind() == ErrorKind::TimedOut => before,
            Some((since, _)) => (since, error),
            None => (now, error),
        };
        let goes_on = if is_grace { self.grace } else { may_pass && now.since(since) < self.limit };
        if !goes_on {
            return Err(reason);
        }
        tracing::info!(error = format!("{reason:#}"), "an acquire is tried again");
        self.away = Some((since, reason));
        Ok(())
    }

    /// Why the server is away.
    pub(super) fn reason(&self) -> Option<&Error> {
        self.away.as_ref().map(|(_, reason)| reason)
    }

    /// Pauses before the next try. If `over` comes first, there is none, and the reason is returned.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(super) async fn pause(&mut self, clock: &Clock, over: impl Future<Output = ()>) -> Result<()> {
        match clock.timeout(self.pauses.next_pause(), over).await {
            None => Ok(()),
            Some(()) => self.end(),
        }
    }

    /// The reason for another claim, if the server is away.
    pub(super) fn end_of_claim(&mut self) -> Result<()> {
        self.away.take().map_or(Ok(()), |(since, reason)| Err(reason.of_ended_claim(since)))
    }

    /// The reason, if the server is away.
    pub(super) fn end(&mut self) -> Result<()> {
        self.away.take().map_or(Ok(()), |(_, reason)| Err(reason))
    }
}

/// Whether the server may serve the same request in a moment. A refusal stays one, and the end of a wait is
/// the end.
pub(super) fn may_pass(error: &Error) -> bool {
    error.is_retryable() && error.kind() != ErrorKind::TimedOut
}

/// Tries once or, with `grace`, again until the server grants locks.
///
/// # Cancel safety
/// That of a try.
pub(super) async fn through_grace<T, F>(clock: &Clock, grace: bool, mut once: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut patience = Patience::new(Duration::ZERO, grace);
    loop {
        match once().await {
            Ok(answer) => return Ok(answer),
            Err(error) => patience.hear(error, clock)?,
        }
        patience.pause(clock, pending()).await?;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use std::collections::HashSet;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::super::Choices;
    use super::super::in_time::InTime;
    use super::*;
    use crate::backend::MemoryLock;
    use crate::testing::TestServer;
    use crate::{
        Capabilities, Claim, DistributedLock, Grant, LockName, LockStatus, Locks, Operation, OwnerId,
        Released, Renewal, async_trait,
    };

    const LONG: Duration = Duration::from_secs(60);

    /// Waits for something while somebody moves the clock of the server.
    async fn while_time_passes<T>(server: &TestServer, work: impl Future<Output = T>) -> T {
        let moving = async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                server.advance(Duration::from_millis(20));
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            () = moving => unreachable!(),
        }
    }

    /// The outcome of each kind of try, while the server is closed for three tries.
    async fn outcomes(is_patient: bool) -> Vec<Result<bool>> {
        let server = TestServer::new();
        let locks: Locks = server.locks().unwrap();
        let mut outcomes = Vec::new();
        for kind in 0..4 {
            server.heal();
            server.fail_times(Operation::Acquire, ErrorKind::GracePeriod, 3);
            let trying = async {
                macro_rules! is_granted {
                    ($request:expr) => {{
                        let request = $request;
                        let request = if is_patient { request.through_grace() } else { request };
                        request.try_now().await.map(|guard| guard.is_some())
                    }};
                }
                match kind {
                    0 => is_granted!(locks.lock("a")),
                    1 => is_granted!(locks.lock_all(["b"])),
                    2 => is_granted!(locks.owner().lock("c")),
                    _ => is_granted!(locks.campaign("d")),
                }
            };
            outcomes.push(while_time_passes(&server, trying).await);
        }
        outcomes
    }

    #[tokio::test]
    async fn a_try_waits_for_the_end_of_a_grace_period_if_it_is_told_to() {
        for outcome in outcomes(true).await {
            assert!(outcome.unwrap());
        }
        for outcome in outcomes(false).await {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::GracePeriod);
        }
    }

    #[tokio::test]
    async fn a_wait_covers_a_server_that_is_away() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        let away = |kind| server.fail_times(Operation::Acquire, kind, 5);
        for kind in
            [ErrorKind::Unreachable, ErrorKind::UnknownOutcome, ErrorKind::Overloaded, ErrorKind::Conflict]
        {
            away(kind);
            let guard = while_time_passes(&server, locks.lock("a").wait(LONG).into_future()).await.unwrap();
            // A copy of an earlier request may still arrive, if one was sent.
            let in_doubt = guard.grant().claim().in_doubt_until().is_some();
            assert_eq!(in_doubt, kind != ErrorKind::Overloaded, "{kind:?}");
            assert!(guard.is_held());
            guard.release().await.unwrap();
        }
        away(ErrorKind::Unreachable);
        drop(while_time_passes(&server, locks.lock("b").wait_forever().into_future()).await.unwrap());
        away(ErrorKind::Unreachable);
        drop(while_time_passes(&server, locks.lock_all(["c", "d"]).wait(LONG).into_future()).await.unwrap());
        away(ErrorKind::Unreachable);
        drop(while_time_passes(&server, locks.owner().lock("e").wait(LONG).into_future()).await.unwrap());
        away(ErrorKind::Unreachable);
        let led = while_time_passes(&server, locks.run_as_leader("f", async |_| 7)).await;
        assert_eq!(led.unwrap(), 7);
        away(ErrorKind::Unreachable);
        let patient = locks.lock("g").patience(LONG);
        drop(while_time_passes(&server, patient.into_future()).await.unwrap());
    }

    async fn kind_of<T>(request: impl IntoFuture<Output = Result<T>>) -> ErrorKind {
        request.await.map(|_| ()).unwrap_err().kind()
    }

    /// A backend that cannot go on with its first claims.
    #[derive(Debug)]
    struct Ending {
        inner: Arc<dyn DistributedLock>,
        ends: AtomicUsize,
        /// Whether it has answered each claim before.
        answers: AtomicBool,
        seen: Mutex<HashSet<OwnerId>>,
    }

    impl Ending {
        fn new(inner: Arc<dyn DistributedLock>) -> (Arc<Self>, Locks) {
            let (ends, answers, seen) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::default());
            let backend = Arc::new(Self { inner, ends, answers, seen });
            let locks = Locks::new(Arc::clone(&backend) as Arc<dyn DistributedLock>).unwrap();
            (backend, locks)
        }
    }

    #[async_trait]
    impl DistributedLock for Ending {
        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        fn clock(&self) -> Clock {
            self.inner.clock()
        }

        async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
            assert!(self.seen.lock().unwrap().insert(claim.owner()), "the same claim again");
            let is_over = |left: usize| left.checked_sub(1);
            if self.ends.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_over).is_ok() {
                if self.answers.load(Ordering::SeqCst) {
                    claim.note_waiting();
                }
                claim.cancel();
                return Err(Error::new(ErrorKind::Unreachable, "a request to release it may arrive late"));
            }
            self.inner.acquire(claim).await
        }

        async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
            self.inner.renew(grants, until).await
        }

        async fn release(&self, claim: &Claim) -> Result<Released> {
            self.inner.release(claim).await
        }

        async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
            self.inner.inspect(name).await
        }

        async fn force_release(&self, name: &LockName) -> Result<usize> {
            self.inner.force_release(name).await
        }
    }

    #[tokio::test]
    async fn a_request_goes_on_with_another_claim() {
        let (backend, locks) = Ending::new(Arc::new(MemoryLock::new()));
        let end = || backend.ends.store(2, Ordering::SeqCst);
        end();
        assert_eq!(locks.run_as_leader("a", async |_| 7).await.unwrap(), 7);
        end();
        locks.lock("b").wait(LONG).await.unwrap().release().await.unwrap();
        end();
        drop(locks.lock_all(["c", "d"]).wait(LONG).await.unwrap());
        end();
        drop(locks.owner().lock("e").wait(LONG).await.unwrap());
        assert_eq!(backend.ends.load(Ordering::SeqCst), 0);
        // Who has no patience learns of it.
        for request in [locks.lock("f"), locks.lock("f").wait(LONG).patience(Duration::ZERO)] {
            end();
            assert_eq!(request.await.unwrap_err().kind(), ErrorKind::Unreachable);
            assert_eq!(backend.ends.load(Ordering::SeqCst), 1, "one claim");
        }
    }

    #[tokio::test]
    async fn the_patience_is_that_of_all_claims_of_a_request() {
        let server = TestServer::new();
        let (backend, locks) = Ending::new(server.backend());
        let short = Duration::from_secs(5);
        let lasts = async |work: Pin<Box<dyn Future<Output = ErrorKind>>>| {
            backend.ends.store(usize::MAX, Ordering::SeqCst);
            let began = server.clock().clock().now();
            let kind = while_time_passes(&server, work).await;
            (kind, server.clock().clock().now().since(began))
        };
        for (kind, took) in [
            lasts(Box::pin(kind_of(locks.lock("a").wait(LONG).patience(short)))).await,
            lasts(Box::pin(kind_of(locks.lock_all(["b", "c"]).wait(LONG).patience(short)))).await,
            lasts(Box::pin(kind_of(locks.owner().lock("d").wait(LONG).patience(short)))).await,
            lasts(Box::pin(kind_of(locks.campaign("e").wait(LONG).patience(short)))).await,
        ] {
            assert_eq!(kind, ErrorKind::Unreachable);
            assert!((short..LONG / 2).contains(&took), "{took:?}");
        }
        backend.answers.store(true, Ordering::SeqCst);
        let (_, took) = lasts(Box::pin(kind_of(locks.lock("f").wait(short * 3).patience(short)))).await;
        assert!((short * 3..LONG).contains(&took), "each answer begins it anew: {took:?}");
    }

    #[tokio::test]
    async fn what_is_not_waited_for_fails_at_once() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        // Nobody moves the clock.
        for kind in [ErrorKind::Refused, ErrorKind::Misconfigured, ErrorKind::Lost, ErrorKind::Internal] {
            server.fail_times(Operation::Acquire, kind, 1);
            assert_eq!(locks.lock("a").wait(LONG).await.unwrap_err().kind(), kind);
        }
        let requests = [
            locks.lock("a"),
            locks.lock("a").wait(Duration::ZERO),
            locks.lock("a").wait(LONG).patience(Duration::ZERO),
        ];
        for request in requests {
            server.fail_times(Operation::Acquire, ErrorKind::Unreachable, 1);
            assert_eq!(request.await.unwrap_err().kind(), ErrorKind::Unreachable);
        }
        server.fail_times(Operation::Acquire, ErrorKind::Unreachable, 1);
        assert_eq!(
            locks.lock("a").patience(LONG).try_now().await.unwrap_err().kind(),
            ErrorKind::Unreachable
        );
    }

    #[tokio::test]
    async fn a_server_may_be_away_for_as_long_as_the_patience() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        server.fail(Operation::Acquire, ErrorKind::Unreachable);
        let began = server.clock().clock().now();
        let request = locks.lock("a").wait(LONG).patience(Duration::from_secs(5));
        let error = while_time_passes(&server, request.into_future()).await.unwrap_err();
        let took = server.clock().clock().now().since(began);
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!((Duration::from_secs(5)..LONG / 2).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn the_end_of_the_wait_says_why_the_server_was_away() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        server.fail(Operation::Acquire, ErrorKind::Overloaded);
        let mut first = InTime::new(locks.lock("a").wait(LONG).checked(Choices::until).unwrap());
        let claim = first.claim().unwrap().clone();
        let mut second = locks.lock("a").wait(LONG / 2).into_future();
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none(), "both wait");
        // The second one waits behind the first.
        server.advance(LONG / 2);
        assert_eq!(second.await.unwrap_err().kind(), ErrorKind::Overloaded);
        server.heal();
        server.delay(Operation::Acquire, Duration::MAX);
        assert!(claim.in_doubt_until().is_none(), "nothing was done");
        let error = while_time_passes(&server, first).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{error:#}");
        assert!(claim.in_doubt_until().is_some(), "the last request may still arrive");
        let silent = while_time_passes(&server, locks.lock("b").wait(LONG).into_future()).await.unwrap_err();
        assert!(silent.is_silence() && silent.kind() == ErrorKind::Unreachable, "{silent:#}");
    }

    #[tokio::test]
    async fn what_the_server_has_answered_since_is_what_counts() {
        let server = TestServer::new();
        let (locks, other) = (server.locks().unwrap(), server.locks().unwrap());
        let held = other.lock("a").ttl(LONG * 10).await.unwrap();
        server.fail_times(Operation::Acquire, ErrorKind::Unreachable, 2);
        let error = while_time_passes(&server, locks.lock("a").wait(LONG).into_future()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
        drop(held);
    }

    #[tokio::test]
    async fn who_leaves_in_the_pause_leaves_nothing() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        server.fail_times(Operation::Acquire, ErrorKind::Unreachable, 1);
        let mut leaves = locks.lock("a").wait(LONG).into_future();
        assert!((&mut leaves).now_or_never().is_none(), "it waits");
        drop(leaves);
        // The clock stands still, and the next one gets the lock all the same.
        let next = tokio::time::timeout(LONG, locks.lock("a").wait(LONG).into_future()).await;
        next.expect("its turn comes").unwrap().release().await.unwrap();
        assert!(!locks.inspect("a").await.unwrap().is_held());
    }
}
