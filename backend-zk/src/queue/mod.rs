//! The queue of a lock: nodes, claims in it, and releases.

pub(crate) mod child;
mod enter;
pub(crate) mod folders;
pub(crate) mod held;
pub(crate) mod inspect;
pub(crate) mod node;
pub(crate) mod place;
pub(crate) mod position;
pub(crate) mod release;
mod stop;
mod turn;
pub(crate) mod waiter;
