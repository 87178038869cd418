//! The queue of the tasks of one process, in front of the server's.
//!
//! Tasks that want the same name queue here, and one of them claims the lock at the server: the one that has
//! the *claim turn*, of which there is one for each name. It passes the turn on when it is done, at the
//! latest by dropping it: so a task that is cancelled anywhere does not delay the others.
//!
//! A held lock is *offered* to the next task for a short slice of time. A task that does not take an offer,
//! or does nothing with its turn, loses it and keeps its place: see `watch.rs`. When it runs, it comes before
//! those that came later.

mod delivery;
mod entrance;
mod handed_lock;
mod names;
mod offer;
mod pulse;
mod queues;
mod sharing;
mod watch;

pub(crate) use self::handed_lock::HandedLock;
pub(crate) use self::pulse::Pulse;
pub(crate) use self::queues::{ClaimTurn, LocalQueues, Turn};
pub(crate) use self::sharing::Sharing;
