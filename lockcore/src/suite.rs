//! What the package `lockwell-conformance` needs of this one beyond the public interface: for its clock, which
//! skips the time in which a case waits, for its search for owner ids in logs, and for its tables; and what tests
//! of the backends need, for names with several addresses; and for the model of jobs. Versions do not cover it. `TestClock` and `TestServer` have a few hidden methods for the same purpose.

pub use crate::contract::REQUIREMENTS;
pub use crate::jobs::{AttemptEnd, KeyState, Once, OnceAct, OnceEnd, OnceEvent};
pub use crate::request::{Attempt, JobSteps};
pub use crate::system::{ClockThreads, Hooks, KEEPER, set_hooks, set_lookup};
