//! Wakers, which are code of the application.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Runs what wakes tasks of the application. A waker that panics ends nothing but its own notification.
pub fn wake_tasks(wake: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(wake)).is_err() {
        tracing::error!("a waker of the application has panicked");
    }
}

/// A waker that wakes a task of the application, for those who would not survive a panic: a connection, or a
/// list of wakers that are called one after the other.
pub(crate) fn quiet(waker: &Waker) -> Waker {
    Waker::from(Arc::new(QuietWaker(waker.clone())))
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
