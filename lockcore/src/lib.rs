//! The heart of lockwell: one distributed lock, any backend.
//!
//! * [`Locks`] is what applications use: `locks.lock("orders/42").await?` yields a [`LockGuard`].
//! * [`DistributedLock`] is what backends implement: small, object safe, without policy.
//!
//! Everything between the two is implemented once, here: waiting, lease renewal on a [thread of its own](#the-keeper),
//! loss, cancellation, clean-up. So a backend needs no policy. What several backends need is in [`backend`].
//!
//! # When not to use a distributed lock
//!
//! * **To protect data that one database can protect.** A transaction, a unique key or a conditional update does it
//!   without a lease, a clock or a second system.
//! * **For correctness without fencing.** Every lock with a lease can be held by two for a moment: a holder that was
//!   paused does not know that its lease has ended until it runs again. Let the resource compare the
//!   [`FencingToken`], or lock where the data is (`verify_in` of the SQL backends).
//! * **Within one process.** [`tokio::sync::Mutex`] is a thousand times cheaper.
//! * **As a queue.** Workers that all wait for one lock do one thing at a time; a job queue does not.
//!
//! # The keeper
//!
//! Leases are renewed by one thread of the process, `lockwell-keeper`, on connections of its own. An application that
//! blocks its runtime, or shuts it down with guards alive, does not lose its locks for that reason. A forked child does
//! not inherit the thread: a client that is made in the child has a new one, guards of the parent have none.
//!
//! # The end of a program
//!
//! Dropping a guard releases its lock in the background. A program calls [`Locks::close`] last: it waits until all such
//! releases have their answers.
//!
//! # How sure can a holder be?
//!
//! Validity ends early: at the start of the last successful request plus the ttl, less 1 % and 2 ms, on a clock that
//! goes on during suspend ([`Moment`]). The server's lease ends later than that. A renewal that fails is *unknown*,
//! not lost: the guard turns [`Suspect`](LeaseState::Suspect), the deadline stands, the keeper tries again.

pub mod backend;
mod background;
pub mod blocking;
mod client;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod hold;
mod lease;
mod local;
mod memory;
mod request;
mod system;
mod telemetry;
pub mod testing;

pub use async_trait::async_trait;

pub use client::{DEFAULT_TTL, Leader, Locks, Observation};
pub use config::{HandOver, Host, LockConfig, Secret, ServerUrl, tls};
pub use contract::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, ErrorWith, FencingToken, Finding, Grant, Holder,
    LeaseState, LockName, LockStatus, Loss, Mode, Operation, OwnerId, Released, Renewal, Requirement, Result,
    Severity, Stats, Wait,
};
pub use hold::{LockAllGuard, LockGuard, LockHandle};
pub use memory::MemoryLock;
pub use request::{Acquire, All, Campaign, Leadership, LockRequest, One, Owner, Reentrant, ReentrantGuard};
pub use system::{Clock, Moment, TestClock};
pub use telemetry::{Events, LockEvent};
