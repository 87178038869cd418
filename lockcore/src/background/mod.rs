//! The work of a client outside of its users' calls: renewals, deadlines, releases.
//!
//! An application may block or stop its runtime; its locks must not be lost for that. So all this runs on the
//! keeper, a thread of the process that does nothing else.
//!
//! Each claim of a client has a row in its [`Book`] from its first poll until it holds nothing. A [`Stub`] owns the
//! row: it belongs to a future, a guard, or the slot of a name. Dropping the stub leaves the row to the keeper.

mod all_clients;
mod book;
mod held_lock;
mod keeper;
mod promises;
mod renewal;
mod renewals;
mod stub;
mod under_way;

pub use all_clients::wait_for_releases;
pub(crate) use book::Book;
pub(crate) use held_lock::{HeldLock, lost, lost_at_work};
pub(crate) use stub::Stub;
pub(crate) use under_way::UnderWay;

#[cfg(test)]
mod tests;
