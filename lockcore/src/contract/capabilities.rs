//! What a backend promises, and what an application requires.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Error, ErrorKind, Mode, Result};

/// What a backend promises. `lockcore` refuses, before any request is sent, what a backend cannot honour.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
// Each flag is a promise of its own; they are not the states of one machine.
#[allow(clippy::struct_excessive_bools)]
pub struct Capabilities {
    /// The backend's name: `memory`, `postgres`, `mysql`, `sqlite`, ...
    pub backend: &'static str,
    /// [`Mode::Shared`] works.
    pub shared: bool,
    /// [`Mode::Permit`] works.
    pub permits: bool,
    /// A writer can become a reader without a gap.
    pub downgrade: bool,
    /// Tokens rise strictly for each name as long as the server keeps what it has acknowledged.
    pub fencing: bool,
    /// A claim can reserve several tokens ([`Claim::tokens`](crate::Claim::tokens)), so that tasks which hand a lock on
    /// within a process have one each.
    pub token_blocks: bool,
    /// Waiters are served in the order in which the server saw them.
    pub fifo: bool,
    /// The server notifies a waiter, which need not ask again and again.
    pub push: bool,
    /// The server itself tells a holder of its loss (see [`DistributedLock::lost`](crate::DistributedLock::lost)).
    pub loss_push: bool,
    /// How many waiters a release notifies does not grow with how many wait: one, two on some backends, and readers who come in
    /// together.
    pub herd_free: bool,
    /// Processes on different hosts exclude each other.
    pub across_hosts: bool,
    /// A lock survives a clean restart of the server.
    pub durable: bool,
    /// When a server fails and another one takes its place, no lock is granted twice. This assumes, as every lease
    /// does, that no clock steps forward.
    pub failover_safe: bool,
    /// A lock belongs to a session of its client and ends with it, so that it cannot outlive the process.
    pub session_bound: bool,
    /// The shortest lease.
    pub min_ttl: Duration,
    /// The longest lease.
    pub max_ttl: Duration,
}

impl Capabilities {
    /// A backend that promises mutual exclusion and nothing else. A backend adds its other promises.
    pub fn minimal(backend: &'static str) -> Self {
        Self {
            backend,
            shared: false,
            permits: false,
            downgrade: false,
            fencing: false,
            token_blocks: false,
            fifo: false,
            push: false,
            loss_push: false,
            herd_free: false,
            across_hosts: false,
            durable: false,
            failover_safe: false,
            session_bound: false,
            min_ttl: Duration::from_millis(10),
            max_ttl: Duration::from_hours(24),
        }
    }

    /// Adds these promises.
    ///
    /// ```
    /// use lockcore::{Capabilities, Requirement};
    /// let promised = Capabilities::minimal("example").promising([Requirement::Shared, Requirement::Fencing]);
    /// assert!(promised.promises(Requirement::Shared) && !promised.promises(Requirement::Fifo));
    /// ```
    #[must_use]
    pub fn promising(mut self, promised: impl IntoIterator<Item = Requirement>) -> Self {
        for requirement in promised {
            *self.flag(requirement) = true;
        }
        self
    }

