//! Jobs that run once for a key, over all hosts, also when a host dies in the middle.

mod once;

pub use once::{AttemptEnd, KeyState, Once, OnceAct, OnceEnd, OnceEvent};
