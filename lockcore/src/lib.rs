//! The core of lockwell: distributed locks on any backend.
//!
//! * [`Locks`] is what applications use: `locks.lock("orders/42").await?` yields a [`LockGuard`].
//! * [`DistributedLock`] is what backends implement: small, object safe, without policy.
//!
//! This crate implements everything between the two: waiting, lease renewal on a [separate
//! thread](#the-keeper), loss, cancellation, clean-up. So a backend needs no policy. Code that several
//! backends need is in [`backend`].
//!
//! # When not to use a distributed lock
//!
//! The guide `choosing` of the crate `lockwell` says when a program needs no lock.
//!
//! # The keeper
//!
//! One thread of the process, `lockwell-keeper`, renews all leases, on its own connections. So an application
//! keeps its locks even if it blocks its runtime, or shuts it down while guards exist. A forked child does
//! not inherit the thread. A client that is made in the child gets a new thread; guards of the parent are not
//! renewed in the child.
//!
//! # The end of a program
//!
//! Dropping a guard releases its lock in the background. A program calls [`Locks::close`] last, which waits
//! until all such releases have their answers.
//!
//! # How long is a lock valid?
//!
//! The validity of a lock ends before its lease: at the start of the last successful request plus the ttl,
//! minus 1 % and 2 ms, on a clock that continues during suspend ([`Moment`]). The lease at the server ends
//! later than that. A failed renewal does not mean that the lock is lost: the guard becomes
//! [`Suspect`](LeaseState::Suspect), the deadline stays, and the keeper tries again.

pub mod backend;
mod background;
pub mod blocking;
mod client;
mod config;
mod contract;
mod hold;
mod jobs;
mod life;
mod local;
mod memory;
mod request;
#[doc(hidden)]
pub mod suite;
mod system;
mod telemetry;
pub mod testing;

pub use async_trait::async_trait;

pub use background::wait_for_releases;
pub use client::{DEFAULT_TTL, Leader, Locks, Observation};
pub use config::{HandOff, Host, LockConfig, Passwords, Secret, ServerUrl, tls};
pub use contract::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, ErrorWith, FencingToken, Finding, Grant, HoldId,
    Holder, LeaseState, LockName, LockStatus, Loss, Mode, Operation, OwnerId, Record, RecordKind,
    RecordWrite, Released, Renewal, Requirement, Result, Severity, Stats, TraceParent, Wait, WaitingClaim,
};
pub use hold::{LockAllGuard, LockGuard, LockHandle};
pub use memory::MemoryLock;
pub use request::{
    Acquire, All, Campaign, Job, JobRun, JobState, Keyed, LockRequest, Once, One, Owner, Reentrant,
    ReentrantGuard,
};
pub use system::{Clock, Moment, TestClock};
pub use telemetry::{Events, LockEvent};
