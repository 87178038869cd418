//! The conformance suite: what every backend must do, as a table of named cases.
//!
//! The author of a backend writes a test program whose `main` calls [`main`] with a [`Target`] for each kind
//! of server; `docs/backend.md` has a complete example. If the server is one process, [`Target::on_server`]
//! needs no more code. For other servers the author writes a [`Harness`].
//!
//! Each [`Case`] is an async function over a [`Harness`], which provides one lock server. Only
//! [`client`](Harness::client) is required. The suite runs the [`cases`] whose [needs](Case::needs) the
//! harness [`offers`](Harness::offers), each on a separate multi-threaded tokio runtime. A case that fails
//! panics with a message.
//!
//! ```no_run
//! # use lockwell_core as lockwell;
//! use std::sync::Arc;
//! use lockwell::backend::{MemoryLock, async_trait};
//! use lockwell_conformance::{Harness, Need, cases};
//! use lockwell::{Locks, Result};
//!
//! #[derive(Debug)]
//! struct Memory;
//!
//! #[async_trait]
//! impl Harness for Memory {
//!     fn offers(&self) -> Vec<Need> {
//!         vec![Need::Shared, Need::Permits, Need::Fencing, Need::Fifo, Need::Counted, Need::NamedWaiters]
//!     }
//!     async fn client(&self) -> Result<Locks> {
//!         Locks::new(Arc::new(MemoryLock::named("conformance")))
//!     }
//! }
//!
//! let offers = Memory.offers();
//! for case in cases().iter().filter(|case| case.runs_with(&offers)) {
//!     println!("{}", case.name);
//!     let runtime = tokio::runtime::Runtime::new().unwrap();
//!     runtime.block_on(case.run(Arc::new(Memory)));
//! }
//! ```
//!
//! `tests/conformance.rs` of lockwell runs it on every backend, with real servers and faults.
//!
//! The cases are **not** covered by semantic versioning: a new version may add cases, and a backend may fail
//! a new case.

pub mod canary;
mod cancellation;
mod closing;
mod crash;
mod downgrade;
mod dropping;
mod exclusion;
mod fifo;
mod grace;
mod harness;
pub mod history;
mod holder;
mod hooks;
mod input;
mod inspection;
mod kit;
mod lateness;
mod leading;
mod limits;
mod local;
mod loss;
mod many;
mod modes;
mod names;
mod network;
mod outage;
mod ownership;
mod promises;
mod records;
mod reentrancy;
mod renewal;
mod rest;
mod running;
mod runtimes;
mod secrets;
mod skipping;
mod stage;
mod table;
mod threads;
mod time;
mod tokens;
mod troubled;
mod waiting;
mod workload;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use lockwell_core::async_trait;

pub use harness::{Harness, Link, Need, Server, Way};
pub use holder::{Holder, serve_if_asked};
pub use kit::{CaseRecord, Conclusion, Line, Missing, OneServer, Site, Suite, Target, main};
pub use table::cases;
pub use time::{block, local_runtime, on_a_thread, runtime, skipping_clock};

use stage::Stage;

/// The time limit of a case. A case that hangs fails after this time.
const LIMIT: Duration = Duration::from_secs(90);

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One property that every backend must have.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// Its name: what must hold.
    pub name: &'static str,
    /// The needs that the harness must offer for it.
    pub needs: &'static [Need],
    /// Its subject, such as `waiting`. Cases of one subject stand in one file.
    pub subject: &'static str,
    run: fn(Stage) -> Run,
}

impl Case {
    /// Whether a harness with these offers can run it.
    pub fn runs_with(&self, offers: &[Need]) -> bool {
        self.needs.iter().all(|need| offers.contains(need))
    }

    /// Whether it stops or kills the server, or closes it for a while, so that no other case may use the same
    /// server at the same time.
    pub fn disturbs_the_server(&self) -> bool {
        [Need::Server, Need::Failover, Need::Grace].iter().any(|need| self.needs.contains(need))
    }

    /// Runs it, on the tokio runtime of the caller, which must have several threads. If the harness has a
    /// [clock](Harness::clock) of its own, it must be one of [`runtime`].
    ///
    /// # Panics
    /// If the backend fails the case. The message says what happened.
    pub async fn run(&self, harness: Arc<dyn Harness>) {
        let (clock, name) = (harness.clock(), self.name);
        let run = (self.run)(Stage::new(harness, name));
        hooks::set();
        if skipping::is_system(&clock) {
            // In a task of its own: a backend that blocks its thread does not stop the limit.
            return match clock.timeout(LIMIT, tokio::spawn(run)).await {
                Some(Ok(())) => (),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => panic!("{name} hangs: no end after {LIMIT:?}"),
            };
        }
        let run = async move {
            assert!(clock.timeout(LIMIT, run).await.is_some(), "{name} hangs: no end after {LIMIT:?}");
        };
        // Not on the calling thread, which is not one of those of the clock.
        if let Err(error) = tokio::spawn(run).await {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}