    /// Sets the shortest and the longest lease.
    #[must_use]
    pub fn with_ttl(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.min_ttl, self.max_ttl) = (shortest, longest);
        self
    }

    /// The backend's name.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The shortest lease.
    pub fn min_ttl(&self) -> Duration {
        self.min_ttl
    }

    /// The longest lease.
    pub fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    fn flag(&mut self, requirement: Requirement) -> &mut bool {
        match requirement {
            Requirement::Shared => &mut self.shared,
            Requirement::Permits => &mut self.permits,
            Requirement::Downgrade => &mut self.downgrade,
            Requirement::Fencing => &mut self.fencing,
            Requirement::TokenBlocks => &mut self.token_blocks,
            Requirement::Fifo => &mut self.fifo,
            Requirement::Push => &mut self.push,
            Requirement::LossPush => &mut self.loss_push,
            Requirement::HerdFree => &mut self.herd_free,
            Requirement::AcrossHosts => &mut self.across_hosts,
            Requirement::Durable => &mut self.durable,
            Requirement::FailoverSafe => &mut self.failover_safe,
        }
    }

    /// Checks that all requirements are promised. The error names those that are not.
    ///
    /// This makes a change of backend in the configuration safe: an application that relies on fencing fails
    /// at start-up, not later.
    ///
    /// ```
    /// use lockcore::{Capabilities, Requirement};
    /// let promised = Capabilities::minimal("example");
    /// let error = promised.require(&[Requirement::Fencing, Requirement::Fifo]).unwrap_err();
    /// assert!(error.to_string().contains("fencing, fifo"));
    /// ```
    pub fn require(&self, demanded: &[Requirement]) -> Result<()> {
        let missing: Vec<_> =
            demanded.iter().filter(|&&one| !self.promises(one)).map(Requirement::to_string).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("this backend does not promise: {}", missing.join(", "));
        Err(Error::new(ErrorKind::Unsupported, message).on_backend(self.backend))
    }

    /// Whether this one requirement is met.
    pub fn promises(&self, requirement: Requirement) -> bool {
        *self.clone().flag(requirement)
    }

    /// Refuses a mode or a lease that the backend cannot honour.
    pub(crate) fn check(&self, mode: Mode, ttl: Duration) -> Result<()> {
        let supported = match mode {
            Mode::Exclusive => true,
            Mode::Shared => self.shared,
            Mode::Permit { .. } => self.permits,
        };
        if !supported {
            let message = format!("this backend has no {} locks", mode.name());
            return Err(Error::new(ErrorKind::Unsupported, message).on_backend(self.backend));
        }
        if ttl < self.min_ttl || ttl > self.max_ttl {
            let message = format!(
                "a ttl of {} is not allowed: it must be between {} and {}",
                humantime::format_duration(ttl),
                humantime::format_duration(self.min_ttl),
                humantime::format_duration(self.max_ttl)
            );
            return Err(Error::new(ErrorKind::InvalidInput, message).on_backend(self.backend));
        }
        Ok(())
    }

    /// Refuses a lock delay that makes the lease at the server longer than the backend's longest.
    pub(crate) fn check_lock_delay(&self, ttl: Duration, lock_delay: Duration) -> Result<()> {
        if ttl.saturating_add(lock_delay) <= self.max_ttl {
            return Ok(());
        }
        let message = format!(
            "ttl and lock delay are {} and {}: together they may be {} at most",
            humantime::format_duration(ttl),
            humantime::format_duration(lock_delay),
            humantime::format_duration(self.max_ttl)
        );
        Err(Error::new(ErrorKind::InvalidInput, message).on_backend(self.backend))
    }
}

/// Something that an application can require of its backend, by its name in a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Requirement {
    /// Reader locks.
    Shared,
    /// Semaphores.
    Permits,
    /// A writer can become a reader without a gap.
    Downgrade,
    /// Strictly rising tokens.
    Fencing,
    /// Each of the tasks that hand a lock on within a process has a token of its own.
    TokenBlocks,
    /// Waiters are served in order.
    Fifo,
    /// The server notifies waiters.
    Push,
    /// The server notifies a holder of its loss.
    LossPush,
    /// How many waiters a release notifies does not grow with how many wait.
    HerdFree,
    /// Works across hosts.
    AcrossHosts,
    /// Locks survive a restart of the server.
    Durable,
    /// No double grant after a failover.
    FailoverSafe,
}

const REQUIREMENTS: [(Requirement, &str); 12] = [
    (Requirement::Shared, "shared"),
    (Requirement::Permits, "permits"),
    (Requirement::Downgrade, "downgrade"),
    (Requirement::Fencing, "fencing"),
    (Requirement::TokenBlocks, "token-blocks"),
    (Requirement::Fifo, "fifo"),
    (Requirement::Push, "push"),
    (Requirement::LossPush, "loss-push"),
    (Requirement::HerdFree, "herd-free"),
    (Requirement::AcrossHosts, "across-hosts"),
    (Requirement::Durable, "durable"),
    (Requirement::FailoverSafe, "failover-safe"),
];

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = REQUIREMENTS.iter().find(|(one, _)| one == self).map_or("?", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Requirement {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        REQUIREMENTS.iter().find(|(_, name)| *name == text).map(|(one, _)| *one).ok_or_else(|| {
            let known: Vec<_> = REQUIREMENTS.iter().map(|(_, name)| *name).collect();
            let message = format!("no requirement is called {text:?}; known are {}", known.join(", "));
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for (one, name) in REQUIREMENTS {
            assert_eq!(one.to_string(), name);
            assert_eq!(name.parse::<Requirement>().unwrap(), one);
        }
        assert!("speed".parse::<Requirement>().unwrap_err().to_string().contains("herd-free"));
    }

    #[test]
    fn a_lease_out_of_bounds_is_refused() {
        let promised = Capabilities::minimal("example");
        let error = promised.check(Mode::Exclusive, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("between 10ms and 1day"), "{error}");
        assert_eq!(
            promised.check(Mode::Shared, Duration::from_secs(1)).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}
