//! The in-memory backend: clients of one process share it by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockwell::backend::{MemoryLock, async_trait};
use lockwell::conformance::{Harness, Need};
use lockwell::{Locks, Result};

use super::targets::Started;

#[derive(Debug)]
struct Memory {
    url: String,
    /// Keeps the named server alive from client to client.
    _keep: MemoryLock,
}

pub(crate) fn offers() -> Vec<Need> {
    vec![
        Need::Shared,
        Need::Permits,
        Need::Downgrade,
        Need::Fencing,
        Need::TokenBlocks,
        Need::Fifo,
        Need::Counted,
        Need::LongestWait,
    ]
}

#[allow(clippy::unnecessary_wraps)] // As for all backends.
pub(crate) fn start() -> Started {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("conformance-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Ok(Arc::new(Memory { url: format!("memory://{name}"), _keep: MemoryLock::named(&name) }))
}

#[async_trait]
impl Harness for Memory {
    fn offers(&self) -> Vec<Need> {
        offers()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(&self.url).await
    }
}
