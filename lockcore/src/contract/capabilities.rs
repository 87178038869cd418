//! What a backend promises, and what an application requires.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Error, ErrorKind, Mode, Result};

/// What a backend promises. `lockcore` refuses, before any request is sent, what a backend cannot honour.
///
/// A backend begins with [`minimal`](Self::minimal) and adds what it has. [`Requirement`] lists the promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    backend: &'static str,
    /// A bit for each [`Requirement`].
    promised: u32,
    presumed: bool,
    session_bound: bool,
    min_ttl: Duration,
    max_ttl: Duration,
    /// What bounds the longest lease, for the error of a longer one.
    bound: &'static str,
}

impl Capabilities {
    /// The promises of a backend that promises mutual exclusion only, for leases from 10 ms to a day.
    /// `backend` is the name of the backend: `postgres`, `etcd`, ...
    pub fn minimal(backend: &'static str) -> Self {
        Self {
            backend,
            promised: 0,
            presumed: false,
            session_bound: false,
            min_ttl: Duration::from_millis(10),
            max_ttl: Duration::from_secs(86_400),
            bound: "",
        }
    }

    /// Adds these promises.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// use lockwell::{Capabilities, Requirement};
    /// let nothing = Capabilities::minimal("example");
    /// let promised = nothing.promising([Requirement::Shared, Requirement::Fencing]);
    /// assert!(promised.promises(Requirement::Shared) && !promised.promises(Requirement::Fifo));
    /// ```
    #[must_use]
    pub fn promising(mut self, promised: impl IntoIterator<Item = Requirement>) -> Self {
        for requirement in promised {
            self.promised |= requirement.bit();
        }
        self
    }

    /// Takes these promises back: for a backend that wraps another one.
    #[must_use]
    pub fn without(mut self, promised: impl IntoIterator<Item = Requirement>) -> Self {
        for requirement in promised {
            self.promised &= !requirement.bit();
        }
        self
    }

    /// Sets the shortest and the longest lease.
    #[must_use]
    pub fn with_ttl(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.min_ttl, self.max_ttl) = (shortest, longest);
        self
    }

    /// Says what bounds the longest lease, such as an option of the address: it follows the error of a longer
    /// one.
    #[must_use]
    pub fn bounded_by(mut self, bound: &'static str) -> Self {
        self.bound = bound;
        self
    }

    fn bound(&self) -> String {
        if self.bound.is_empty() { String::new() } else { format!(" ({})", self.bound) }
    }

    /// Sets the backend's name: for a backend that wraps another one.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.backend = backend;
        self
    }

    /// Says that the backend has not connected yet, and only presumes what its server promises. lockcore asks
    /// again with each request until it knows.
    #[must_use]
    pub fn presumed(mut self) -> Self {
        self.presumed = true;
        self
    }

    /// Whether the backend has not connected yet, and only presumes this.
    pub fn is_presumed(&self) -> bool {
        self.presumed
    }

    /// Says that a lock belongs to a session of its client and ends with it, so that it cannot outlive the
    /// process.
    #[must_use]
    pub fn bound_to_session(mut self) -> Self {
        self.session_bound = true;
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

    /// Whether a lock ends with the session of its client.
    pub fn is_session_bound(&self) -> bool {
        self.session_bound
    }

    /// Whether this is promised.
    pub fn promises(&self, requirement: Requirement) -> bool {
        self.promised & requirement.bit() != 0
    }

    /// Checks that all requirements are promised. The error names those that are not.
    ///
    /// This makes it safe to change the backend in the configuration: if an application relies on fencing and
    /// the new backend does not promise it, the application fails when it starts, not later.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// use lockwell::{Capabilities, Requirement};
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

    /// Refuses what reads records where there are none. A client without a connection asks the server.
    pub(crate) fn check_records(&self) -> Result<()> {
        if self.presumed { Ok(()) } else { self.require(&[Requirement::Records]) }
    }

    /// Refuses a mode or a lease that the backend cannot honour.
    pub(crate) fn check(&self, mode: Mode, ttl: Duration) -> Result<()> {
        let supported = match mode {
            Mode::Exclusive => true,
            Mode::Shared => self.promises(Requirement::Shared),
            Mode::Permit { .. } => self.promises(Requirement::Permits),
        };
        if !supported {
            let message = format!("this backend has no {} locks", mode.name());
            return Err(Error::new(ErrorKind::Unsupported, message).on_backend(self.backend));
        }
        if ttl < self.min_ttl || ttl > self.max_ttl {
            let message = format!(
                "a ttl of {} is not allowed: it must be between {} and {}{}",
                humantime::format_duration(ttl),
                humantime::format_duration(self.min_ttl),
                humantime::format_duration(self.max_ttl),
                self.bound()
            );
            return Err(Error::new(ErrorKind::InvalidInput, message).on_backend(self.backend));
        }
        Ok(())
    }

    /// Refuses a lock delay that would make the lease at the server longer than the longest lease of the
    /// backend.
    pub(crate) fn check_lock_delay(&self, ttl: Duration, lock_delay: Duration) -> Result<()> {
        if ttl.saturating_add(lock_delay) <= self.max_ttl {
            return Ok(());
        }
        let message = format!(
            "ttl and lock delay are {} and {}: together they may be {} at most{}",
            humantime::format_duration(ttl),
            humantime::format_duration(lock_delay),
            humantime::format_duration(self.max_ttl),
            self.bound()
        );
        Err(Error::new(ErrorKind::InvalidInput, message).on_backend(self.backend))
    }
}

