//! A value of the whole process, which a forked child does not inherit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::lock;

/// How many processes, each a fork of the one before it, have a mutex of their own.
const MOST: usize = 16;
/// The id of no process: the slot is that of an ancestor, whose id another process may have by now.
const ANCESTOR: u32 = u32::MAX;

/// A value that is made when it is first needed. A forked child makes a new one, since it inherits no
/// threads.
///
/// Another thread may have the mutex while a thread forks: in the child it is locked for ever. So a child
/// takes another one.
#[derive(Debug)]
pub(crate) struct PerProcess<T>([Slot<T>; MOST]);

#[derive(Debug)]
struct Slot<T> {
    /// The process that uses it; 0 is none.
    process: AtomicU32,
    value: Mutex<Option<(u32, T)>>,
}

impl<T: Clone> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self([const { Slot { process: AtomicU32::new(0), value: Mutex::new(None) } }; MOST])
    }

    /// The value of this process.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> T {
        let made = self.get_or_try_init(|| Ok::<_, std::convert::Infallible>(make()));
        let Ok(value) = made;
        value
    }

    /// The value of this process. If it cannot be made, the next call tries again.
    pub(crate) fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let process = std::process::id();
        let mut value = lock(self.of(process));
        if let Some((_, value)) = value.as_ref().filter(|(of, _)| *of == process) {
            return Ok(value.clone());
        }
        let made = make()?;
        // The value of the parent stays: what it is for is not in this process, so its end could wait for
        // ever.
        std::mem::forget(value.replace((process, made.clone())));
        Ok(made)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_wait_for_the_mutex_of_its_parent() {
        let value = PerProcess::<u32>::new();
        // As a thread of the parent has it during the fork.
        let _locked = lock(value.of(ANCESTOR - 1));
        assert_eq!(value.get_or_init(|| 7), 7);
        assert_eq!(value.get_or_init(|| 8), 7, "it is made once");
        // A later child may have the id of an ancestor, and nothing else of it.
        for child in [ANCESTOR - 2, ANCESTOR - 1] {
            assert!(value.of(child).try_lock().expect("a mutex of its own").is_none());
        }
        let line = (ANCESTOR - 99..ANCESTOR).map(|child| std::ptr::from_ref(value.of(child)));
        assert_eq!(line.last(), Some(std::ptr::from_ref(&value.0[MOST - 1].value)));
    }
}
