//! The Redis backends of [lockwell](https://docs.rs/lockwell): one server, Sentinel, Cluster, and Redlock.
//!
//! * [`RedisLock`]: one server, the master behind sentinels, or a cluster.
//! * [`Redlock`]: a majority of independent nodes.
//! * [`FencedWrite`]: a write that only the latest holder of a lock can make.
//!
//! The lock is the plain string that redis-py, redsync and node-redlock use, so that they exclude us and we
//! exclude them. All decisions are made by scripts in the server, on the server's clock (`src/scripts`).

mod calls;
mod checks;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../../tools/fuzz/checks/redis.rs"]
pub mod fuzzing;
mod gather;
mod redlock;
mod server;
mod wire;
mod words;

/// The client crate, for the connection that [`FencedWrite`] takes.
pub use ::redis as client;

pub use calls::fenced::FencedWrite;
pub use redlock::Redlock;
pub use server::RedisLock;
