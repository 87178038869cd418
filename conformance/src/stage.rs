//! What cases have in common: clients, names, and waiting for things to become true.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::time::{clock, now, sleep};
use crate::lateness::allowed;
use crate::{Harness, Link, Server};
use lockwell_core::{Claim, FencingToken, LockGuard, LockName, LockStatus, Locks, Mode, Moment, Wait};

/// What "at once" and "punctual" mean on a machine that is busy with other things.
pub(super) const LATE: Duration = Duration::from_millis(500);

/// A lease that must be kept, in milliseconds: it is long enough for a machine that is busy with other
/// things.
pub(super) const KEPT: u64 = 5000;

/// How soon after the end of a lease the lock is free, and shown so. Servers check for such leases from time
/// to time.
pub(super) const EXPIRY: Duration = Duration::from_secs(1);

/// The place of one run of one case.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) harness: Arc<dyn Harness>,
    /// Part of every lock name of this run: other cases, other runs and other processes use others.
    pub(super) unique: Arc<str>,
}

impl Stage {
    pub(super) fn new(harness: Arc<dyn Harness>, case: &str) -> Self {
        Self { harness, unique: format!("{case}/{:016x}", rand::random::<u64>()).into() }
    }

    /// A client of its own. Each of its requests goes to the server.
    pub(super) async fn client(&self) -> Locks {
        self.process().await.server_order()
    }

    /// A client of its own whose tasks queue in memory, as those of a process do by default.
    pub(super) async fn process(&self) -> Locks {
        self.harness.client().await.unwrap_or_else(|error| panic!("a new client: {error:#}"))
    }

    /// Several clients of their own.
    pub(super) async fn clients<const N: usize>(&self) -> [Locks; N] {
        let mut clients = Vec::with_capacity(N);
        for _ in 0..N {
            clients.push(self.client().await);
        }
        clients.try_into().expect("as many as asked for")
    }

    /// A lock name that only this run uses.
    pub(super) fn name(&self, which: impl std::fmt::Display) -> LockName {
        LockName::new(format!("{}/{which}", self.unique)).expect("short and plain")
    }

    pub(super) fn server(&self) -> &dyn Server {
        self.harness.server().expect("the harness offers its server's switches")
    }

    pub(super) async fn link(&self) -> Box<dyn Link> {
        self.harness.link().await.expect("the harness offers a network that fails")
    }
}

/// This lease, or the shortest that the backend allows.
pub(super) fn ttl_of(locks: &Locks, millis: u64) -> Duration {
    locks.capabilities().min_ttl().max(Duration::from_millis(millis))
}

/// A claim as `lockcore` would make it, for cases that call the backend itself. Its grant is not renewed.
pub(super) fn claim(name: &LockName, mode: Mode, ttl: Duration, wait: Wait) -> Claim {
    Claim::new(name.clone(), mode, ttl, wait, "conformance".into()).with_clock(clock())
}

/// A wait for at most this time.
pub(super) fn within(span: Duration) -> Wait {
    Wait::Until(now().after(span))
}

/// By when a backend that is asked to renew must answer.
pub(super) fn soon() -> Moment {
    now().after(secs(5))
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) async fn pause(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

/// What the server says about a lock.
pub(super) async fn status(locks: &Locks, name: &LockName) -> LockStatus {
    locks.inspect(name).await.unwrap_or_else(|error| panic!("inspect: {error:#}"))
}

/// The token of the only holder, `None` if there is none.
pub(super) async fn holder(locks: &Locks, name: &LockName) -> Option<FencingToken> {
    let status = status(locks, name).await;
    assert!(status.holders.len() <= 1, "one holder at most: {status:?}");
    status.holders.first().map(|holder| holder.token)
}

/// `other` does not get the lock, unless the lease of its holder has ended, as it may on a machine that stood
/// still.
pub(super) async fn is_refused(other: &Locks, name: &LockName, held: &LockGuard, when: &str) {
    let Some(second) = other.lock(name).try_now().await.expect("an answer") else { return };
    // The holder is asked after the answer: if it still holds the lock now, it held it then.
    let (one, two) = (held.token(), second.token());
    assert!(!held.is_held(), "{when}: {name:?} was granted twice, with tokens {one} and {two}");
    panic!("{when}: the lease of {name:?} ended, and it was granted again with token {two}");
}

/// Waits until exactly this number of claims is in the queue.
pub(super) async fn queued(locks: &Locks, name: &LockName, waiters: usize, limit: Duration) {
    let began = now();
    loop {
        let status = status(locks, name).await;
        if status.waiters == waiters {
            return;
        }
        assert_within(began, limit, || format!("not {waiters} in the queue: {status:?}"));
        pause(5).await;
    }
}

/// Waits for a task that must come to its end by then.
pub(super) async fn done<T>(what: &str, limit: Duration, task: impl Future<Output = T>) -> T {
    let (began, mut task) = (now(), std::pin::pin!(task));
    loop {
        let end = began.after(allowed(limit, began));
        match clock().timeout_at(end, task.as_mut()).await {
            Some(value) => return value,
            None => assert_within(began, limit, || what.to_owned()),
        }
    }
}

/// Panics if more time than this has passed since then, and the machine was not late by the difference.
pub(super) fn assert_within(began: Moment, limit: Duration, what: impl FnOnce() -> String) {
    assert_took(now().since(began), began, limit, what);
}

/// Panics if this took longer than the limit, and the machine was not late by the difference since it began.
pub(super) fn assert_took(took: Duration, began: Moment, limit: Duration, what: impl FnOnce() -> String) {
    let allowed = allowed(limit, began);
    let late = allowed.saturating_sub(limit);
    assert!(
        took <= allowed,
        "{}: not within {limit:?}: it took {took:?}, on a machine that was {late:?} late",
        what()
    );
}

/// Takes the lock, which must be free by then, and says how long it took.
pub(super) async fn free_by(
    locks: &Locks,
    name: &LockName,
    limit: Duration,
    what: &str,
) -> (LockGuard, Duration) {
    let began = now();
    // A longer wait than the limit, so that a failure can say how late it was.
    match locks.lock(name).wait(limit + secs(5)).await {
        Ok(guard) => {
            let took = now().since(began);
            assert_took(took, began, limit, || format!("{what}: the lock was free"));
            (guard, took)
        }
        Err(error) => {
            let status = locks.inspect(name).await;
            panic!("{what}: the lock did not become free: {error:#}; {status:?}");
        }
    }
}

/// Releases a lock that must still be held.
pub(super) async fn release(guard: LockGuard) {
    let (name, token) = (guard.name().clone(), guard.token());
    guard.release().await.unwrap_or_else(|error| panic!("release of {name} with token {token}: {error:#}"));
}

/// Polls a future once.
pub(super) async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}
