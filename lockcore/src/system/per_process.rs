//! A value of the whole process, which a forked child does not inherit.

use std::sync::Mutex;

use super::lock;

/// A value that is made when it is first needed. A forked child makes a new one, since it inherits no
/// threads.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(Mutex<Option<(u32, T)>>);

impl<T: Clone> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
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
        let mut value = lock(&self.0);
        if let Some((_, value)) = value.as_ref().filter(|(of, _)| *of == process) {
            return Ok(value.clone());
        }
        let made = make()?;
        // The value of the parent stays: what it is for is not in this process, so its end could wait for
        // ever.
        std::mem::forget(value.replace((process, made.clone())));
        Ok(made)
    }
}
