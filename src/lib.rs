//! Distributed locks: one process at a time does the work, however many machines run it.
//!
//! ```no_run
//! # async fn example() -> lockwell::Result<()> {
//! use std::time::Duration;
//!
//! // With the feature `sqlite`; or postgres://, redis://, ...
//! let locks = lockwell::connect("sqlite://locks.db").await?;
//! let guard = locks.lock("tickets").wait(Duration::from_secs(5)).await?; // `TimedOut` after 5 seconds
//! println!("fencing token {}", guard.token());
//! guard.release().await?; // or drop it, which releases in the background
//! locks.close().await // waits for such releases
//! # }
//! ```
//!
//! It runs on tokio, with any kind of runtime; [`blocking`] is for programs without async.
//!
//! | to | there is |
//! |---|---|
//! | connect to a lock server | [`connect`], [`connect_lazy`], [`connect_with`] a [`LockConfig`]; [`Registry`] for backends of other crates |
//! | take a lock | [`Locks::lock`], and the choices of a [`LockRequest`]: how long to wait, for how long to hold |
//! | hold it | [`LockGuard`], [`LockRequest::run`]; [`LockGuard::lost`] and [`LockGuard::token`] |
//! | let several in | [`Locks::read`], [`Locks::write`], [`Locks::permit`] |
//! | take several, or one again | [`Locks::lock_all`], [`Locks::owner`] |
//! | elect a leader | [`Locks::campaign`] |
//! | run a job once for each firing | [`Locks::once`]; [`guides::jobs`] |
//! | do it without async | [`blocking`] |
//! | see what happens | [`Locks::inspect`], [`Locks::held`], [`Locks::events`], [`Locks::stats`] |
//! | export metrics and traces | [`guides::operations`]; [`LockRequest::class`], [`Locks::traceparent_from`] |
//! | handle an error | [`Error::kind`] and [`Error::is_retryable`]; [`guides::operations`] lists the kinds |
//! | test | [`testing::TestServer`], a lock server in memory that fails on demand |
//!
//! # Ways to hold a lock
//!
//! ```no_run
//! use std::time::Duration;
//! use lockwell::{Locks, Result};
//!
//! // The lock is released when the work ends. If the lock is lost earlier, the work is cancelled.
//! async fn closure(locks: &Locks) -> Result<u64> {
//!     Ok(locks.lock("tickets").run(async |held| held.token().get()).await?)
//! }
//!
//! // The same for work that can fail, with one `?` for both errors.
//! async fn fallible(locks: &Locks) -> std::result::Result<String, Box<dyn std::error::Error>> {
//!     locks.lock("tickets").try_run(async |_held| Ok(tokio::fs::read_to_string("tickets.txt").await?)).await
//! }
//!
//! // A guard. Its lease is renewed as long as the guard exists. `lost` completes when the lock is lost, and
//! // before the lease ends.
//! async fn guard(locks: &Locks) -> Result<()> {
//!     let guard = locks.lock("tickets").ttl(Duration::from_secs(10)).await?;
//!     tokio::select! {
//!         () = tokio::time::sleep(Duration::from_secs(60)) => guard.release().await,
//!         loss = guard.lost() => { eprintln!("stop working: {loss:?}"); Ok(()) }
//!     }
//! }
//!
//! // No waiting: `None` if another holds the lock.
//! async fn try_now(locks: &Locks) -> Result<bool> {
//!     Ok(locks.lock("tickets").try_now().await?.is_some())
//! }
//! ```
//!
//! # More than a mutex
//!
//! ```no_run
//! use std::time::Duration;
//! use lockwell::{Locks, Result};
//!
//! async fn more(locks: Locks) -> Result<()> {
//!     // Readers and writers. A writer can become a reader, and no other writer comes in between.
//!     locks.read("catalogue").await?.release().await?;
//!     locks.write("catalogue").await?.downgrade().await?.release().await?;
//!     // A semaphore: one of four permits. While it is held, a claim for one of eight waits.
//!     let _permit = locks.permit("gpu", 4).await?;
//!     // Several locks: all of them or none, without deadlocks.
//!     let _both = locks.lock_all(["account/1", "account/2"]).await?;
//!     // An owner can take its own lock again. Without one, a task that takes its own lock waits for itself.
//!     let owner = locks.owner();
//!     let (_outer, _inner) = (owner.lock("order").await?, owner.lock("order").await?);
//!     // Leader election: it waits until this process leads. Also `run_as_leader` and `observe`.
//!     let _leadership = locks.campaign("scheduler").await?;
//!     // Limits: the lock is lost after a minute, or when `guard.progress()` was not called for 5 seconds.
//!     let limited = locks.lock("import").max_hold(Duration::from_secs(60));
//!     let _limited = limited.progress_within(Duration::from_secs(5)).await?;
//!     // The tasks of this process pass a lock from one to the next in memory, at most 1000 times and for
//!     // 20 ms. Then other processes have their turn.
//!     let _tasks = locks.clone().hand_off(1000, Duration::from_millis(20));
//!     Ok(())
//! }
//! ```
//!
//! [`guides::modes`] describes each of them.
//!
//! # Configuration
//!
//! The address selects the backend, and can contain options, which the guide to the backend lists. An option
//! that is set both in the address and in the configuration is an error. The address can come from a file, or
//! from the environment variable `LOCKWELL_URL` ([`LockConfig::from_env`]). With `password_file` or
//! [`LockConfig::password_from`] the password is in a file or comes from a function, and not in the address.
//! A program can require promises of the backend ([`guides::choosing`]). Connecting to a backend that does
//! not make them fails.
//!
//! ```
//! use lockwell::{LockConfig, Locks, Result};
//!
//! async fn configured() -> Result<Locks> {
//!     let config = LockConfig::from_toml(r#"
//!         url = "memory://"
//!         ttl = "10s"
//!         wait = "1m"
//!         require = ["fencing", "fifo"]
//!     "#)?;
//!     lockwell::connect_with(config).await
//! }
//! ```
//!
//! # Examples
//!
//! `cargo run --example NAME` in the repository; the first lines of each file say more.
//!
//! | example | shows |
//! |---|---|
//! | `first`, `basic` | a lock, a try, a wait with a limit |
//! | `ticket_shop` | four processes with a lock, and without |
//! | `run_closure` | work that is stopped when its lock is lost |
//! | `blocking_program` | a program without async |
//! | `config` | a configuration file, and what a program requires of its backend |
//! | `catalogue`, `hairdressers` | readers and a writer; a semaphore |
//! | `many_locks`, `reentrant` | several locks at once; an owner that takes its lock again |
//! | `local_queue` | tasks of one process that pass a lock on |
//! | `leader`, `leading_service` | leader election; a service of which one copy serves |
//! | `scheduled_job` | a job that runs once in each period, on one of several hosts |
//! | `stuck_worker` | limits of a hold, and a lock delay |
//! | `fencing`, `fenced_store` | a resource, and a service with HTTP, that refuse late writes |
//! | `service`, `reports` | web services that run in any number of copies |
//! | `graceful_shutdown`, `observed` | a service that releases its locks when it stops; metrics |
//! | `test_double` | tests of an application with a lock server that fails on demand |
//!
//! # Guides
//!
//! * Begin: [`guides::first_day`], from an empty folder to a service in production
//! * Use: [`guides::choosing`] a backend, and when you need no lock; [`guides::modes`], [`guides::jobs`],
//!   [`guides::command`], [`guides::hold`] for other languages, [`guides::migrating`]; Python has a package,
//!   in the folder `python` of the repository
//! * Operate: [`guides::production`], [`guides::operations`], [`guides::sql`], [`guides::redis`],
//!   [`guides::zookeeper`], [`guides::etcd`]
//! * Trust: [`guides::guarantees`], [`guides::fencing`]
//! * Contribute: [`guides::architecture`], [`guides::protocols`], [`guides::changelog`]; with the feature
//!   `conformance` also `guides::backend`, a backend of your own
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use lockwell_core::{
    Capabilities, DEFAULT_TTL, Error, ErrorKind, ErrorWith, Events, FencingToken, Finding, HandOff, HoldId,
    Holder, Job, JobRun, JobState, Leader, LeaseState, LockAllGuard, LockConfig, LockEvent, LockGuard,
    LockHandle, LockName, LockRequest, LockStatus, Locks, Loss, Mode, Observation, Once, Operation, Record,
    ReentrantGuard, Requirement, Result, Severity, Stats, TraceParent, WaitingClaim, wait_for_releases,
};

