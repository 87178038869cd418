//! What a grant waits for.
//!
//! A holder is a process of this host. If the host crashes, no holder is left, so a grant that the disk has
//! lost excludes nobody who is still there, and need not be synced before it is answered. Two things must
//! survive the crash all the same:
//!
//! * **Tokens.** The resource that checks them is often elsewhere and has seen the highest. So a durable
//!   bound is raised ahead of the grants, and no grant exceeds it (`may_grant` in `bounds.sql`). The first
//!   claim after a crash finds the id of another boot in the tables; it makes the bound the floor, and each
//!   token from then on is higher. The statement that grants compares all of it itself.
//! * **The file.** With `synchronous=NORMAL` SQLite syncs its log before a checkpoint, and the database after
//!   it, so a crash cuts off the end of the log and nothing else.
//!
//! While the host runs, everybody reads what was written, on disk or not, unless a sync fails: then the
//! kernel may drop what it has not written. SQLite hides the errors of checkpoints that it makes by itself.
//! So each connection that grants makes a checkpoint of its own now and then ([`LOOK_EVERY`]), and a client
//! that has seen an error grants nothing until each lease that may be lost has ended, and a checkpoint has
//! succeeded.
//!
//! It needs one host: the kernel whose crash loses the end of the log must be the one that runs all holders.
//! On file systems that other kernels may have open, and where the boot has no id, grants are synced.
//!
//! A volume may also be taken from a host whose processes still run, and be attached to another one. If what
//! is in the tables says so (`raise` in `bounds.sql`), nothing is granted there until the leases have ended.
//! On the old host a renewal looks at the disk now and then, so that holders there do not go on for ever.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lockwell_core::backend::lock;
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};

use super::{boot, filesystem};

/// How often a connection that grants looks whether the disk still takes what is written.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The result codes for a failed sync: `IOERR_FSYNC` and `IOERR_DIR_FSYNC`.
const SYNC_FAILED: [&str; 2] = ["1034", "1290"];

/// When a grant is on the disk, and what is known about that disk.
#[derive(Debug)]
pub(super) struct Durability {
    /// The id of this boot. Empty if it is not known; grants are synced then.
    pub(super) boot: String,
    /// The id of this host. Empty if it is not known.
    pub(super) host: String,
    /// Whether a grant is synced before it is answered.
    pub(super) syncs_grants: bool,
    /// When a sync failed last.
    failed: Mutex<Option<Instant>>,
}

impl Durability {
    /// By the option of the address, or as far as this host allows. `file` need not exist yet.
    pub(super) fn of(url: &ServerUrl, file: &Path) -> Result<Self> {
        let boot = boot::id().unwrap_or_default();
        let lacks = if boot.is_empty() {
            Some("this boot of the host has no id that all processes can read")
        } else if !filesystem::is_of_one_host(file) {
            Some("the file system may be shared with other hosts")
        } else {
            None
        };
        let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text).on_backend("sqlite");
        let syncs_grants = match (url.option("durability"), lacks) {
            (None, lacks) => lacks.is_some(),
            (Some("disk"), _) => true,
            (Some("grace"), None) => false,
            (Some("grace"), Some(why)) => {
                return Err(invalid(format!("durability=grace cannot be had: {why}; use durability=disk")));
            }
            (Some(other), _) => {
                return Err(invalid(format!("durability is disk or grace, not {other:?}")));
            }
        };
        Ok(Self { boot, host: boot::host(), syncs_grants, failed: Mutex::new(None) })
    }

    /// Remembers an error if it says that a sync has failed.
    pub(super) fn note(&self, error: &sqlx_core::Error) {
        let is_failed_sync = matches!(error, sqlx_core::Error::Database(error)
            if error.code().is_some_and(|code| SYNC_FAILED.contains(&&*code)));
        if is_failed_sync {
            self.note_failed_sync(error);
        }
    }

    /// Remembers that a sync has failed.
    pub(super) fn note_failed_sync(&self, error: &dyn std::fmt::Display) {
        if !self.syncs_grants {
            tracing::error!(%error, "the disk of the SQLite file has failed; no lock is granted for a while");
            *lock(&self.failed) = Some(Instant::now());
        }
    }

    /// When a sync has failed, if leases may still be lost because of it.
    pub(super) fn failed(&self) -> Option<Instant> {
        *lock(&self.failed)
    }

    /// Nothing that was granted before this failure can be lost any more.
    pub(super) fn recovered(&self, from: Instant) {
        let mut failed = lock(&self.failed);
        if *failed == Some(from) {
            *failed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &str) -> Result<Durability> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        Durability::of(&format!("sqlite://locks.db{options}").parse().unwrap(), &file)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_address_chooses() {
        assert!(of("?durability=disk").unwrap().syncs_grants);
        // By itself where it can.
        let by_itself = of("").unwrap();
        assert_eq!(by_itself.syncs_grants, by_itself.boot.is_empty());
        assert_eq!(of("?durability=grace").is_ok(), !by_itself.syncs_grants);
        let error = of("?durability=off").unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("disk or grace"));
    }

    #[test]
    fn a_failure_is_known_until_it_is_over() {
        let durability = of("").unwrap();
        durability.note(&sqlx_core::Error::RowNotFound);
        assert_eq!(durability.failed(), None);
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        *durability.failed.lock().unwrap() = Some(second);
        durability.recovered(first);
        assert_eq!(durability.failed(), Some(second));
        durability.recovered(second);
        assert_eq!(durability.failed(), None);
    }
}
