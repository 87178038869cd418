//! Wakers of the application.

use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use super::*;
use crate::LockGuard;

/// A request for a lock.
pub(super) type Waiting = Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>;

struct OnWake<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        let on_wake = lock(&self.0).take();
        if let Some(on_wake) = on_wake {
            on_wake();
        }
    }
}

/// Polls a request that has to wait, with a waker that does this once.
pub(super) fn woken(waiting: &mut Waiting, on_wake: impl FnOnce() + Send + 'static) {
    let waker = Waker::from(Arc::new(OnWake(Mutex::new(Some(on_wake)))));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
}
