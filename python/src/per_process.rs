//! Values of which a forked child has its own.

use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mailbox::lock;

/// How many processes, each a fork of the one before it, have a mutex of their own.
const MOST: usize = 16;
/// The id of no process: the slot is that of an ancestor, whose id another process may have by now.
const ANCESTOR: u32 = u32::MAX;

/// A value of each process, behind a mutex.
///
/// Another thread may have the mutex while a thread forks: in the child it is locked for ever. So a child
/// takes another one. What the parent had behind its own stays there.
pub(crate) struct PerProcess<T>([Slot<T>; MOST]);

struct Slot<T> {
    /// The process that uses it; 0 is none.
    process: AtomicU32,
    value: Mutex<Option<(u32, T)>>,
}

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Slot { process: AtomicU32::new(0), value: Mutex::new(None) } }; MOST])
    }

    /// Does this with the value of this process.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let process = process::id();
        act(match &mut *lock(self.of(process)) {
            Some((of, value)) if *of == process => value,
            other => {
                // What it refers to is not in this process, so its end could wait for ever.
                std::mem::forget(other.take());
                &mut other.insert((process, T::default())).1
            }
        })
    }

    /// The mutex of this process. A longer line of forks shares the last one.
    fn of(&self, process: u32) -> &Mutex<Option<(u32, T)>> {
        for (index, slot) in self.0.iter().enumerate() {
            match slot.process.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    for earlier in &self.0[..index] {
                        earlier.process.store(ANCESTOR, Ordering::Relaxed);
                    }
                    return &slot.value;
                }
                Err(of) if of == process => return &slot.value,
                Err(_) => (),
            }
        }
        &self.0[MOST - 1].value
    }
}