/// The kinds of requests, as the type parameter of [`LockRequest`]. Applications seldom name these types.
pub mod request {
    pub use lockwell_core::suite::{Attempt, JobSteps};
    pub use lockwell_core::{Acquire, All, Campaign, Keyed, One, Owner, Reentrant};
}

#[cfg(feature = "conformance")]
pub use lockwell_conformance as conformance;
pub use lockwell_core::backend;
pub use lockwell_core::testing;

/// The guides of the `docs` folder, as modules, so that their code is compiled.
// `guide_links.md` says where their links to each other lead here: of several definitions of a link the first
// one counts.
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
    #[cfg_attr(feature = "etcd", doc = include_str!("../docs/etcd.md"))]
    #[cfg_attr(not(feature = "etcd"), doc = "docs/etcd.md: its code needs the feature `etcd`.")]
    pub mod etcd {}
    #[doc = include_str!("guide_links.md")]
    #[cfg_attr(
        all(feature = "postgres", feature = "sqlite-unbundled", feature = "redis", feature = "zk"),
        doc = include_str!("../docs/fencing.md")
    )]
    #[cfg_attr(
        not(all(feature = "postgres", feature = "sqlite-unbundled", feature = "redis", feature = "zk")),
        doc = "docs/fencing.md: its code needs the features `postgres`, `sqlite`, `redis` and `zk`."
    )]
    pub mod fencing {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/first-day.md")]
    pub mod first_day {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/guarantees.md")]
    pub mod guarantees {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/hold.md")]
    pub mod hold {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/jobs.md")]
    pub mod jobs {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/migrating.md")]
    pub mod migrating {}
    #[doc = include_str!("../docs/modes.md")]
    pub mod modes {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/operations.md")]
    pub mod operations {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/production.md")]
    pub mod production {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/protocols.md")]
    pub mod protocols {}
    #[doc = include_str!("guide_links.md")]
    #[cfg_attr(feature = "redis", doc = include_str!("../docs/redis.md"))]
    #[cfg_attr(not(feature = "redis"), doc = "docs/redis.md: its code needs the feature `redis`.")]
    pub mod redis {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/sql.md")]
    pub mod sql {}
    #[doc = include_str!("guide_links.md")]
    #[cfg_attr(feature = "zk", doc = include_str!("../docs/zookeeper.md"))]
    #[cfg_attr(not(feature = "zk"), doc = "docs/zookeeper.md: its code needs the feature `zk`.")]
    pub mod zookeeper {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../ARCHITECTURE.md")]
    pub mod architecture {}
    #[doc = include_str!("guide_links.md")]
    #[doc = include_str!("../docs/CHANGELOG.md")]
    pub mod changelog {}
}

pub mod blocking;
mod connecting;
#[cfg_attr(
    any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk", feature = "etcd"),
    path = "reach.rs"
)]
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk", feature = "etcd")),
    path = "no_reach.rs"
)]
mod reach;
mod registry;
mod schemes;

pub use registry::Registry;

/// The SQL lock table: PostgreSQL, MySQL/MariaDB, SQLite.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite-unbundled"))]
pub mod sql {
    pub use lockwell_sql::*;
}

/// Redis: one server, Sentinel, Cluster, and Redlock.
#[cfg(feature = "redis")]
pub mod redis {
    pub use lockwell_redis::*;
}

/// etcd.
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use lockwell_etcd::*;
}

/// ZooKeeper.
#[cfg(feature = "zk")]
pub mod zk {
    pub use lockwell_zk::*;
}

use std::sync::Arc;

use lockwell_core::backend::{DistributedLock, ServerUrl};

/// Connects to the lock server at this address; the scheme selects the backend.
///
/// | address | backend | feature |
/// |---|---|---|
/// | `memory://`; `memory://NAME`, one server for all clients that use this name | this process | always |
/// | `sqlite://FILE` | SQLite | `sqlite` |
/// | `postgres://USER:PASSWORD@HOST/DATABASE`, or `postgresql://` | PostgreSQL | `postgres` |
/// | `mysql://USER:PASSWORD@HOST/DATABASE`, or `mariadb://` | MySQL, MariaDB | `mysql` |
/// | `redis://USER:PASSWORD@HOST/DB`, `rediss://` with TLS, `redis+unix://SOCKET` | Redis | `redis` |
/// | `redis+sentinel://SENTINELS/MASTER`, `rediss+sentinel://` with TLS | the Redis master behind sentinels | `redis` |
/// | `redis+cluster://NODES`, `rediss+cluster://` with TLS | Redis Cluster | `redis` |
/// | `redlock://NODE,NODE,NODE`, `redlocks://` with TLS | Redlock: a majority of independent Redis nodes | `redis` |
/// | `zk://HOST,HOST,HOST/BASE/PATH` | ZooKeeper | `zk` |
/// | `etcd://HOST,HOST,HOST/PREFIX`, `etcds://HOST,HOST,HOST/PREFIX?ca=FILE` | etcd | `etcd` |
///
/// A backend from another crate adds its scheme to a [`Registry`].
///
/// This connects to the server and checks it, so a wrong password or a missing table is an error here, not at
/// the first lock. If no server is reached, it is tried again for the option `timeout` (5 s), and the error
/// says of each host what it does: it refuses connections, does not answer, or its name is unknown.
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

/// Connects with a configuration: the address, the defaults, and the promises that the application requires
/// of the backend.
///
/// # Cancel safety
/// Cancel safe: nothing is locked.
pub async fn connect_with(config: LockConfig) -> Result<Locks> {
    Registry::installed().connect_with(config).await
}

/// A client that connects with its first request, so the program may start before the lock server. In
/// a configuration the same is `lazy = true`, in an address `?lazy=true`.
///
/// A claim that waits tries to connect until its [wait](LockRequest::wait) ends; then the error is of kind
/// [`Unreachable`](ErrorKind::Unreachable), with the cause. Other requests, and `try_now`, try once. A wrong
/// password or a missing table is an error of the first requests, at once.
///
/// Before the first connection the client does not know what the server promises: [`Locks::capabilities`]
/// assumes all modes, and what the configuration requires. If the server lacks a requirement, or
/// does not support a claim, the request fails with [`Unsupported`](ErrorKind::Unsupported) or
/// [`InvalidInput`](ErrorKind::InvalidInput).
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
