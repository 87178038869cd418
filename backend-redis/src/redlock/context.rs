//! What all rounds and nodes have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use lockwell_core::backend::{Hot, Waiters};
use tokio::sync::Semaphore;

use super::settings::Settings;
use crate::words::keys::Keys;

/// What all runtimes of a process share.
pub(super) struct Common {
    pub(super) settings: Settings,
    pub(super) keys: Keys,
    /// The highest token that this client knows of.
    pub(super) highest: AtomicU64,
}

/// What all rounds and nodes of one runtime have in common.
pub(super) struct NodesContext {
    pub(super) common: Arc<Common>,
    pub(super) waiters: Arc<Waiters>,
    pub(super) channel: Arc<str>,
    pub(super) tickets: AtomicI64,
    pub(super) hot: Hot,
    /// Bounds the rounds that are under way: more of them would only wait for each other, within their time
    /// limits.
    pub(super) rounds: Semaphore,
}
