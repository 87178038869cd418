//! The ZooKeeper backend of lockwell.
//!
//! `zk://h1:2181,h2:2181,h3:2181/base/path`: each lock is a node below the base path, and each claim an ephemeral
//! sequential node below that, as Apache Curator writes them. Curator and kazoo (with `extra_lock_patterns=["-lock-"]`)
//! exclude us and we exclude them. See [`ZkLock`].
//!
//! | option | values | |
//! |---|---|---|
//! | `USER:PASSWORD@` | | authentication by the scheme `digest` |
//! | `acl` | `open`, `creator` | who may touch our nodes |
//! | `recipe` | `curator`, `curator-rw`, `simple` | exclusive claims write themselves as Curator's mutex, or as the writer of its reader-writer lock; `simple` is the naive lock, for comparison |
//! | `session` | `1s` | the shortest session to ask for |
//! | `strict` | `true`, `false` | refuse leases that a server which is cut off from its leader would outlive |
//! | `create` | `true`, `false` | make the base path where it is missing |
//! | `timeout` | `5s` | how long a call may take that has no wait of its own |
//! | `ca` | a PEM file | use TLS, and trust these certificates |

mod acquire;
mod belief;
mod child;
mod clock;
mod error;
mod guarded;
mod inspect;
mod known;
mod lock;
mod names;
mod node;
mod options;
mod patience;
mod pool;
mod probe;
mod queue;
mod recover;
mod release;
mod renew;
mod session;
mod shared;
mod simple;
mod thread;
#[cfg(feature = "tls")]
mod tls;
mod turn;

pub use guarded::GuardedWrite;
pub use inspect::Place;
pub use lock::ZkLock;
