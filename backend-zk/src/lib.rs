//! The ZooKeeper backend of lockwell.
//!
//! `zk://h1:2181,h2:2181,h3:2181/base/path`: each lock is a node below the base path, and each claim an
//! ephemeral sequential node below that, as Apache Curator writes them. lockwell, Curator and kazoo (with
//! `extra_lock_patterns=["-lock-"]`) exclude each other. See [`ZkLock`].
//!
//! | option | values | |
//! |---|---|---|
//! | `USER:PASSWORD@` | | the credentials |
//! | `auth` | `digest`, `sasl` | the authentication scheme: `digest`, which needs no user at the server; or SASL with DIGEST-MD5 (feature `sasl`) |
//! | `acl` | `open`, `creator` | who has access to the nodes of the client |
//! | `recipe` | `curator`, `curator-rw` | the nodes of exclusive claims have the form of Curator's mutex, or of the writer of its reader-writer lock |
//! | `session` | `1s` | the shortest session timeout to request |
//! | `strict` | `true`, `false`, `10s` | on an ensemble, refuse leases that are shorter than (`syncLimit` + 1) x `tickTime`: a server that is cut off from its leader serves its clients for `syncLimit` x `tickTime`. The servers report the two values (by the command `conf`), or this option gives the product |
//! | `tick` | `2s` | the `tickTime` of servers that do not report it: at least the largest of them; the default is 2 seconds, or half of the shortest session if that is longer |
//! | `create` | `true`, `false` | create the base path if it is missing |
//! | `folders` | `container`, `persistent` | whether the servers delete the folder of a lock when it has been empty for a while |
//! | `timeout` | `5s` | the time limit of calls that have no wait |
//! | `ca` | a PEM file | use TLS (feature `tls`), and trust these certificates |
//! | `cert`, `key` | PEM files | the client certificate, which servers require by default, and its key; it is an identity for `acl=creator` |
//!
//! `inspect` counts the time for which a lock has been held from the moment when its holder entered the
//! queue: the server does not record the moment of the grant.

mod client;
mod error;
mod examine;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../../tools/fuzz/checks/zk.rs"]
pub mod fuzzing;
mod guarded;
mod lease_table;
mod lock;
mod names;
mod options;
mod queue;
mod records;
mod session;

pub use guarded::{GuardedWrite, ZkGuarded};
pub use lock::ZkLock;
pub use queue::inspect::QueueEntry;