/// Something that a backend can promise and an application can require, by its name in a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Requirement {
    /// Reader locks: [`Mode::Shared`] works.
    Shared,
    /// Semaphores: [`Mode::Permit`] works.
    Permits,
    /// A writer can become a reader without a gap.
    Downgrade,
    /// Tokens rise strictly for each name as long as the server keeps what it has acknowledged.
    Fencing,
    /// A claim can reserve several tokens ([`Claim::tokens`](crate::Claim::tokens)), so that each task has
    /// its own token when a lock is passed from task to task within a process.
    TokenBlocks,
    /// Waiters are served in the order in which the server saw them. A client promises it only with
    /// [`Locks::server_order`](crate::Locks::server_order), which requiring it sets. Otherwise processes are
    /// served in turn.
    Fifo,
    /// The server notifies a waiter, so it need not poll.
    Push,
    /// The server notifies a holder that has lost its lock (see
    /// [`DistributedLock::lost`](crate::DistributedLock::lost)).
    LossPush,
    /// The number of waiters that a release notifies does not depend on the number of waiters. It is one, on
    /// some backends two, or the readers that get the lock together.
    HerdFree,
    /// Processes on different hosts exclude each other.
    AcrossHosts,
    /// A lock survives a clean restart of the server.
    Durable,
    /// When a server fails and another one takes its place, no lock is granted twice. This assumes, as every
    /// lease does, that no clock steps forward.
    FailoverSafe,
    /// Each lock can have records ([`DistributedLock::write_record`](crate::DistributedLock::write_record)).
    Records,
    /// The lock is in a PostgreSQL database, so `verify_in` can bind a transaction of that database to it.
    #[serde(rename = "verify-in:postgres")]
    VerifyInPostgres,
    /// The lock is in a MySQL or MariaDB database, so `verify_in` can bind a transaction of it to the lock.
    #[serde(rename = "verify-in:mysql")]
    VerifyInMySql,
    /// The lock is in an SQLite database, so `verify_in` can bind a transaction of it to the lock.
    #[serde(rename = "verify-in:sqlite")]
    VerifyInSqlite,
}

impl Requirement {
    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// All of them, with their names.
pub const REQUIREMENTS: [(Requirement, &str); 16] = [
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
    (Requirement::Records, "records"),
    (Requirement::VerifyInPostgres, "verify-in:postgres"),
    (Requirement::VerifyInMySql, "verify-in:mysql"),
    (Requirement::VerifyInSqlite, "verify-in:sqlite"),
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
            let config = format!("url = 'memory://'\nrequire = ['{name}']");
            assert_eq!(crate::LockConfig::from_toml(&config).unwrap().require, [one]);
        }
        assert!("speed".parse::<Requirement>().unwrap_err().to_string().contains("herd-free"));
    }

    #[test]
    fn promises_are_added_and_taken_back() {
        let promised = Capabilities::minimal("inner").promising([Requirement::Fifo, Requirement::Push]);
        let wrapped = promised.clone().without([Requirement::Fifo]).with_backend("outer").bound_to_session();
        assert!(wrapped.promises(Requirement::Push) && !wrapped.promises(Requirement::Fifo));
        assert_eq!((wrapped.backend(), wrapped.is_session_bound()), ("outer", true));
        assert_eq!((promised.backend(), promised.is_session_bound()), ("inner", false));
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
