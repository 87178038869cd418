//! Constants that are computed.

use std::ops::Deref;

use once_cell::race::OnceBox;

/// A constant that is computed when it is first needed. Threads that need it at the same time compute it each, and no
/// thread waits for another: a `LazyLock` that a thread computes during a fork would let the child wait for ever.
#[derive(Debug)]
pub struct Constant<T> {
    value: OnceBox<T>,
    compute: fn() -> T,
}

impl<T> Constant<T> {
    /// Not yet computed.
    pub const fn new(compute: fn() -> T) -> Self {
        Self { value: OnceBox::new(), compute }
    }
}

impl<T> Deref for Constant<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_or_init(|| Box::new((self.compute)()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_computed_once() {
        static CONSTANT: Constant<String> = Constant::new(|| "computed".to_owned());
        assert_eq!(&*CONSTANT, "computed");
        assert!(std::ptr::eq(CONSTANT.as_str(), CONSTANT.as_str()));
    }
}
