//! What several verbs let the user say about the lock that they take.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use lockwell::Mode;

use super::time;
use crate::obtain::WaitLimit;

/// How long to wait for the lock, and with whom to share it.
#[derive(Args)]
pub(crate) struct ClaimArgs {
    /// The longest time to wait for the lock, as in 5s or 2m; a plain number means seconds [default: that of
    /// the address or of --config, otherwise no limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: end at once if the lock is held.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Take a reader lock: several readers hold it together, but not while another holds it exclusively.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) read: bool,
    /// Take one permit of a semaphore: at most N hold the lock together. All users of the lock must give the
    /// same N.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<NonZeroU32>,
}

impl ClaimArgs {
    pub(crate) fn mode(&self) -> Mode {
        match self.permits {
            Some(limit) => Mode::Permit { limit },
            None if self.read => Mode::Shared,
            None => Mode::Exclusive,
        }
    }

    pub(crate) fn wait_limit(&self) -> WaitLimit {
        WaitLimit::new(self.no_wait, self.wait)
    }
}

/// For how long the lock stays taken if nobody renews it.
#[derive(Args)]
pub(crate) struct LeaseArgs {
    /// How long others have to wait for the lock if lockwell is killed or loses its connection [default: that
    /// of the address or of --config, otherwise 10s].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) ttl: Option<Duration>,
    /// If lockwell is killed or loses its connection, make others wait for this time in addition to --ttl
    /// [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) lock_delay: Option<Duration>,
}
