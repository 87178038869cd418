//! Values that each runtime has separately.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use crate::system::lock;
use crate::{Error, ErrorKind, Result};

/// One `T` for each tokio runtime that uses it, such as a connection with its requests.
///
/// A connection works only while the runtime that made it is driven. If several runtimes shared a connection,
/// a runtime that is blocked, or not driven for a while, would delay the others. So each runtime has its own
/// connection, and no runtime depends on another. A program usually has one runtime, and the keeper has
/// another, so there are two connections to a server.
///
/// The value of a runtime is dropped when the runtime ends.
pub struct PerRuntime<T>(Arc<Mutex<Slots<T>>>);

struct Slots<T> {
    slots: Vec<RuntimeSlot<T>>,
    /// Numbers the slots: a runtime may get another slot after its slot was closed.
    last: u64,
}

struct RuntimeSlot<T> {
    number: u64,
    runtime: Id,
    value: Arc<T>,
    /// A task that sleeps on the runtime, and is dropped when the runtime ends.
    sentinel: Option<AbortHandle>,
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    /// No values yet.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Slots { slots: Vec::new(), last: 0 })))
    }

    /// The value of the current runtime. If it has none, this makes it.
    ///
    /// Fails if it is called outside of a tokio runtime.
    pub fn get(&self, make: impl FnOnce() -> T) -> Result<Arc<T>> {
        let handle = Handle::try_current().map_err(|_| {
            let text = "lockwell must be used within a tokio runtime, and there is none on this thread";
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let runtime = handle.id();
        let (value, number) = {
            let mut all = lock(&self.0);
            if let Some(slot) = all.slots.iter().find(|slot| slot.runtime == runtime) {
                return Ok(Arc::clone(&slot.value));
            }
            let value = Arc::new(make());
            all.last += 1;
            let number = all.last;
            all.slots.push(RuntimeSlot { number, runtime, value: Arc::clone(&value), sentinel: None });
            (value, number)
        };
        let end = End { slots: Arc::downgrade(&self.0), number };
        // Not under the mutex: a runtime that is shutting down drops the task at once, and that takes the
        // slot out.
        let sentinel = handle.spawn(async move {
            let _end = end;
            std::future::pending::<()>().await;
        });
        if let Some(slot) = lock(&self.0).slots.iter_mut().find(|slot| slot.number == number) {
            slot.sentinel = Some(sentinel.abort_handle());
        }
        Ok(value)
    }

    /// Removes the values of all runtimes and returns them, so that the caller can close them.
    pub fn take_all(&self) -> Vec<Arc<T>> {
        let slots = std::mem::take(&mut lock(&self.0).slots);
        let values = slots.into_iter().map(|slot| {
            slot.sentinel.inspect(AbortHandle::abort);
            slot.value
        });
        values.collect()
    }
}

impl<T> Drop for PerRuntime<T> {
    fn drop(&mut self) {
        for slot in &lock(&self.0).slots {
            slot.sentinel.as_ref().inspect(|sentinel| sentinel.abort());
        }
    }
}

impl<T: Send + Sync + 'static> Default for PerRuntime<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerRuntime<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerRuntime").field("runtimes", &lock(&self.0).slots.len()).finish()
    }
}

/// Dropped when the runtime ends.
struct End<T> {
    slots: Weak<Mutex<Slots<T>>>,
    number: u64,
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        let Some(slots) = self.slots.upgrade() else { return };
        let mut all = lock(&slots);
        let at = all.slots.iter().position(|slot| slot.number == self.number);
        let gone = at.map(|at| all.slots.swap_remove(at));
        // What it has may take locks of its own when it is dropped.
        drop(all);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn each_runtime_has_its_own_until_it_ends() {
        let values = PerRuntime::new();
        assert_eq!(values.get(|| 0).unwrap_err().kind(), ErrorKind::Unsupported);
        let (one, two) = (runtime(), runtime());
        let first = one.block_on(async { values.get(|| 1).unwrap() });
        assert_eq!(*one.block_on(async { values.get(|| 3).unwrap() }), 1);
        assert_eq!(*two.block_on(async { values.get(|| 2).unwrap() }), 2);
        drop(one);
        assert_eq!(Arc::strong_count(&first), 1, "dropped with its runtime");
        let taken = values.take_all();
        assert_eq!(taken.len(), 1);
        assert_eq!(*two.block_on(async { values.get(|| 4).unwrap() }), 4);
        two.block_on(tokio::task::yield_now());
        assert_eq!(
            *two.block_on(async { values.get(|| 5).unwrap() }),
            4,
            "the end of the first slot is not its end"
        );
    }

    #[test]
    fn a_runtime_that_has_ended_is_no_deadlock() {
        let values = PerRuntime::new();
        let ended = runtime();
        let handle = ended.handle().clone();
        drop(ended);
        assert_eq!(*handle.block_on(async { values.get(|| 1).unwrap() }), 1);
        assert_eq!(*runtime().block_on(async { values.get(|| 2).unwrap() }), 2, "others go on");
    }
}
