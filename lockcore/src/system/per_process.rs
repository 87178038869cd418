//! What a process keeps, and a forked child makes anew.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock;
use super::process::Process;

/// How many processes, each a fork of the one before it, have a mutex of their own.
const MOST: usize = 16;
/// The number of no process: the slot is that of an ancestor, whose number another process may have by now.
const ANCESTOR: u64 = u64::MAX;

/// A value that is made when it is first needed. A forked child makes a new one, since it inherits no
/// threads.
///
/// Another thread may have the mutex while a thread forks: in the child it is locked for ever. So a child
/// takes another one. Every `static` of this library that a thread may wait for is of this type. A value that is the
/// same in all processes is a [`Constant`](super::Constant).
#[derive(Debug)]
pub struct PerProcess<T>([Slot<T>; MOST]);

#[derive(Debug)]
struct Slot<T> {
    /// The number of the process that uses it; 0 is none.
    process: AtomicU64,
    value: Mutex<Option<(Process, T)>>,
}

impl<T: Clone> PerProcess<T> {
    /// No value yet.
    #[allow(clippy::new_without_default, reason = "it is for a `static`")]
    pub const fn new() -> Self {
        Self([const { Slot { process: AtomicU64::new(0), value: Mutex::new(None) } }; MOST])
    }

    /// The value of this process.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> T {
        let made = self.get_or_try_init(|| Ok::<_, std::convert::Infallible>(make()));
        let Ok(value) = made;
        value
    }

    /// The value of this process. If it cannot be made, the next call tries again.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.value_of(Process::this(), make)
    }

    fn value_of<E>(&self, process: Process, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
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
    fn of(&self, process: Process) -> &Mutex<Option<(Process, T)>> {
        for (index, slot) in self.0.iter().enumerate() {
            match slot.process.compare_exchange(0, process.number(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    for earlier in &self.0[..index] {
                        earlier.process.store(ANCESTOR, Ordering::Relaxed);
                    }
                    return &slot.value;
                }
                Err(of) if of == process.number() => return &slot.value,
                Err(_) => (),
            }
        }
        &self.0[MOST - 1].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(before_ancestor: u64) -> Process {
        Process::numbered(ANCESTOR - before_ancestor)
    }

    fn made(value: &PerProcess<u32>, process: Process, new: u32) -> u32 {
        let Ok(made) = value.value_of(process, || Ok::<_, std::convert::Infallible>(new));
        made
    }

    #[test]
    fn a_child_does_not_wait_for_the_mutex_of_its_parent() {
        let value = PerProcess::<u32>::new();
        // As a thread of the parent has it during the fork.
        let _locked = lock(value.of(numbered(1)));
        assert_eq!(value.get_or_init(|| 7), 7);
        assert_eq!(value.get_or_init(|| 8), 7, "it is made once");
        // A later child may have the id of an ancestor, and nothing else of it.
        for child in [2, 1] {
            assert!(value.of(numbered(child)).try_lock().expect("a mutex of its own").is_none());
        }
        let line = (1..99).rev().map(|child| std::ptr::from_ref(value.of(numbered(child))));
        assert_eq!(line.last(), Some(std::ptr::from_ref(&value.0[MOST - 1].value)));
    }

    #[test]
    fn a_child_that_has_the_id_of_its_parent_makes_its_own() {
        let value = PerProcess::<u32>::new();
        let id = u64::from(std::process::id());
        let [parent, child] = [0, 1].map(|forks: u64| Process::numbered((forks << 32) | id));
        assert_ne!(parent, child);
        assert_eq!([made(&value, parent, 1), made(&value, child, 2)], [1, 2]);
        assert_eq!(made(&value, child, 3), 2);
    }
}
