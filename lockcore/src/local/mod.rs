//! The queue of the tasks of one process, in front of the server's.
//!
//! Tasks that want the same name queue here, and one of them claims the lock at the server: the one that has
//! the *claim turn*, of which there is one for each name. It passes the turn on when it is done, at the
//! latest by dropping it: so a task that is cancelled anywhere does not delay the others.
//!
//! A task that does nothing with its turn loses it: see `watch.rs`.
//!
//! The queue does not depend on locks: what a task hands to the next beside the turn, a held lock, is its
//! parameter `T`.

mod delivery;
mod pulse;
mod queues;
mod watch;

pub(crate) use self::queues::{ClaimTurn, LocalQueues, LocalWaiter, Turn};
