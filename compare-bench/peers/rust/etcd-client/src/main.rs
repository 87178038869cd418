//! The lock service of etcd, through its client crate, under the workloads of `compare-bench --peers`.

use std::process::ExitCode;

use etcd_client::{Client, LockOptions};
use peer_common::{Library, Place, Pool, Result, pinned};

/// The lease of each key, in seconds. Nothing is held for so long.
const TTL: i64 = 600;

/// The most locks at once.
const MOST: usize = 1024;

#[derive(Clone)]
struct LockService {
    client: Client,
    /// Those that no lock has now: with one lease, two tasks that want one name would both have it.
    leases: Pool<i64>,
}

struct Held {
    key: Vec<u8>,
    lease: i64,
    place: Place,
}

impl Library for LockService {
    type Held = Held;

    async fn connect(urls: &[&str]) -> Result<Self> {
        Ok(Self { client: Client::connect(urls, None).await?, leases: Pool::new(MOST) })
    }

    fn version(&self) -> String {
        pinned(include_str!("../Cargo.toml"), "etcd-client").to_owned()
    }

    fn setup(&self) -> String {
        format!(
            "the lock service of the server (lock, unlock), one Client; a lease of {TTL} s for each lock that is held or \
             waited for, used again"
        )
    }

    fn lacks(&self) -> &'static str {
        "fencing tokens that it hands out; renewal by itself; word of a loss"
    }

    async fn acquire(&self, name: &str) -> Result<Held> {
        let mut client = self.client.clone();
        let grant = async { Ok(client.lease_grant(TTL, None).await?.id()) };
        let (lease, place) = self.leases.take(grant).await?;
        let lock = client.lock(name, Some(LockOptions::new().with_lease(lease))).await?;
        Ok(Held { key: lock.key().to_vec(), lease, place })
    }

    async fn release(&self, Held { key, lease, place }: Held) -> Result<()> {
        self.client.clone().unlock(key).await?;
        self.leases.put(lease, place);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    peer_common::run::<LockService>().await
}
