//! Counts the folders that a client makes.
//!
//! Folders are containers, and a server deletes those that are empty, by default 10,000 in a minute
//! (`znode.container.maxPerMinute`). A client that uses new names faster would leave more and more behind. So
//! it deletes folders itself: of those that it makes in a minute, the ones above a bound, each with the
//! release of the claim that made it. The others stay for the next claims, which would otherwise have to make
//! them again.
//!
//! A claim that enters the folder at that moment is safe: either the folder is not empty, and stays, or the
//! claim makes it again, as after a deletion by the server.

use std::sync::Mutex;
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::lock;

/// How many of the folders that a client makes in a minute are left to the servers.
pub(crate) const LEFT: u32 = 2_000;

const MINUTE: Duration = Duration::from_secs(60);

/// The folders that a client has made since this moment, at most a minute ago.
#[derive(Debug)]
pub(crate) struct Folders(Mutex<(Moment, u32)>);

impl Folders {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Moment::now(), 0)))
    }

    /// The client has made a folder. Returns whether it has to delete it.
    pub(crate) fn made(&self) -> bool {
        let now = Moment::now();
        let mut counted = lock(&self.0);
        if now.since(counted.0) >= MINUTE {
            *counted = (now, 0);
        }
        counted.1 = counted.1.saturating_add(1);
        counted.1 > LEFT
    }
}
