//! Whether a thread rests, as it says itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Builder;

thread_local! {
    /// Whether this thread rests, or is about to: it has no work. A thread that waits for a mutex has.
    pub(crate) static RESTS: Arc<AtomicBool> = Arc::default();
}

pub(crate) fn note_rest(rests: bool) {
    // A thread that ends may have no such value any more.
    RESTS.try_with(|this| this.store(rests, Ordering::SeqCst)).unwrap_or_default();
}

/// The threads of this runtime rest when they have no work.
pub(crate) fn rest_when_idle(builder: &mut Builder) -> &mut Builder {
    builder.on_thread_park(|| note_rest(true)).on_thread_unpark(|| note_rest(false))
}
