//! The mutexes of a claim and of the rows of a client. In a model of the unit tests they are those of `loom`, which
//! tries all orders of its threads.

#[cfg(not(test))]
pub(crate) use super::sync::lock as lock_ordered;
#[cfg(not(test))]
pub(crate) use std::sync::{Mutex as OrderedMutex, MutexGuard as OrderedGuard};

#[cfg(test)]
pub(crate) use in_tests::{OrderedGuard, OrderedMutex, in_model, lock_ordered};

#[cfg(test)]
mod in_tests {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;

    thread_local! {
        static MODEL: Cell<bool> = const { Cell::new(false) };
    }

    /// Does this with the mutexes of `loom`, whose threads all run on this one.
    pub(crate) fn in_model(work: impl FnOnce()) {
        MODEL.set(true);
        work();
        MODEL.set(false);
    }

    #[derive(Debug)]
    pub(crate) enum OrderedMutex<T> {
        Std(std::sync::Mutex<T>),
        Loom(loom::sync::Mutex<T>),
    }

    pub(crate) enum OrderedGuard<'a, T> {
        Std(std::sync::MutexGuard<'a, T>),
        Loom(loom::sync::MutexGuard<'a, T>),
    }

    impl<T> OrderedMutex<T> {
        pub(crate) fn new(value: T) -> Self {
            if MODEL.get() {
                Self::Loom(loom::sync::Mutex::new(value))
            } else {
                Self::Std(std::sync::Mutex::new(value))
            }
        }
    }

    impl<T: Default> Default for OrderedMutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    pub(crate) fn lock_ordered<T>(mutex: &OrderedMutex<T>) -> OrderedGuard<'_, T> {
        match mutex {
            OrderedMutex::Std(mutex) => {
                OrderedGuard::Std(mutex.lock().unwrap_or_else(PoisonError::into_inner))
            }
            OrderedMutex::Loom(mutex) => {
                OrderedGuard::Loom(mutex.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    impl<T> Deref for OrderedGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                Self::Std(guard) => guard,
                Self::Loom(guard) => guard,
            }
        }
    }

    impl<T> DerefMut for OrderedGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match self {
                Self::Std(guard) => guard,
                Self::Loom(guard) => guard,
            }
        }
    }
}
