//! SQLite: each client opens the same file by itself.
#![cfg(feature = "sqlite-unbundled")]

use std::sync::Arc;
use std::time::Duration;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Missing, Need};
use lockwell::sql::SqliteLock;
use lockwell::{Locks, Result};
use tempfile::TempDir;

use super::targets::{Started, quick_folder};

#[derive(Debug)]
struct File {
    url: String,
    /// Holds the file, and goes with it.
    _folder: TempDir,
}

pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, LongestWait, NamedWaiters, Permits, Process, Purge,
        Records, Shared, TokenBlocks,
    };
    vec![
        Shared,
        Permits,
        Downgrade,
        Fencing,
        TokenBlocks,
        Fifo,
        Counted,
        LongestWait,
        NamedWaiters,
        Durable,
        Process,
        Purge,
        Records,
    ]
}

pub(crate) fn start() -> Started {
    let folder = tempfile::Builder::new().prefix("lockwell-conformance-").tempdir_in(quick_folder());
    let folder = folder.map_err(|error| Missing::Broken(format!("a folder: {error}")))?;
    let url = format!("sqlite://{}", folder.path().join("locks.db").display());
    Ok(Arc::new(File { url, _folder: folder }))
}

#[async_trait]
impl Harness for File {
    fn offers(&self) -> Vec<Need> {
        offers()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(&self.url).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url.clone())
    }

    async fn purge(&self) {
        let lock = SqliteLock::connect(&self.url.parse().expect("an address")).await.expect("a connection");
        lock.purge(Duration::ZERO).await.expect("a purge");
    }
}
