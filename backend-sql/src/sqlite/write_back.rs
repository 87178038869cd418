//! Lets the kernel write the log to the disk ahead of checkpoints.
//!
//! A commit that is not synced leaves its pages in the memory of the kernel. A checkpoint syncs all of them
//! at once, and nobody on its connection goes on meanwhile: 64 MB of log took 50 ms on a disk whose syncs
//! otherwise took 0.1 ms. So a thread syncs the log now and then, and the checkpoint finds little left.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::durability::Durability;

/// After how many commits of all processes the log is synced, on the average. They write about 4 MB.
const COMMITS: u32 = 500;

/// The error of a write to the disk.
const EIO: i32 = 5;

/// The sync that a connection has begun last.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// One at a time, also on a disk that hangs. Nobody waits for it: a runtime would, at its end.
    sync: Option<JoinHandle<()>>,
}

impl WriteBack {
    /// After a commit that was not synced. Chance decides, since no process counts the commits of others.
    pub(super) fn note_commit(&mut self, log: &Path, durability: &Arc<Durability>) {
        if !cfg!(target_os = "linux") || rand::random_range(0..COMMITS) != 0 {
            return;
        }
        if self.sync.as_ref().is_some_and(|sync| !sync.is_finished()) {
            return;
        }
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
        for _ in 0..2 {
            let mut ahead = WriteBack::default();
            let commits = (0..COMMITS * 100).take_while(|_| {
                ahead.note_commit(&log, &durability);
                ahead.sync.is_none()
            });
            println!("after {} commits", commits.count());
            ahead.sync.take().expect("a sync").join().unwrap();
            // A file that is gone has lost nothing.
            drop(std::fs::remove_file(&log));
        }
        assert_eq!(durability.failed(), None);
    }

    #[test]
    fn only_a_failed_write_is_a_loss() {
        for (number, lost) in [(EIO, true), (28, true), (122, true), (2, false), (9, false), (22, false)] {
            assert_eq!(is_lost(&io::Error::from_raw_os_error(number)), lost, "{number}");
        }
    }
}
