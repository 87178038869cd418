//! The heart of lockwell: one distributed lock, any backend.
//!
//! * [`Locks`] is what applications use: `locks.lock("orders/42").await?` yields a [`LockGuard`].
//! * [`DistributedLock`] is what backends implement: small, object safe, without policy.
//!
//! Everything between the two is written once, here: waiting, lease renewal on a [thread of its own](#the-keeper),
//! loss, cancellation, clean-up. So a backend is mechanism only.
//!
//! # When not to use a distributed lock
//!
//! * **To protect data that one database can protect.** A transaction, a unique key or a conditional update does it
//!   without a lease, a clock or a second system.
//! * **For correctness without fencing.** Every lock with a lease can be held by two for a moment: a holder that was
//!   paused does not know that its time is over until it runs again. Let the resource compare the
//!   [`FencingToken`], or lock where the data is (`verify_in` of the SQL backends).
//! * **Within one process.** [`tokio::sync::Mutex`] is a thousand times cheaper.
//! * **As a queue.** Workers that all wait for one lock do one thing at a time; a job queue does not.
//!
//! # The keeper
//!
//! Leases are renewed by one thread of the process, `lockwell-keeper`, on connections of its own. An application that
//! blocks its runtime, or shuts it down with guards alive, does not lose its locks for that reason.
//!
//! # How sure can a holder be?
//!
//! Belief ends early: at the start of the last successful request plus the ttl, less 1 % and 2 ms, on a clock that
//! goes on during suspend ([`Moment`]). The server's lease ends later than that. A renewal that fails is *unknown*,
//! not lost: the guard turns [`Suspect`](Standing::Suspect), the deadline stands, the keeper tries again.

mod capabilities;
mod claim;
mod client;
mod clock;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod counters;
mod error;
mod grant;
mod guard;
mod holding;
mod keeper;
mod leader;
pub mod lease;
mod local;
mod lock;
mod many;
mod memory;
mod mode;
mod name;
mod observe;
mod operation;
mod owner;
mod reentrant;
mod request;
pub mod seats;
mod sync;
pub mod tls;
mod token;
mod url;

pub use async_trait::async_trait;

pub use capabilities::{Capabilities, Requirement};
pub use claim::{Claim, Wait};
pub use client::{DEFAULT_TTL, Locks};
pub use clock::Moment;
pub use config::LockConfig;
pub use counters::Stats;
pub use error::{Error, ErrorKind, Operation, Result};
pub use grant::{Grant, Holder, LockStatus, Released, Renewal};
pub use guard::{Held, LockGuard};
pub use leader::{Campaign, Leadership};
pub use lease::{Loss, Standing};
pub use local::HandOver;
pub use lock::DistributedLock;
pub use many::LockAllGuard;
pub use memory::MemoryLock;
pub use mode::Mode;
pub use name::LockName;
pub use observe::{Leader, Observation};
pub use owner::OwnerId;
pub use reentrant::{Owner, ReentrantGuard};
pub use request::{Acquire, Again, All, LockRequest, One};
pub use token::FencingToken;
pub use url::{Host, Secret, ServerUrl};
