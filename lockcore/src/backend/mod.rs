//! For authors of backends: the trait with its types, and code that many backends need.
//!
//! A backend implements [`DistributedLock`]. This module has for it:
//!
//! * [`Batcher`]: requests that arrive at about the same time share a call, with time limits and retries.
//! * [`wait_for_turn`] and [`Waiters`]: the waiting loop, for servers that refuse a claim and notify it
//!   later. A server with a queue of its own needs neither. [`Notification`] and [`PushedGrant`]: a grant that
//!   a release made for a waiter, and the end of its validity. [`Hot`]: which locks were contended lately.
//! * [`Reconnect`]: a connection for each runtime. It replaces a failed connection, and repeats the requests
//!   on the new one.
//! * [`at_each_address`] and [`by_name_or_address`]: a server whose name has several addresses, of which the first may be silent.
//! * [`Lazy`]: a backend that connects with its first request.
//! * [`PerRuntime`]: connections that depend on the runtime which made them.
//! * [`SharedTask`]: one task for all who want its answer, which none of them has to drive.
//! * [`MarkWatch`]: the grace period, for servers that may forget their last grants. [`GraceGauge`]: a
//!   metric.
//! * [`Finding`] and [`Severity`]: the results of an examination of the server, as `lockwell doctor` shows
//!   them.
//! * [`set_nodelay`]: `TCP_NODELAY` on the sockets of a client crate that does not set it.
//! * [`note_reconnection`]: a metric that lockcore cannot count by itself.
//! * [`wake_tasks`] and [`unless_panics`]: wakers of the application that panic end nothing that others
//!   share. [`lock`]: neither does a panic while a mutex is locked.
//! * [`PerProcess`]: the only kind of `static` that a thread waits for. [`Constant`]: a computed one, for which none
//!   waits. [`Process`]: which process this is. A forked child is another one.
//! * [`Backoff`], [`OwnRuntime`] and [`SharedRuntime`] with [`Task`], [`escape`] and [`unescape`],
//!   [`unique_bits`], [`valid_until`].

mod addresses;
mod backoff;
mod batcher;
mod batcher_sync;
#[cfg(test)]
mod batcher_tests;
mod escape;
mod grace;
mod hand_over;
mod heartbeats;
mod hot;
mod lazy;
mod nodelay;
mod per_runtime;
mod reconnect;
mod shared_task;
mod waiters;
mod waiting;

pub use addresses::{addresses_of, at_each_address, by_name_or_address};
pub use backoff::Backoff;
pub use batcher::{Attempt, Batcher, Bounds, Call, CallOutcome, Reply, Service};
pub use escape::{escape, unescape};
pub use grace::{
    GraceGauge, GraceOptions, Mark, MarkAdvice, MarkWatch, closed_for, grace_period, mark_advice,
};
pub use hand_over::{Heartbeat, Notification, PushedGrant, provisional_lease};
pub use hot::Hot;
pub use lazy::Lazy;
pub use nodelay::{NoDelay, can_set_nodelay, look_for_nodelay, set_nodelay};
pub use per_runtime::PerRuntime;
pub use reconnect::{Failure, Reconnect};
pub use shared_task::SharedTask;
pub use waiters::{KEEP_EVERY, PLACE_TTL, Waiter, Waiters};
pub use waiting::{ClaimReply, Queue, wait_for_turn};

pub use crate::config::{Host, Passwords, Secret, ServerUrl, tls};
pub use crate::contract::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Finding, Grant, Holder, LockName,
    LockStatus, Mode, Operation, OwnerId, Record, RecordKind, RecordWrite, Released, Renewal, Requirement,
    Result, Severity, StoredRecord, Wait, WaitingClaim, check_label,
};
pub use crate::life::valid_until;
pub use crate::memory::MemoryLock;
pub use crate::system::{
    Clock, Constant, Moment, OwnRuntime, PerProcess, Process, SharedRuntime, Task, lock, make_ready,
    note_fork, run_blocking, unique_bits, unless_panics, wake_tasks,
};
pub use crate::telemetry::note_reconnection;
pub use async_trait::async_trait;
