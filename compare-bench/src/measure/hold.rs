//! How long a holder keeps its lock.

use std::thread;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::error::Result;

/// Holds for this time. Not with a timer of the runtime, which counts in milliseconds: with it, a hold of
/// 1 ms takes 2 ms.
pub(crate) async fn held(hold: Duration) -> Result<()> {
    if !hold.is_zero() {
        spawn_blocking(move || thread::sleep(hold)).await?;
    }
    Ok(())
}
