// Where the links of the README lead in the documentation: of several definitions of a link the first one counts.
//! [docs/choosing.md]: guides::choosing
//! [docs/command.md]: guides::command
//! [docs/fencing.md]: guides::fencing
//! [docs/migrating.md]: guides::migrating
//! [docs/modes.md]: guides::modes
//! [docs/production.md]: guides::production
//! [docs/testing.md]: guides::testing
//! [docs/guarantees.md]: guides::guarantees
//! [docs/operations.md]: guides::operations
//! [docs/sql.md]: guides::sql
//! [docs/redis.md]: guides::redis
//! [docs/zookeeper.md]: guides::zookeeper
//! [ARCHITECTURE.md]: guides::architecture
//! [CHANGELOG.md]: guides::changelog
#![cfg_attr(feature = "conformance", doc = "[docs/backend.md]: guides::backend")]
//! [docs/compare.md]: https://github.com/lockwell/lockwell/blob/main/docs/compare.md
//! [docs/report.png]: https://raw.githubusercontent.com/lockwell/lockwell/main/docs/report.png
//! [CONTRIBUTING.md]: https://github.com/lockwell/lockwell/blob/main/CONTRIBUTING.md
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use lockcore::{
    Capabilities, DEFAULT_TTL, Error, ErrorKind, ErrorWith, Events, FencingToken, Finding, HandOver, Holder,
    Leader, LeaseState, LockAllGuard, LockConfig, LockEvent, LockGuard, LockHandle, LockName, LockRequest,
    LockStatus, Locks, Loss, Mode, Observation, Operation, ReentrantGuard, Requirement, Result, Severity,
    Stats,
};

/// The kinds of requests, as the type parameter of [`LockRequest`]. Applications seldom name these types.
pub mod request {
    pub use lockcore::{Acquire, All, Campaign, Leadership, One, Owner, Reentrant};
}

pub use lockcore::backend;
#[cfg(feature = "conformance")]
pub use lockcore::conformance;
pub use lockcore::testing;

