//! What `backend/batcher_sync.rs` of lockwell-core has, in loom.

use loom::sync::MutexGuard;
pub(super) use loom::sync::{Mutex, atomic::AtomicBool};
use tokio::runtime::Handle;

/// Locks a mutex, as that of lockwell-core.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Gives this to a thread. There is no runtime.
pub(super) fn spawn(_: Option<&Handle>, task: impl Future<Output = ()> + Send + 'static) {
    drop(loom::thread::spawn(move || loom::future::block_on(task)));
}

pub(super) fn is_present(_: Option<&Handle>) -> bool {
    true
}
