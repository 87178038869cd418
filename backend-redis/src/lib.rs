//! The Redis backends of [lockwell](https://docs.rs/lockwell): one server, Sentinel, Cluster, and Redlock.
//!
//! * [`RedisLock`]: one server, the master behind sentinels, or a cluster.
//! * [`Redlock`]: a majority of independent nodes.
//! * [`FencedWrite`]: a write that only the latest holder of a lock can make.
//!
//! The lock is the plain string that redis-py, redsync and node-redlock use, so that they exclude us and we exclude
//! them. All decisions are made by scripts in the server, on the server's clock (`src/scripts`).

mod address;
mod answers;
mod asking;
mod calls;
mod check;
mod cluster;
mod dial;
mod doubts;
mod error;
mod examine;
mod fenced;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod items;
mod keys;
mod lock;
mod options;
mod redlock;
mod renewal;
mod replicas;
mod requests;
mod route;
mod script;
mod sending;
mod sentinel;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
mod wire;

/// The client crate, for the connection that [`FencedWrite`] takes.
pub use ::redis as client;

pub use fenced::FencedWrite;
pub use lock::RedisLock;
pub use redlock::Redlock;
