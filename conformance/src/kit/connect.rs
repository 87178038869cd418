//! How clients connect, and why a target cannot be tested.

use std::pin::Pin;
use std::sync::Arc;

use lockwell_core::{Locks, Result};

/// How a client connects to an address.
pub(super) type Connect = Arc<dyn Fn(String) -> Connecting + Send + Sync>;

pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<Locks>> + Send>>;

/// The reason why a target cannot be tested here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Missing {
    /// Its server is not installed. Its cases are ignored, or fail with `LOCKWELL_REQUIRE_SERVERS=1`.
    NotInstalled(String),
    /// It did not start. Its cases fail.
    Broken(String),
}
