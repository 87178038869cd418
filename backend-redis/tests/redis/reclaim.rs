//! Holders whose grants a server has forgotten reclaim their locks in its grace period.

use std::time::Duration;

use lockwell_core::{ErrorKind, Grant, LockGuard, Locks, Renewal};
use testbed::Redis;

use crate::servers::{client, redis, soon, tell, until};

/// No lease ends while a test runs, and no grace period.
const LONG: Duration = Duration::from_secs(60);

/// A client of a server that grants locks.
async fn open(server: &Redis) -> Locks {
    let locks = client(&format!("{}?durability=grace&longest_ttl=60s", server.url())).await;
    locks.end_grace().await.expect("it grants locks");
    locks
}

/// The server becomes a replica and a master again. It keeps all keys, and its history is another.
async fn promote(server: &Redis) {
    tell(server, &["REPLICAOF", "127.0.0.1", "1"]);
    tell(server, &["REPLICAOF", "NO", "ONE"]);
    // Until connections notice it.
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

/// What the renewal of each says, in words.
async fn renewed(locks: &Locks, grants: &[&Grant]) -> Vec<&'static str> {
    let word = |renewal: &Renewal| match renewal {
        Renewal::Renewed(_) => "renewed",
        Renewal::Lost => "lost",
        _ => "unknown",
    };
    let grants: Vec<_> = grants.iter().map(|grant| (*grant).clone()).collect();
    // The first may only find out that the connection leads to another server by now.
    locks.backend().renew(&grants, soon()).await;
    locks.backend().renew(&grants, soon()).await.iter().map(word).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_has_forgotten_is_reclaimed_in_each_mode() {
    let Some(server) = redis().await else { return };
    let locks = open(&server).await;
    let alone = locks.lock("alone").ttl(LONG).await.expect("a free lock");
    let readers = [locks.read("read").ttl(LONG).await, locks.read("read").ttl(LONG).await];
    let permits = [locks.permit("two", 2).ttl(LONG).await, locks.permit("two", 2).ttl(LONG).await];
    let writer = locks.write("down").ttl(LONG).await.expect("a free lock");
    let shared: Vec<_> = readers.into_iter().chain(permits).map(|one| one.expect("a free lock")).collect();
    let grants: Vec<_> = std::iter::once(&alone).chain(&shared).map(LockGuard::grant).collect();
    promote(&server).await;
    tell(&server, &["FLUSHALL"]);
    assert_eq!(renewed(&locks, &grants).await, ["renewed"; 5]);
    // A second one within the period.
    promote(&server).await;
    tell(&server, &["FLUSHALL"]);
    for _ in 0..2 {
        assert_eq!(renewed(&locks, &grants).await, ["renewed"; 5]);
    }
    let reader = writer.downgrade().await.expect("held");
    for (name, many) in [("alone", 1), ("read", 2), ("two", 2), ("down", 1)] {
        let status = locks.inspect(name).await.expect("an answer");
        assert_eq!(status.holders.len(), many, "{status:?}");
        assert!(status.holders.iter().all(|holder| holder.token > lockwell_core::FencingToken::new(1 << 40)));
    }
    reader.release().await.expect("held");
    alone.release().await.expect("held");
    for guard in shared {
        guard.release().await.expect("held");
    }
}

/// The server has an old copy of the data: locks of others, who have released them since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_records_give_way() {
    let Some(server) = redis().await else { return };
    let locks = open(&server).await;
    let old = ["alone", "read", "mixed"].map(|name| locks.lock(name).ttl(LONG));
    let mut guards = Vec::new();
    for request in old {
        guards.push(request.await.expect("a free lock"));
    }
    let permit = locks.permit("one", 1).ttl(LONG).await.expect("a free permit");
    let reader = locks.read("write").ttl(LONG).await.expect("a free lock");
    for name in ["alone", "read", "mixed", "one", "write"] {
        for key in ["", "\u{1f}members\u{1f}", "\u{1f}details\u{1f}"] {
            let lock = format!("lockwell:{key}{name}");
            let copy = "local saved = redis.call('DUMP', KEYS[1]) \
                        if saved then redis.call('RESTORE', KEYS[2], math.max(0, redis.call('PTTL', KEYS[1])), saved) end";
            tell(&server, &["EVAL", copy, "2", &lock, &format!("saved:{lock}")]);
        }
    }
    let stale: Vec<_> = guards.iter().map(|guard| guard.grant().clone()).collect();
    // Not by a release, after which they would not be reclaimed.
    for name in ["alone", "read", "mixed"] {
        tell(&server, &["DEL", &format!("lockwell:{name}")]);
    }
    permit.release().await.expect("held");
    reader.release().await.expect("held");
    let alone = locks.lock("alone").ttl(LONG).await.expect("a free lock");
    let read = locks.read("read").ttl(LONG).await.expect("a free lock");
    let permit = locks.permit("one", 1).ttl(LONG).await.expect("a free permit");
    let writer = locks.write("write").ttl(LONG).await.expect("a free lock");
    promote(&server).await;
    for name in ["alone", "read", "mixed", "one", "write"] {
        for key in ["", "\u{1f}members\u{1f}", "\u{1f}details\u{1f}"] {
            let lock = format!("lockwell:{key}{name}");
            tell(&server, &["DEL", &lock]);
            server.command(&["RENAME", &format!("saved:{lock}"), &lock]).expect("an answer");
        }
    }
    // Nobody knows whether the one who has the permit is alive, so there is no second one.
    let grants = [alone.grant(), read.grant(), writer.grant(), permit.grant()];
    assert_eq!(renewed(&locks, &grants).await, ["renewed", "renewed", "renewed", "unknown"]);
    assert_eq!(locks.inspect("one").await.expect("an answer").holders.len(), 1);
    // Its lease ends.
    tell(&server, &["DEL", "lockwell:one"]);
    assert_eq!(renewed(&locks, &grants).await, ["renewed"; 4]);
    // Who is late does not take a lock from a later holder.
    assert_eq!(renewed(&locks, &stale.iter().collect::<Vec<_>>()).await, ["lost", "lost", "renewed"]);
    for guard in [alone, read, permit, writer] {
        guard.release().await.expect("held");
    }
}

