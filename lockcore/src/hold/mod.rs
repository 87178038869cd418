//! What a holder has: the guard of a lock, views of it, several guards together, and the way of a lock from task to
//! task within a process.

mod downgrade;
mod guard;
mod hand_off;
mod held;
mod several;

pub use guard::LockGuard;
pub(crate) use hand_off::{HandedLock, LockQueues, Pass};
pub use held::Held;
pub use several::LockAllGuard;
