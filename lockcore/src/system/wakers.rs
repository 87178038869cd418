//! Wakers, which are code of the application.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what wakes tasks of the application. A waker that panics ends nothing but its own notification.
pub fn wake_tasks(wake: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(wake)).is_err() {
        tracing::error!("a waker of the application has panicked");
    }
}
