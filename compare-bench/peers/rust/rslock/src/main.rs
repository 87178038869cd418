//! rslock under the workloads of `compare-bench --peers`.

use std::process::ExitCode;
use std::time::Duration;

use peer_common::{Library, Result, pinned};
use rslock::{Lock, LockManager};

/// The lease. Nothing is held for so long.
const TTL: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Rslock(LockManager);

impl Library for Rslock {
    type Held = Lock;

    async fn connect(urls: &[&str]) -> Result<Self> {
        let manager = LockManager::new(urls.to_vec());
        // Makes the connections. Where the library waits, it would repeat an error for ever inside.
        let own = format!("compare/peer/{}/first", std::process::id());
        let lock = manager.lock(own.as_str(), TTL).await?;
        manager.unlock(&lock).await;
        Ok(Self(manager))
    }

    fn version(&self) -> String {
        pinned(include_str!("../Cargo.toml"), "rslock").to_owned()
    }

    /// As it comes. It offers no other way to wait.
    fn setup(&self) -> String {
        "defaults: 3 tries, up to 200 ms apart at random, and again".to_owned()
    }

    fn lacks(&self) -> &'static str {
        "fencing tokens; order; renewal; word of a loss"
    }

    async fn acquire(&self, name: &str) -> Result<Lock> {
        Ok(self.0.acquire_no_guard(name, TTL).await?)
    }

    async fn release(&self, held: Lock) -> Result<()> {
        self.0.unlock(&held).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<Rslock>().await
}
