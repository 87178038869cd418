//! Servers and clients for the tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{LockGuard, LockRequest, Locks, Moment};
use lockwell_zk::ZkLock;
use testbed::{Durability, Options, ZooKeeper, ZooKeeperEnsemble, if_installed};
use tokio::task::JoinHandle;

/// A folder in memory where there is one.
fn folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

pub(crate) fn options() -> Options {
    Options::new()
        .durability(Durability::OsCache)
        .parent(folder())
        .setting("tickTime", "200")
        .setting("maxSessionTimeout", "90000")
}

/// A server, or `None`, with a word why, where it is not installed.
pub(crate) async fn single(options: &Options) -> Option<ZooKeeper> {
    if_installed(ZooKeeper::start_with(options).await)
}

/// Three servers that can be cut off from each other.
pub(crate) async fn ensemble(options: &Options) -> Option<ZooKeeperEnsemble> {
    if_installed(ZooKeeperEnsemble::start_with_links(3, options).await)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn url(addr: SocketAddr) -> String {
    format!("zk://{addr}")
}

/// A client, and the backend behind it.
pub(crate) async fn connect(url: &str) -> (Locks, Arc<ZkLock>) {
    let lock = Arc::new(ZkLock::connect(&url.parse().expect("an address")).await.expect("a client"));
    // These tests are about the queue of the server.
    let locks = Locks::new(Arc::clone(&lock) as Arc<_>).expect("a keeper").server_order();
    (locks, lock)
}

pub(crate) async fn client(url: &str) -> Locks {
    connect(url).await.0
}

/// A client that asks for sessions of at least ten seconds. A session that has moved counts for this shortest
/// time until the servers have answered. With the default, a second, a busy machine could lose it meanwhile.
pub(crate) async fn lasting(url: &str) -> Locks {
    let more = if url.contains('?') { "&" } else { "?" };
    client(&format!("{url}{more}session=10s")).await
}

pub(crate) async fn hold(locks: &Locks, name: &str) -> LockGuard {
    locks.lock(name).wait(Duration::from_secs(20)).await.expect("a free lock")
}

/// Waits in a task of its own, which says when its turn came.
pub(crate) fn heir(request: LockRequest) -> JoinHandle<(Moment, LockGuard)> {
    tokio::spawn(async move {
        let guard = request.await.expect("its turn comes");
        (Moment::now(), guard)
    })
}

/// Waits until so many stand in the queue.
pub(crate) async fn queued(locks: &Locks, name: &str, waiters: usize) {
    let end = Moment::now().after(Duration::from_secs(30));
    while locks.inspect(name).await.expect("an answer").waiters != waiters {
        assert!(!end.has_passed(), "not {waiters} in the queue: {:?}", locks.inspect(name).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
