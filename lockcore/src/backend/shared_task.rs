//! A task whose answer serves all who ask for it while it is under way.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::system::{lock, unless_panics};
use crate::{Error, Result};

/// A task whose answer serves all who ask for it while it is under way, such as the opening of a connection.
///
/// Whoever asked first may give up, or may not be polled for a while, and the others must not wait for that.
/// So the task is spawned, and none of those who wait drives it. An answer that nobody took is not kept for
/// those who ask after the end.
pub struct SharedTask<T: Clone>(Mutex<Option<UnderWay<T>>>);

struct UnderWay<T: Clone> {
    key: u64,
    /// The task has the other end until it ends, by a panic too.
    task: Weak<()>,
    answer: Shared<BoxFuture<'static, Result<T, Arc<Error>>>>,
}

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// No task is under way.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The answer of the task for `key` that is under way. If there is none, `spawn` starts `work`, and its
    /// future waits for the answer.
    ///
    /// # Cancel safety
    /// Cancel safe: the task runs to its end.
    pub async fn answer<S>(
        &self,
        key: u64,
        work: impl Future<Output = Result<T>> + Send + 'static,
        spawn: impl FnOnce(BoxFuture<'static, Result<T>>) -> S,
    ) -> Result<T>
    where
        S: Future<Output = Result<T>> + Send + 'static,
    {
        let answer = {
            let mut latest = lock(&self.0);
            match &*latest {
                Some(latest) if latest.key == key && latest.task.strong_count() > 0 => latest.answer.clone(),
                _ => {
                    let alive = Arc::new(());
                    let task = Arc::downgrade(&alive);
                    let work = async move {
                        let answer = work.await;
                        drop(alive);
                        answer
                    };
                    let answer = spawn(work.boxed()).map(|answer| answer.map_err(Arc::new)).boxed().shared();
                    latest.insert(UnderWay { key, task, answer }).answer.clone()
                }
            }
        };
        unless_panics(answer).await.map_err(|error| error.duplicate())
    }
}

impl<T: Clone + Send + Sync + 'static> Default for SharedTask<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> fmt::Debug for SharedTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTask").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;
    use crate::ErrorKind;

    fn spawned<T: Send + 'static>(
        work: BoxFuture<'static, Result<T>>,
    ) -> impl Future<Output = Result<T>> + Send + 'static {
        let task = tokio::spawn(work);
        async { task.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "it has panicked"))) }
    }

    /// A server that answers with the number of the call, when it may.
    #[derive(Default)]
    struct Server {
        calls: AtomicU64,
        may_answer: Notify,
    }

    impl Server {
        async fn call(self: Arc<Self>) -> Result<u64> {
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            self.may_answer.notified().await;
            match call {
                0 => Err(Error::new(ErrorKind::Unreachable, "the first call fails")),
                1 => panic!("as expected"),
                call => Ok(call),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_serves_all_and_nobody_who_comes_later() {
        let (server, task) = (Arc::new(Server::default()), SharedTask::new());
        let ask = |key| task.answer(key, Arc::clone(&server).call(), spawned);
        let calls = || server.calls.load(Ordering::SeqCst);

        let mut not_polled = Box::pin(ask(7));
        assert!(not_polled.as_mut().now_or_never().is_none());
        server.may_answer.notify_one();
        assert_eq!(ask(7).await.unwrap_err().kind(), ErrorKind::Unreachable);
        assert_eq!((not_polled.await.unwrap_err().kind(), calls()), (ErrorKind::Unreachable, 1));

        // This one panics, and nobody waits for it.
        assert!(ask(7).now_or_never().is_none());
        server.may_answer.notify_one();
        while calls() < 2 || task.0.lock().unwrap().as_ref().is_some_and(|it| it.task.strong_count() > 0) {
            tokio::task::yield_now().await;
        }
        server.may_answer.notify_one();
        assert_eq!((ask(7).await.unwrap(), calls()), (2, 3));
    }

    #[tokio::test]
    async fn another_key_is_another_task() {
        let (server, task) =
            (Arc::new(Server { calls: AtomicU64::new(2), ..Server::default() }), SharedTask::new());
        let ask = |key| task.answer(key, Arc::clone(&server).call(), spawned);
        let (mut one, mut two) = (Box::pin(ask(1)), Box::pin(ask(2)));
        assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        server.may_answer.notify_waiters();
        assert_eq!((one.await.unwrap(), two.await.unwrap()), (2, 3));
    }

    #[tokio::test]
    async fn a_waker_that_panics_keeps_nobody_from_the_answer() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("as expected");
            }
        }
        let (server, task) =
            (Arc::new(Server { calls: AtomicU64::new(2), ..Server::default() }), SharedTask::new());
        let ask = || task.answer(1, Arc::clone(&server).call(), spawned);
        let (mut one, two) = (Box::pin(ask()), ask());
        let waker = Waker::from(Arc::new(Panics));
        assert!(one.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let allow = async {
            tokio::task::yield_now().await;
            server.may_answer.notify_one();
        };
        let two = tokio::time::timeout(Duration::from_secs(20), two);
        let (two, ()) = tokio::join!(two, allow);
        assert_eq!(two.expect("it is notified").unwrap(), 2);
        assert_eq!(one.await.unwrap(), 2);
    }
}
