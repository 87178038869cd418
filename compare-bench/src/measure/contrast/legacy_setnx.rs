//! The recipe that Redis's documentation once had: SETNX of the time at which the lease ends, by the clock of
//! the client.
//!
//! It fails to exclude in two cases: if the clocks of clients differ by more than what is left of a lease,
//! and if a holder is late: its DEL then removes the key of the next holder.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockwell::backend::ServerUrl;
use peer_common::{Library, Result, one};
use redis::aio::MultiplexedConnection;

use crate::measure::floor::redis::links;

/// The length of a lease, in milliseconds.
const LEASE: u64 = 10_000;

/// The pause between two polls of a waiter.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(super) struct LegacySetnx {
    link: MultiplexedConnection,
    lease: u64,
}

impl LegacySetnx {
    async fn try_once(&self, key: &str) -> Result<bool> {
        let mut link = self.link.clone();
        let ends = || now() + self.lease;
        if redis::cmd("SETNX").arg(key).arg(ends()).query_async::<u64>(&mut link).await? == 1 {
            return Ok(true);
        }
        let seen: Option<u64> = redis::cmd("GET").arg(key).query_async(&mut link).await?;
        if seen.is_none_or(|ends| ends >= now()) {
            return Ok(false);
        }
        let before: Option<u64> = redis::cmd("GETSET").arg(key).arg(ends()).query_async(&mut link).await?;
        Ok(before.is_none_or(|ends| ends < now()))
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn key(name: &str) -> String {
    format!("compare_contrast/{name}")
}

impl Library for LegacySetnx {
    type Held = String;

    async fn connect(urls: &[&str]) -> Result<Self> {
        let url: ServerUrl = one(urls)?.parse()?;
        let link = links(&url).await?.into_iter().next().ok_or("the address names no host")?;
        Ok(Self { link, lease: LEASE })
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn setup(&self) -> String {
        "SETNX of the time at which the lease of 10 s ends, GETSET when it has passed, DEL to release; asks every 10 ms; one connection".to_owned()
    }

    fn lacks(&self) -> &'static str {
        "order, fencing tokens, a wait without polling"
    }

    async fn acquire(&self, name: &str) -> Result<String> {
        let key = key(name);
        while !self.try_once(&key).await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(name.to_owned())
    }

    async fn release(&self, name: String) -> Result<()> {
        Ok(redis::cmd("DEL").arg(key(&name)).query_async(&mut self.link.clone()).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The late release of a holder lets a third one take the lock beside the second.
    #[tokio::test]
    async fn two_hold_it_at_once() {
        let Some(server) = testbed::if_installed(testbed::Redis::start().await) else { return };
        let url = server.url();
        let slow = LegacySetnx { lease: 1, ..LegacySetnx::connect(&[&url]).await.unwrap() };
        let others = LegacySetnx::connect(&[&url]).await.unwrap();
        let held = slow.acquire("it").await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        others.acquire("it").await.unwrap();
        assert!(!others.try_once(&key("it")).await.unwrap(), "the second has it");
        slow.release(held).await.unwrap();
        assert!(others.try_once(&key("it")).await.unwrap(), "and a third one, too");
    }
}
