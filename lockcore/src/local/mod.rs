//! The queue of the tasks of one process, in front of the server's.
//!
//! Tasks that want the same name queue here, and one of them claims the lock at the server: the one that has
//! the *claim turn*, of which there is one for each name. It passes the turn on when it is done, at the
//! latest by dropping it: so a task that is cancelled anywhere does not delay the others. A client has such queues,
//! and so has each owner of re-entrant locks.
//!
//! A held lock is *offered* to the tasks that wait, for a short slice of time. A turn that is free, alone or with
//! the lock, lies in the *slot* of its name, and the first of those who wait takes it when it runs. A task that does
//! nothing with its turn loses it: see `watch.rs`.

mod entrance;
mod handed_lock;
mod pulse;
mod queues;
mod sharing;
mod slot;
mod watch;

pub(crate) use self::handed_lock::HandedLock;
pub(crate) use self::queues::{ClaimTurn, LocalQueues, Turn};
pub(crate) use self::sharing::Sharing;
