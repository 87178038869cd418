//! The lock server for tests of applications, on a clock that skips the time in which nothing happens: it has
//! to behave as the real ones do.

use std::sync::Arc;

use lockwell::backend::{Clock, async_trait};
use lockwell::conformance::{Harness, Need, skipping_clock};
use lockwell::testing::{TestClock, TestServer};
use lockwell::{Locks, Result};

use super::targets::Started;

#[derive(Debug)]
struct Double(TestServer);

#[allow(clippy::unnecessary_wraps)] // As for all backends.
pub(crate) fn start() -> Started {
    let clock = TestClock::of(&skipping_clock()).expect("a clock for tests");
    Ok(Arc::new(Double(TestServer::with_clock(clock))))
}

#[async_trait]
impl Harness for Double {
    fn offers(&self) -> Vec<Need> {
        super::memory::offers()
    }

    fn clock(&self) -> Clock {
        self.0.clock().clock()
    }

    async fn client(&self) -> Result<Locks> {
        self.0.locks()
    }
}