/// It had the records before, so they are no more than what it had memory for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_takes_in_what_it_has_forgotten() {
    let Some(server) = redis().await else { return };
    let locks = open(&server).await;
    let alone = locks.lock("alone").ttl(LONG).await.expect("a free lock");
    let reader = locks.read("read").ttl(LONG).await.expect("a free lock");
    promote(&server).await;
    tell(&server, &["FLUSHALL"]);
    tell(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    tell(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    // Each in a call of its own: nothing before it has written.
    for guard in [&alone, &reader] {
        assert_eq!(renewed(&locks, &[guard.grant()]).await, ["renewed"]);
    }
    for guard in [alone, reader] {
        guard.release().await.expect("held");
    }
}

/// A renewal that is on its way when the lock is released finds no record either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_released_is_not_reclaimed() {
    let Some(server) = redis().await else { return };
    let locks = open(&server).await;
    for share in [false, true] {
        let guard = if share { locks.read("a").ttl(LONG).await } else { locks.lock("a").ttl(LONG).await };
        let guard = guard.expect("a free lock");
        let grant = guard.grant().clone();
        guard.release().await.expect("held");
        promote(&server).await;
        assert_eq!(renewed(&locks, &[&grant]).await, ["lost"]);
        assert!(!locks.inspect("a").await.expect("an answer").is_held(), "nobody would release it");
        // The next turn is not in the grace period of this one.
        locks.end_grace().await.expect("it grants locks");
    }
}

/// The server has the record of the writer that one of two readers was. The other one comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_became_a_reader_stays_one() {
    let Some(server) = redis().await else { return };
    let locks = open(&server).await;
    let writer = locks.write("a").ttl(LONG).await.expect("a free lock");
    server.command(&["COPY", "lockwell:a", "saved"]).expect("an answer");
    let one = writer.downgrade().await.expect("held");
    let other = locks.read("a").ttl(LONG).await.expect("readers meet");
    promote(&server).await;
    tell(&server, &["DEL", "lockwell:a", "lockwell:\u{1f}members\u{1f}a", "lockwell:\u{1f}details\u{1f}a"]);
    server.command(&["RENAME", "saved", "lockwell:a"]).expect("an answer");
    assert_eq!(renewed(&locks, &[one.grant()]).await, ["renewed"]);
    assert_eq!(renewed(&locks, &[other.grant()]).await, ["renewed"]);
    let status = locks.inspect("a").await.expect("an answer");
    assert_eq!(status.holders.len(), 2, "a writer could be granted the lock beside one of them: {status:?}");
    for guard in [one, other] {
        guard.release().await.expect("held");
    }
}

/// Whether the server knows the holder, has forgotten it, or has another one in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_stands() {
    let Some(server) = redis().await else { return };
    let locks = open(&server).await;
    let known = locks.lock("known").ttl(LONG).await.expect("a free lock");
    let before = locks.lock("before").ttl(LONG).await.expect("a free lock");
    let forgotten = locks.lock("forgotten").ttl(LONG).await.expect("a free lock");
    assert_eq!(locks.force_release("before").await.expect("an answer"), 1);
    let after = locks.lock("before").ttl(LONG).await.expect("a free lock");
    promote(&server).await;
    for name in ["lockwell:forgotten", "lockwell:before"] {
        tell(&server, &["DEL", name]);
    }
    assert_eq!(renewed(&locks, &[before.grant()]).await, ["lost"]);
    assert_eq!(renewed(&locks, &[after.grant()]).await, ["renewed"]);
    for (name, freed) in [("known", 1), ("forgotten", 0)] {
        assert_eq!(locks.force_release(name).await.expect("an answer"), freed);
    }
    // Also if there is another failover.
    for _ in 0..2 {
        assert_eq!(renewed(&locks, &[known.grant(), forgotten.grant()]).await, ["lost"; 2]);
        promote(&server).await;
    }
    let error = locks.backend().downgrade(forgotten.grant()).await.expect_err("it was freed");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    after.release().await.expect("held");
}

/// Its answer comes from the data of its new master, and the connection was good a moment ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_does_not_say_that_a_lock_is_lost() {
    let (Some(server), Some(other)) = (redis().await, redis().await) else { return };
    let locks = open(&server).await;
    let guard = locks.lock("a").ttl(LONG).await.expect("a free lock");
    tell(&server, &["REPLICAOF", "127.0.0.1", &other.addr().port().to_string()]);
    until("it has the data of the other", || tell(&server, &["EXISTS", "lockwell:a"]).starts_with(":0"))
        .await;
    let renewals = locks.backend().renew(&[guard.grant().clone()], soon()).await;
    assert!(matches!(&*renewals, [Renewal::Unknown(_)]), "{renewals:?}");
}
