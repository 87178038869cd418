//! The servers and the clients of these tests. Every test has servers of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwell_core::{DistributedLock, Error, Locks, Result, ServerUrl};
use lockwell_redis::{RedisLock, Redlock};
use testbed::{Durability, Family, Options, Redis, Release, cannot_run, if_installed};

/// A server that keeps all in memory. `None` where the program is not installed.
pub(crate) async fn redis() -> Option<Redis> {
    redis_with(&in_memory()).await
}

/// A server with these options. `None` where the program is not installed.
pub(crate) async fn redis_with(options: &Options) -> Option<Redis> {
    if_installed(Redis::start_with(options).await)
}

/// Options of a server that keeps all in memory.
pub(crate) fn in_memory() -> Options {
    Options::new().durability(Durability::Fast).parent(parent())
}

/// Options of a server that writes every change to its files before it answers: one that may vote from its
/// start.
pub(crate) fn on_disk() -> Options {
    Options::new().durability(Durability::Disk).parent(parent())
}

/// Where the servers have their folders.
fn parent() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// The address of a Redlock over these nodes.
pub(crate) fn redlock_url(nodes: &[Redis]) -> String {
    let hosts: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
    format!("redlock://{}", hosts.join(","))
}

/// The backend that the scheme of the address names. A new group of servers grants nothing for a while, so
/// they are trusted to keep each grant if the address does not say for how long.
pub(crate) async fn backend(url: &str) -> Result<Arc<dyn DistributedLock>> {
    let mut url = url.to_owned();
    let is_group = ["+sentinel:", "+cluster:"].iter().any(|one| url.contains(one));
    if is_group && !url.contains("longest_ttl=") {
        let sign = if url.contains('?') { '&' } else { '?' };
        url = format!("{url}{sign}durability=server");
    }
    let url: ServerUrl = url.parse()?;
    Ok(if url.scheme().starts_with("redlock") {
        Arc::new(Redlock::connect(&url).await?)
    } else {
        Arc::new(RedisLock::connect(&url).await?)
    })
}

/// By when a backend that is asked to renew must answer.
pub(crate) fn soon() -> lockwell_core::Moment {
    lockwell_core::Moment::now().after(std::time::Duration::from_secs(5))
}

/// A client with connections of its own.
pub(crate) async fn client(url: &str) -> Locks {
    // These tests are about the queue of the server.
    Locks::new(backend(url).await.expect("a connection")).expect("a keeper").server_order()
}

/// Why no connection can be made to this address.
pub(crate) async fn refusal(url: &str) -> Error {
    backend(url).await.expect_err("no connection")
}

/// Whether the servers of these tests are of release 6. It cannot be asked for rights, and has no rights to
/// channels.
pub(crate) fn is_redis_6() -> bool {
    Release::chosen(Family::Redis).expect("a release").is_redis_6()
}

/// Whether they know what later releases do. If not, this says so, and the test is to be skipped.
pub(crate) fn is_redis_7(what: &str) -> bool {
    if is_redis_6() {
        cannot_run("", &format!("Redis 6.0 has no {what}"));
    }
    !is_redis_6()
}

/// Sends a command that has to succeed.
pub(crate) fn tell(server: &Redis, words: &[&str]) -> String {
    let is_known = |word: &&str| !(word.starts_with('&') || *word == "resetchannels");
    let words: Vec<_> = match words {
        ["ACL", ..] if is_redis_6() => words.iter().copied().filter(is_known).collect(),
        _ => words.to_vec(),
    };
    let answer = server.command(&words).expect("an answer");
    assert!(!answer.starts_with('-'), "{words:?}: {answer}");
    answer
}

/// All keys of a server but the token counters, which stay by design. In order.
pub(crate) fn keys(server: &Redis) -> Vec<String> {
    let answer = tell(server, &["KEYS", "*"]);
    let lines = answer.split("\r\n").skip(1).filter(|line| !line.is_empty() && !line.starts_with('$'));
    let mut keys: Vec<_> = lines.filter(|key| !key.contains("\u{1f}token")).map(str::to_owned).collect();
    keys.sort();
    keys
}

/// Waits until this is so, or fails after half a minute, which is long enough for a busy machine. The
/// clean-up after a failed call goes on in the background.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within half a minute: {what}");
}
