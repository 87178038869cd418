//! The ZooKeeper backend of lockwell.
//!
//! `zk://h1:2181,h2:2181,h3:2181/base/path`: each lock is a node below the base path, and each claim an ephemeral
//! sequential node below that, as Apache Curator writes them. Curator and kazoo (with `extra_lock_patterns=["-lock-"]`)
//! exclude us and we exclude them. See [`ZkLock`].
//!
//! | option | values | |
//! |---|---|---|
//! | `USER:PASSWORD@` | | who we are |
//! | `auth` | `digest`, `sasl` | by the scheme `digest`, which needs no user at the server; or by SASL with DIGEST-MD5 (feature `sasl`) |
//! | `acl` | `open`, `creator` | who may touch our nodes |
//! | `recipe` | `curator`, `curator-rw` | exclusive claims write themselves as Curator's mutex, or as the writer of its reader-writer lock |
//! | `session` | `1s` | the shortest session to ask for |
//! | `strict` | `true`, `false`, `10s` | refuse leases that a server which is cut off from its leader would outlive: those not longer than `syncLimit` x `tickTime`, as the servers tell (by the command `conf`), or as given here |
//! | `tick` | `2s` | the servers' `tickTime`, where they do not tell it: at least the largest of them; 2 seconds are assumed |
//! | `create` | `true`, `false` | make the base path where it is missing |
//! | `folders` | `container`, `persistent` | whether the servers delete the folder of a lock when it has been empty for a while |
//! | `timeout` | `5s` | how long a call may take that has no wait of its own |
//! | `ca` | a PEM file | use TLS (feature `tls`), and trust these certificates |
//! | `cert`, `key` | PEM files | our own certificate, which servers want by default, and its key; it is an identity for `acl=creator` |
//!
//! `inspect` counts how long a lock has been held from when its holder came to the queue: nothing that is written tells
//! when its turn came.

mod child;
mod connect;
mod error;
mod examine;
mod four_letters;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod guarded;
mod held;
mod inspect;
mod lock;
mod names;
mod negotiated;
mod node;
mod options;
mod pool;
mod probe;
mod queue;
mod release;
mod session;
mod turn;
mod validity;
mod waiter;

pub use guarded::GuardedWrite;
pub use inspect::QueueEntry;
pub use lock::ZkLock;
