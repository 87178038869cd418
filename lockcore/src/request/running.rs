//! Work that is done while something is held.

use std::slice;

use super::ReentrantGuard;
use crate::background::{Book, lost_at_work};
use crate::hold::first_lost;
use crate::{ErrorKind, ErrorWith, LockAllGuard, LockGuard, Operation, Result};

/// What can be held while work is done.
pub(super) trait Hold {
    /// The guards of its locks.
    fn guards(&self) -> &[LockGuard];

    async fn release(self) -> Result<()>;
}

/// Runs `work` while the guard is held, and releases it. `work` gets the view. All errors are of kind
/// [`Lost`](ErrorKind::Lost): the work was dropped, or ended after the loss. Work that ended has its value in
/// the error.
pub(super) async fn run<G, V, F, W, T>(book: &Book, view: V, guard: G, work: F) -> Result<T, ErrorWith<T>>
where
    G: Hold,
    F: FnOnce(V) -> W,
    W: Future<Output = T>,
{
    let lost = |gone: &LockGuard, value| {
        let error = lost_at_work(gone.renewal_failure());
        ErrorWith::new(book.decorate(error, Operation::Hold, Some(gone.name())), value)
    };
    let value = tokio::select! {
        // Finished work counts even if the loss is noticed in the same moment: the deadline decides below.
        biased;
        value = work(view) => value,
        (gone, _) = first_lost(guard.guards()) => return Err(lost(gone, None)),
    };
    if let Some(gone) = guard.guards().iter().find(|guard| !guard.is_held()) {
        return Err(lost(gone, Some(value)));
    }
    match guard.release().await {
        Err(error) if error.kind() == ErrorKind::Lost => Err(ErrorWith::new(error, Some(value))),
        // The work was done under the lock. The keeper repeats a release that failed.
        _ => Ok(value),
    }
}

impl Hold for LockGuard {
    fn guards(&self) -> &[LockGuard] {
        slice::from_ref(self)
    }

    async fn release(self) -> Result<()> {
        LockGuard::release(self).await
    }
}

impl Hold for ReentrantGuard {
    fn guards(&self) -> &[LockGuard] {
        slice::from_ref(&**self)
    }

    async fn release(self) -> Result<()> {
        ReentrantGuard::release(self).await
    }
}

impl Hold for LockAllGuard {
    fn guards(&self) -> &[LockGuard] {
        LockAllGuard::guards(self)
    }

    async fn release(self) -> Result<()> {
        LockAllGuard::release(self).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::testing::TestServer;
    use crate::{Error, ErrorKind, LockHandle, Locks, blocking};

    /// The error of an application.
    #[derive(Debug)]
    enum Failed {
        Lock(ErrorKind),
        Work,
    }

    impl From<Error> for Failed {
        fn from(error: Error) -> Self {
            Self::Lock(error.kind())
        }
    }

    async fn fails<V>(_: V) -> Result<(), Failed> {
        Err(Failed::Work)
    }

    #[tokio::test]
    async fn the_error_of_work_comes_through_and_the_lock_is_released() {
        let locks = Locks::in_memory();
        let one = locks.lock("a").try_run(fails).await;
        let all = locks.lock_all(["a", "b"]).try_run(fails).await;
        let own = locks.owner().lock("a").try_run(fails).await;
        let leader = locks.campaign("a").try_run_as_leader(fails).await;
        for result in [one, all, own, leader] {
            assert!(matches!(result, Err(Failed::Work)), "{result:?}");
        }
        let value = locks.lock("a").try_run(async |_| Ok::<_, Failed>(7)).await.unwrap();
        assert_eq!(value, 7);
        assert!(locks.lock_all(["a", "b"]).try_now().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_lock_that_is_lost_or_not_had_is_an_error_whatever_the_work_returns() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        let loses = async |_: LockHandle| {
            server.advance(Duration::from_secs(60));
            Err::<(), _>(Failed::Work)
        };
        let error = locks.lock("a").run(loses).await.unwrap_err();
        assert!(error.to_string().starts_with("test: hold \"a\": lost: "), "{error}");
        let result = locks.lock("a").try_run(loses).await;
        assert!(matches!(result, Err(Failed::Lock(ErrorKind::Lost))), "{result:?}");
        server.fail(crate::Operation::Acquire, ErrorKind::Unreachable);
        let result = locks.lock("b").try_run(fails).await;
        assert!(matches!(result, Err(Failed::Lock(ErrorKind::Unreachable))), "{result:?}");
    }

    #[test]
    fn threads_have_it_as_well() {
        let server = TestServer::new();
        let locks = server.locks().unwrap();
        let result = blocking::try_run(locks.lock("a"), |_| Err::<(), _>(Failed::Work));
        assert!(matches!(result, Err(Failed::Work)), "{result:?}");
        let value = blocking::try_run(locks.lock("a").wait(Duration::from_secs(30)), LockHandle::check);
        assert!(value.is_ok(), "{value:?}");
        let result = blocking::try_run(locks.lock("b"), |_| {
            server.advance(Duration::from_secs(60));
            Ok::<_, Failed>(7)
        });
        assert!(matches!(result, Err(Failed::Lock(ErrorKind::Lost))), "{result:?}");
    }
}