/// The guides of the `docs` folder, as modules, so that their code is compiled.
// `guide_links.md` says where their links to each other lead here: of several definitions of a link the first one counts.
pub mod guides {
    #[cfg(feature = "conformance")]
    #[doc = include_str!("../docs/backend.md")]
    pub mod backend {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/choosing.md")]
    pub mod choosing {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/command.md")]
    pub mod command {}
    #[doc = include_str!("guide_links.md")]
    #[cfg_attr(
        all(feature = "postgres", feature = "sqlite", feature = "redis", feature = "zk"),
        doc = include_str!("../docs/fencing.md")
    )]
    #[cfg_attr(
        not(all(feature = "postgres", feature = "sqlite", feature = "redis", feature = "zk")),
        doc = "docs/fencing.md: its code needs all backends."
    )]
    pub mod fencing {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/guarantees.md")]
    pub mod guarantees {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/migrating.md")]
    pub mod migrating {}
    #[doc = include_str!("../docs/modes.md")]
    pub mod modes {}
    #[doc = include_str!("../docs/operations.md")]
    pub mod operations {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/production.md")]
    pub mod production {}
    #[cfg_attr(feature = "redis", doc = include_str!("../docs/redis.md"))]
    #[cfg_attr(not(feature = "redis"), doc = "docs/redis.md: its code needs the feature `redis`.")]
    pub mod redis {}
    #[doc = include_str!("../docs/sql.md")]
    pub mod sql {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/testing.md")]
    pub mod testing {}
    #[cfg_attr(feature = "zk", doc = include_str!("../docs/zookeeper.md"))]
    #[cfg_attr(not(feature = "zk"), doc = "docs/zookeeper.md: its code needs the feature `zk`.")]
    pub mod zookeeper {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../ARCHITECTURE.md")]
    pub mod architecture {}
    #[doc = include_str!("../CHANGELOG.md")]
    pub mod changelog {}
}

pub mod blocking;
mod registry;
mod schemes;

pub use registry::Registry;

/// The SQL lock table: PostgreSQL, MySQL/MariaDB, SQLite.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use backend_sql as sql;

/// Redis: one server, Sentinel, Cluster, and Redlock.
#[cfg(feature = "redis")]
pub use backend_redis as redis;

/// ZooKeeper.
#[cfg(feature = "zk")]
pub use backend_zk as zk;

use std::sync::Arc;

use lockcore::backend::{DistributedLock, ServerUrl};

/// Connects to the lock server at this address; the scheme selects the backend.
///
/// | address | backend | feature |
/// |---|---|---|
/// | `memory://`, `memory://NAME` | this process | always |
/// | `sqlite://FILE` | SQLite | `sqlite` |
/// | `postgres://USER:PASSWORD@HOST/DATABASE` | PostgreSQL | `postgres` |
/// | `mysql://USER:PASSWORD@HOST/DATABASE` | MySQL, MariaDB | `mysql` |
/// | `redis://USER:PASSWORD@HOST/DB`, `redis+unix://SOCKET` | Redis | `redis` |
/// | `redis+sentinel://SENTINELS/MASTER` | the Redis master behind sentinels | `redis` |
/// | `redis+cluster://NODES` | Redis Cluster | `redis` |
/// | `redlock://NODE,NODE,NODE` | Redlock: a majority of independent Redis nodes | `redis` |
/// | `zk://HOST,HOST,HOST/BASE/PATH` | ZooKeeper | `zk` |
///
/// A backend from another crate adds its scheme to a [`Registry`].
///
/// This connects to the server and checks it, so a wrong password or a missing table is an error here, not at the first
/// lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// let locks = lockwell::connect("memory://").await?;
/// let guard = locks.lock("orders/42").await?;
/// println!("holding with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// Cancel safe: nothing is locked.
pub async fn connect(url: impl Into<String>) -> Result<Locks> {
    connect_with(LockConfig::new(url)).await
}

/// Connects with a configuration: the address, the defaults, and the promises that the application requires of the
/// backend.
///
/// # Cancel safety
/// Cancel safe: nothing is locked.
pub async fn connect_with(config: LockConfig) -> Result<Locks> {
    Registry::installed().connect_with(config).await
}

/// A client that connects with its first request, so the lock server may be away when the program starts.
///
/// A claim that waits tries to connect until its [wait](LockRequest::wait) ends; then the error is of kind
/// [`Unreachable`](ErrorKind::Unreachable), with the cause. Other requests, and claims without a wait, try
/// once. A wrong password or a missing table is an error of the first requests, at once.
///
/// What the server promises is not known before it is there: [`Locks::capabilities`] presumes all modes and
/// what the configuration requires. If the server lacks a requirement, or does not support a claim, the
/// request fails with [`Unsupported`](ErrorKind::Unsupported) or [`InvalidInput`](ErrorKind::InvalidInput).
/// Tokens of tasks that [pass a lock on](Locks::hand_over) rise only if
/// [`token_blocks`](Requirement::TokenBlocks) is required.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// let locks = lockwell::connect_lazy("memory://")?;
/// let guard = locks.lock("orders/42").wait(std::time::Duration::from_secs(20)).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) or [`Unsupported`](ErrorKind::Unsupported) if the address is
/// wrong. Nothing is sent.
pub fn connect_lazy(url: impl Into<String>) -> Result<Locks> {
    connect_lazy_with(LockConfig::new(url))
}

/// As [`connect_lazy`], with a configuration.
///
/// # Errors
/// As [`connect_lazy`].
pub fn connect_lazy_with(config: LockConfig) -> Result<Locks> {
    Registry::installed().connect_lazy_with(config)
}

/// Connects to the backend without a client, for tools that use [`DistributedLock`] directly.
///
/// # Cancel safety
/// Cancel safe: nothing is locked.
pub async fn connect_backend(url: &ServerUrl) -> Result<Arc<dyn DistributedLock>> {
    Registry::installed().connect_backend(url).await
}

/// The schemes that [`connect`] knows, such as `memory` and `sqlite`.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    Registry::installed().schemes()
}
