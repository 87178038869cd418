//! Wakers, which are code of the application.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// Runs what wakes tasks of the application. A waker that panics ends nothing but `wake`.
///
/// If that calls several wakers, as `notify_waiters` of tokio does, those after it are not called: their
/// tasks see the change when a timer wakes them, or poll with wakers that do not panic
/// ([`unless_panics`]).
pub fn wake_tasks(wake: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(wake)).is_err() {
        tracing::error!("a waker of the application has panicked");
    }
}

/// A waker that wakes a task of the application, for those who would not survive a panic: a connection, or a
/// list of wakers that are called one after the other.
fn quiet(waker: &Waker) -> Waker {
    Waker::from(Arc::new(QuietWaker(waker.clone())))
}

/// Waits for a future with wakers that do not panic. For those whose wakers are called one after the other,
/// as by `Shared` of `futures_util` under its mutex, or by `notify_waiters` and `watch` of tokio: one that
/// panics would keep the rest from their notification.
///
/// # Cancel safety
/// That of the future.
pub async fn unless_panics<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let waker = quiet(cx.waker());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// A waker that does this.
#[cfg(test)]
pub(crate) fn waker(on_wake: impl Fn() + Send + Sync + 'static) -> Waker {
    struct OnWake<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
        fn wake(self: Arc<Self>) {
            self.0();
        }
    }

    Waker::from(Arc::new(OnWake(on_wake)))
}

struct QuietWaker(Waker);

impl Wake for QuietWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        wake_tasks(|| self.0.wake_by_ref());
    }
}
