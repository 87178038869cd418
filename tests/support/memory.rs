//! The in-memory backend, on a clock that skips the time in which nothing happens.

use std::sync::Arc;

use lockwell::backend::{Clock, DistributedLock, MemoryLock, async_trait};
use lockwell::conformance::{Harness, Need, skipping_clock};
use lockwell::{Locks, Result};

use super::targets::Started;

#[derive(Debug)]
struct Memory(Arc<MemoryLock>);

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
        Need::NamedWaiters,
        Need::Records,
    ]
}

#[allow(clippy::unnecessary_wraps)] // As for all backends.
pub(crate) fn start() -> Started {
    Ok(Arc::new(Memory(Arc::new(MemoryLock::with_clock(skipping_clock())))))
}

#[async_trait]
impl Harness for Memory {
    fn offers(&self) -> Vec<Need> {
        offers()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.0) as Arc<dyn DistributedLock>)
    }
}
