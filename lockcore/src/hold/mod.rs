//! Held locks: the guard, handles to it, several guards together, and the hand-off of a lock from task to
//! task within a process.

mod downgrade;
mod guard;
mod hand_off;
mod handed;
mod handle;
mod record;
mod several;

pub use guard::LockGuard;
pub(crate) use hand_off::{Slice, to_next_claimant};
pub use handle::LockHandle;
pub use several::LockAllGuard;
pub(crate) use several::first_lost;
