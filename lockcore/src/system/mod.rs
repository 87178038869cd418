//! Clocks, threads, and mutexes that do not poison.

mod aside;
mod clock;
mod constant;
mod forward;
mod hooks;
mod keeper;
mod moment;
mod ordered;
mod own_runtime;
mod per_process;
mod process;
mod ready;
mod run_blocking;
mod sync;
mod test_time;
mod unique;
mod wakers;

#[cfg(feature = "metrics")]
pub(crate) use aside::{Aside, must_not_wait};
pub(crate) use clock::TimeLimit;
pub use clock::{Clock, TestClock};
pub use constant::Constant;
#[cfg(feature = "metrics")]
pub(crate) use forward::log_aside;
pub use hooks::{ClockThreads, Hooks, set_hooks, set_lookup};
pub(crate) use hooks::{hooks, looked_up};
pub use keeper::KEEPER;
pub use moment::Moment;
#[cfg(test)]
pub(crate) use ordered::in_model;
pub(crate) use ordered::{OrderedGuard, OrderedMutex, lock_ordered};
pub use own_runtime::{OwnRuntime, SharedRuntime, Task};
pub use per_process::PerProcess;
pub use process::{Process, note_fork};
pub use ready::make_ready;
pub use run_blocking::run_blocking;
pub use sync::lock;
pub(crate) use sync::poll_once;
pub use unique::unique_bits;
pub use wakers::unless_panics;
pub use wakers::wake_tasks;
#[cfg(test)]
pub(crate) use wakers::waker;
