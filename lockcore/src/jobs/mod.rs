//! Jobs that run once for a key, over all hosts, also when a host dies in the middle.

mod once;
mod record;

pub use once::{AttemptEnd, KeyState, Once, OnceAct, OnceEnd, OnceEvent};
pub(crate) use record::{JobRecord, KeyEntry, check_key};
