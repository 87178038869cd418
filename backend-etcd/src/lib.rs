//! The etcd backend of lockwell.
//!
//! `etcd://USER:PASSWORD@h1:2379,h2:2379,h3:2379/prefix`, or `etcds://` with TLS: each claim is a key
//! `PREFIX/NAME/KIND/OWNER`, which belongs to a lease of its own. The keys of a lock are a queue in the order
//! of their create revisions, which are the fencing tokens. See [`EtcdLock`].
//!
//! | option | values | |
//! |---|---|---|
//! | `USER:PASSWORD@` | | the user, whose role needs `readwrite` on the keys that begin with `PREFIX/`, and nothing else |
//! | `timeout` | `5s` | the time limit of calls that have no wait |
//! | `ca` | a PEM file | of `etcds://`, where it is needed (feature `tls`): trust these certificates |
//! | `cert`, `key` | PEM files | the client certificate and its key; where etcd runs with `--client-cert-auth`, its common name is the user |
//!
//! The prefix is `lockwell` where the address has no path. Leases last whole seconds at the members: a ttl is
//! rounded up there, and the validity of the holder is not. The shortest ttl is two seconds.
//!
//! `inspect` counts the times for which a lock has been held, and a claim has waited, by the wall clocks of
//! the clients: etcd has no clock that it shows.

mod client;
mod connection;
mod dials;
mod error;
mod examine;
mod floor;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../../tools/fuzz/checks/etcd.rs"]
pub mod fuzzing;
mod guarded;
mod held;
mod keys;
mod lease;
mod lock;
mod messages;
mod options;
mod pages;
mod queue;
mod records;
mod turns;
mod waiter;

/// The name of the backend, in errors and metrics.
const BACKEND: &str = "etcd";

pub use guarded::{EtcdGuarded, GuardedWrite};
pub use lock::EtcdLock;
