//! Clients and servers of these tests.

use std::time::{Duration, Instant};

use lockwell_core::{Claim, DistributedLock, Grant, LockName, Locks, Mode, Moment, Result, Wait};
use lockwell_etcd::EtcdLock;
use testbed::{Durability, Etcd, EtcdCluster, Options, if_installed};

/// In memory where there is such a folder: these tests are not about disks.
pub(crate) fn options() -> Options {
    let memory = std::path::Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    Options::new().durability(Durability::OsCache).parent(parent)
}

/// A server, if the program is installed.
pub(crate) async fn server(options: &Options) -> Option<Etcd> {
    if_installed(Etcd::start_with(options).await)
}

/// Three servers, if the program is installed.
pub(crate) async fn cluster() -> Option<EtcdCluster> {
    if_installed(EtcdCluster::start(3, &options()).await)
}

pub(crate) async fn backend(url: &str) -> Result<EtcdLock> {
    EtcdLock::connect(&url.parse()?).await
}

pub(crate) async fn locks(url: &str) -> Result<Locks> {
    // These tests are about the queue of the server.
    Ok(Locks::new(std::sync::Arc::new(backend(url).await?))?.server_order())
}

/// An exclusive claim that does not wait.
pub(crate) fn claim(name: &str, ttl: Duration) -> Claim {
    let name = LockName::new(name).expect("a name");
    Claim::new(name, Mode::Exclusive, ttl, Wait::No, "test".into())
}

/// The same claim, which waits for so long.
pub(crate) fn waiting_claim(name: &str, ttl: Duration, wait: Duration) -> Claim {
    let name = LockName::new(name).expect("a name");
    Claim::new(name, Mode::Exclusive, ttl, Wait::Until(Moment::now().after(wait)), "test".into())
}

/// Takes a free lock.
pub(crate) async fn take(backend: &EtcdLock, name: &str, ttl: Duration) -> Grant {
    let claim = claim(name, ttl);
    backend.acquire(&claim).await.expect("an answer").expect("a free lock")
}

/// Tries until it succeeds: for what has so little time that it may fail on a busy machine.
pub(crate) async fn at_last<T, F: Future<Output = Result<T>>>(attempt: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => assert!(begun.elapsed() < secs(60), "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
