//! Lock clients that cannot be run here, by the commands that they send: redsync and bsm/redislock of Go, and
//! Redisson.

use std::time::{Duration, Instant};

use lockwell_core::ErrorKind;
use testbed::Redis;

use crate::servers::{client, keys, redis, tell};

/// A client that keeps a plain string and compares it before it changes or deletes it.
struct Other {
    /// Random, of the client's own form.
    value: &'static str,
    take: fn(&Redis, &str, &str) -> bool,
}

/// 16 random bytes in base64; `SET NX`.
const REDSYNC: Other = Other {
    value: "kBvGlWZ7p3YxT0eHjN4cQw==",
    take: |server, key, value| tell(server, &["SET", key, value, "NX", "PX", "20000"]) == "+OK\r\n",
};

/// A token of 22 characters and a text of the user behind it; `MSETNX`, and a value with the same token is
/// taken over.
const REDISLOCK: Other = Other {
    value: "Xq3mVt0aRk9sLw2ZbN8yJgmetadata",
    take: |server, key, value| {
        let script = "local free = redis.call('MSETNX', KEYS[1], ARGV[1]) == 1
            if not free and redis.call('GETRANGE', KEYS[1], 0, 21) ~= string.sub(ARGV[1], 1, 22) then return 0 end
            redis.call('MSET', KEYS[1], ARGV[1])
            return redis.call('PEXPIRE', KEYS[1], 20000)";
        tell(server, &["EVAL", script, "1", key, value]) == ":1\r\n"
    },
};

impl Other {
    /// Releases or extends what is its own.
    fn change(&self, server: &Redis, key: &str, change: &str) -> bool {
        let script = format!(
            "if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then return 0 end return redis.call({change})"
        );
        tell(server, &["EVAL", &script, "1", key, self.value]) == ":1\r\n"
    }

    fn release(&self, server: &Redis, key: &str) -> bool {
        self.change(server, key, "'DEL', KEYS[1]")
    }

    fn extend(&self, server: &Redis, key: &str) -> bool {
        self.change(server, key, "'PEXPIRE', KEYS[1], 60000")
    }
}

async fn they_exclude_each_other(other: Other) {
    let Some(server) = redis().await else { return };
    let locks = client(&format!("{}?namespace=", server.url())).await;
    // However we hold it, the other is refused, and changes nothing.
    for request in [locks.lock("a"), locks.read("a"), locks.permit("a", 2)] {
        let guard = request.ttl(Duration::from_secs(10)).await.expect("a free lock");
        assert!(!(other.take)(&server, "a", other.value));
        assert!(!other.extend(&server, "a") && !other.release(&server, "a"));
        let left = locks.inspect("a").await.expect("an answer").holders[0].ttl_left;
        assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(10), "{left:?}");
        guard.release().await.expect("untouched");
        assert!(keys(&server).is_empty());
    }
    // While it holds the lock, claims of ours are refused, and it is shown.
    assert!((other.take)(&server, "a", other.value));
    for request in [locks.lock("a"), locks.read("a")] {
        assert!(request.try_now().await.expect("an answer").is_none());
    }
    let error = locks.permit("a", 2).try_now().await.expect_err("a lock is no semaphore");
    assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
    let status = locks.inspect("a").await.expect("an answer");
    assert_eq!(status.holders[0].label, "another program");
    assert!(!format!("{status:?}").contains(&other.value[..8]), "{status:?}");
    assert!(other.extend(&server, "a"), "it is still its own");
    // Its release sends no notification, so the first waiter polls.
    let waiting = tokio::spawn(locks.lock("a").into_future());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(other.release(&server, "a"));
    let begun = Instant::now();
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(keys(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redsync() {
    they_exclude_each_other(REDSYNC).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bsm_redislock() {
    they_exclude_each_other(REDISLOCK).await;
}

/// Redisson keeps a hash: each sees an error in place of the other's lock, and leaves it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson() {
    let Some(server) = redis().await else { return };
    let locks = client(&format!("{}?namespace=", server.url())).await;
    let asks = |key: &str| server.command(&["HEXISTS", key, "8f1a:1"]).expect("an answer");
    for request in [locks.lock("a"), locks.read("a"), locks.permit("a", 2)] {
        let guard = request.await.expect("a free lock");
        assert!(asks("a").starts_with("-WRONGTYPE"), "{}", asks("a"));
        guard.release().await.expect("held");
    }
    tell(&server, &["HINCRBY", "a", "8f1a:1", "1"]);
    tell(&server, &["PEXPIRE", "a", "30000"]);
    for request in [locks.lock("a"), locks.read("a"), locks.permit("a", 2)] {
        let error = request.wait(Duration::from_secs(2)).await.expect_err("no lock");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
        assert!(error.to_string().contains("Redisson") && !error.is_retryable(), "{error:#}");
    }
    assert_eq!(asks("a"), ":1\r\n");
}
