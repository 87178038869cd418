//! For authors of backends: the trait and its vocabulary, and the machinery that every backend needs, written once.
//!
//! A backend implements [`DistributedLock`]. What it does not have to write itself:
//!
//! * [`Batcher`]: requests that meet share a call, within deadlines, with retries.
//! * [`wait_for_turn`] and [`Waiters`]: the waiting loop, for servers that refuse and notify; a server that queues by
//!   itself needs neither. [`PushedGrant`]: until when a grant that a release made for a waiter is valid. [`Hot`]:
//!   which locks were contended lately.
//! * [`Reconnect`]: a connection for each runtime that is replaced when it fails, and requests that are repeated on the new
//!   one.
//! * [`PerRuntime`]: connections that depend on the runtime which made them.
//! * [`LeaseTable`]: leases that the client itself has to end, since its session keeps the records of its claims.
//! * [`note_reconnection`]: the one metric that lockcore cannot count by itself.
//! * [`Backoff`], [`OwnRuntime`] and [`SharedRuntime`], [`escape`] and [`unescape`], [`Record`], [`valid_until`].

mod backoff;
mod batcher;
mod escape;
mod hand_over;
mod hot;
mod lease_table;
mod per_runtime;
mod reconnect;
mod record;
mod signs;
mod waiters;
mod waiting;

pub use backoff::Backoff;
pub use batcher::{Attempt, Batcher, Bounds, Call, Outcome, Reply, Service};
pub use escape::{escape, unescape};
pub use hand_over::{PushedGrant, SignOfLife};
pub use hot::Hot;
pub use lease_table::LeaseTable;
pub use per_runtime::PerRuntime;
pub use reconnect::{Failure, Reconnect};
pub use record::Record;
pub use waiters::{KEEP_EVERY, PLACE_TTL, Waiter, Waiters};
pub use waiting::{Answer, Queue, wait_for_turn};

pub use crate::config::{Host, Secret, ServerUrl, tls};
pub use crate::contract::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, Holder, LockName,
    LockStatus, Mode, Operation, OwnerId, Released, Renewal, Requirement, Result, Wait,
};
pub use crate::lease::valid_until;
pub use crate::memory::MemoryLock;
pub use crate::system::{Clock, Moment, OwnRuntime, SharedRuntime};
pub use crate::telemetry::note_reconnection;
pub use async_trait::async_trait;
