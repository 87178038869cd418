//! Where the conformance suite gets to know what no interface of this crate tells.

use std::sync::OnceLock;

use tokio::runtime::Builder;

/// Functions of the suite that this crate calls. An application sets none.
#[derive(Debug)]
pub struct Hooks {
    /// Gets the bits of each new owner id: the suite searches logs for them.
    pub new_owner: fn(u128),
    /// Gets each runtime that this crate builds: the suite notes when its thread has no work.
    pub new_runtime: fn(&mut Builder),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks of this process. The first call counts. Threads that run already have none.
pub fn set_hooks(hooks: Hooks) {
    HOOKS.get_or_init(|| hooks);
}

pub(crate) fn hooks() -> Option<&'static Hooks> {
    HOOKS.get()
}

/// The threads of a clock that goes on by itself, and skips the time in which all of them rest.
pub trait ClockThreads: Send + Sync {
    /// The calling thread is one of them from now on.
    fn join(&self);

    /// The calling thread has begun a sleep by the clock.
    fn note_sleeper(&self);

    /// No time is skipped as long as the sum of all calls is not zero.
    fn hold(&self, more: isize);
}
