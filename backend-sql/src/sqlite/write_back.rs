//! Lets the kernel write the log to the disk ahead of checkpoints.
//!
//! A commit that is not synced leaves its pages in the memory of the kernel. A checkpoint syncs all of them at
//! once, and nobody on its connection goes on meanwhile: 64 MB of log took 50 ms on a disk whose syncs
//! otherwise took 0.1 ms. So a thread syncs the log now and then, and the checkpoint finds little left.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::durability::Durability;

/// After how many commits the log is synced. They write about 4 MB.
const COMMITS: u32 = 500;

/// The error of a write to the disk.
const EIO: i32 = 5;

/// The commits of a connection since the last sync.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    commits: u32,
    /// One at a time, also on a disk that hangs. Nobody waits for it: a runtime would, at its end.
    sync: Option<JoinHandle<()>>,
}

impl WriteBack {
    /// Counts a commit, which is synced by itself or not.
    pub(super) fn count_commit(&mut self, is_synced: bool, log: &Path, durability: &Arc<Durability>) {
        self.commits = if is_synced { 0 } else { self.commits + 1 };
        let is_under_way = self.sync.as_ref().is_some_and(|sync| !sync.is_finished());
        if self.commits < COMMITS || is_under_way || !cfg!(target_os = "linux") {
            return;
        }
        self.commits = 0;
        let (log, durability) = (log.to_owned(), Arc::clone(durability));
        let thread = thread::Builder::new().name("lockwell-sync".into());
        let started = thread.spawn(move || sync(&log, &durability));
        self.sync = started.inspect_err(|error| tracing::debug!(%error, "no thread to sync the log")).ok();
    }
}

/// Since Linux 4.13 each open file learns of a failed write. Before that only the first one to sync does, so
/// that SQLite would not hear of it.
fn sync(log: &Path, durability: &Durability) {
    match File::open(log).and_then(|log| log.sync_data()) {
        Err(error) if is_lost(&error) => durability.note_failed_sync(&error),
        Err(error) => tracing::debug!(%error, "the log was not synced ahead"),
        Ok(()) => (),
    }
}

/// Whether what was written is not on the disk. Other errors say that this file cannot be synced so.
fn is_lost(error: &io::Error) -> bool {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    is_full || error.raw_os_error() == Some(EIO)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_synced_after_many_commits_that_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("locks.db-wal");
        std::fs::write(&log, "pages").unwrap();
        let url = format!("sqlite://{}", folder.path().join("locks.db").display()).parse().unwrap();
        let durability = Arc::new(Durability::of(&url, &log).unwrap());
        let mut ahead = WriteBack::default();
        for number in 1..3 * COMMITS {
            // One that was synced in between begins a new count.
            ahead.count_commit(number == COMMITS, &log, &durability);
            assert_eq!(ahead.sync.is_some(), number >= 2 * COMMITS, "{number}");
        }
        ahead.sync.take().unwrap().join().unwrap();
        // A file that is gone has lost nothing.
        ahead.commits = COMMITS - 1;
        std::fs::remove_file(&log).unwrap();
        ahead.count_commit(false, &log, &durability);
        ahead.sync.take().unwrap().join().unwrap();
        assert_eq!(durability.failed(), None);
    }

    #[test]
    fn only_a_failed_write_is_a_loss() {
        for (number, lost) in [(EIO, true), (28, true), (122, true), (2, false), (9, false), (22, false)] {
            assert_eq!(is_lost(&io::Error::from_raw_os_error(number)), lost, "{number}");
        }
    }
}
