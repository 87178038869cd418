//! Servers on which locks cannot work, or not safely.

use std::time::{Duration, Instant};

use lockwell_core::{Error, ErrorKind, LockRequest, Locks};
use testbed::{Options, Proxy, Redis};

use crate::logs;
use crate::servers::{
    backend, client, in_memory, is_redis_7, keys, on_disk, redis, redis_with, refusal, soon, tell, until,
};

fn assert_is(error: &Error, kind: ErrorKind, part: &str) {
    assert_eq!(error.kind(), kind, "{error:#}");
    assert!(error.to_string().contains(part), "{part:?}: {error:#}");
}

/// A key that holds something else is left as it is, and no other lock suffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_holds_something_else() {
    let Some(server) = redis().await else { return };
    tell(&server, &["HSET", "lockwell:hash", "8f1a:1", "1"]);
    tell(&server, &["RPUSH", "lockwell:list", "x"]);
    tell(&server, &["SADD", "lockwell:set", "x"]);
    let locks = client(&server.url()).await;
    let others: Vec<_> = (0..20).map(|n| tokio::spawn(locks.lock(format!("{n}")).into_future())).collect();
    for name in ["hash", "list", "set"] {
        let text = "not a plain lock: another program's data, or a lock of Redisson";
        let error = locks.lock(name).try_now().await.expect_err("no lock");
        assert_is(&error, ErrorKind::KindClash, text);
        assert!(
            !error.is_retryable() && error.to_string().contains(&format!("acquire {name:?}")),
            "{error:#}"
        );
        let error = locks.lock(name).wait(Duration::from_secs(2)).await.expect_err("no lock");
        assert_is(&error, ErrorKind::KindClash, text);
        assert_is(&locks.inspect(name).await.expect_err("no lock"), ErrorKind::KindClash, text);
        assert_is(&locks.force_release(name).await.expect_err("no lock"), ErrorKind::KindClash, text);
    }
    for other in others {
        other.await.expect("no panic").expect("a free lock").release().await.expect("held");
    }
    let guard = locks.lock("later").await.expect("a free lock");
    tell(&server, &["DEL", "lockwell:later"]);
    tell(&server, &["RPUSH", "lockwell:later", "x"]);
    let error = guard.release().await.expect_err("no lock");
    assert_is(&error, ErrorKind::KindClash, "not a plain lock");
    assert_eq!(keys(&server), ["lockwell:hash", "lockwell:later", "lockwell:list", "lockwell:set"]);
}

#[tokio::test]
async fn a_token_counter_that_holds_something_else() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    for command in ["SET", "SADD"] {
        for request in [locks.lock("a"), locks.read("a")] {
            tell(&server, &["DEL", "lockwell:\u{1f}token"]);
            tell(&server, &[command, "lockwell:\u{1f}token", "x"]);
            let error = request.await.expect_err("no token");
            assert_is(&error, ErrorKind::Misconfigured, "keys beside the lock holds something else");
            assert_eq!(keys(&server), [""; 0]);
        }
        tell(&server, &["DEL", "lockwell:\u{1f}token"]);
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica() {
    let Some(master) = redis().await else { return };
    let replica = Redis::start_replica(master.addr(), &in_memory()).await.expect("a replica");
    let error = refusal(&replica.url()).await;
    assert_is(&error, ErrorKind::Misconfigured, "a replica, and read only: connect to its master");
    let nodes = format!("127.0.0.1:1,{},{}", master.addr(), replica.addr());
    let error = refusal(&format!("redlock://{nodes}")).await;
    assert_is(&error, ErrorKind::Misconfigured, "a node is a replica");
    let error = refusal(&format!("{}?strict=true", master.url())).await;
    assert_is(&error, ErrorKind::Misconfigured, "it has replicas");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_becomes_a_replica() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let guard = locks.lock("held").await.expect("a free lock");
    tell(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let now = locks.lock("a").try_now().await.expect_err("read only");
    let later = locks.lock("a").await.expect_err("read only");
    for error in [now, later] {
        assert_is(&error, ErrorKind::Misconfigured, "read only: is it a replica?");
    }
    let error = guard.release().await.expect_err("read only");
    assert_is(&error, ErrorKind::Misconfigured, "read only: is it a replica?");
    assert!(locks.inspect("held").await.expect("an answer").is_held());
    tell(&server, &["REPLICAOF", "NO", "ONE"]);
    locks.lock("a").await.expect("it writes again").release().await.expect("held");
    until("the keeper frees what could not be released", || keys(&server).is_empty()).await;
}

/// The address leads to the new master by now, and the old one goes on answering on the connections that it
/// has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_master_that_has_become_a_replica_is_replaced() {
    let requests: [fn(&Locks) -> LockRequest; 2] = [|locks| locks.lock("a"), |locks| locks.read("a")];
    for request in requests {
        let (Some(old), Some(new)) = (redis().await, redis().await) else { return };
        let proxy = Proxy::start(old.addr()).await.expect("a proxy");
        let locks = client(&old.url_via(proxy.addr())).await;
        request(&locks).await.expect("a free lock").release().await.expect("held");
        tell(&old, &["REPLICAOF", "127.0.0.1", "1"]);
        proxy.redirect(new.addr());
        let error = request(&locks).try_now().await.expect_err("read only");
        assert_is(&error, ErrorKind::Misconfigured, "read only: is it a replica?");
        let guard = request(&locks).try_now().await.expect("the new master").expect("a free lock");
        assert!(keys(&new).contains(&"lockwell:a".to_owned()), "{:?}", keys(&new));
        guard.release().await.expect("held");
    }
}

/// A server that takes three seconds to load its data.
async fn slow_loader() -> Option<Redis> {
    // For the tests of Redis itself: a pause at each key in microseconds, and after how many bytes it looks
    // at its clients.
    if !is_redis_7("pauses while it loads") {
        return None;
    }
    let options = in_memory()
        .setting("key-load-delay", "3000")
        .setting("loading-process-events-interval-bytes", "1024")
        .setting("rdbcompression", "no");
    let server = redis_with(&options).await?;
    tell(&server, &["EVAL", "for i = 1, 1000 do redis.call('SET', i, string.rep('x', 500)) end", "0"]);
    tell(&server, &["SAVE"]);
    server.kill().expect("it ends");
    Some(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_loading() {
    let Some(server) = slow_loader().await else { return };
    let restart = tokio::spawn({
        let server = server.clone();
        async move { server.restart().await }
    });
    let loading = || server.command(&["GET", "x"]).is_ok_and(|answer| answer.starts_with("-LOADING"));
    until("it is loading", loading).await;
    let start = Instant::now();
    let error = refusal(&format!("{}?timeout=500ms", server.url())).await;
    assert_is(&error, ErrorKind::Unreachable, "Redis is still loading its data");
    assert!(error.is_retryable() && start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // One that waits for longer sees the end of it.
    let locks = client(&format!("{}?timeout=30s", server.url())).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    restart.await.expect("no panic").expect("it starts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_memory_is_full() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let guard = locks.lock("held").await.expect("a free lock");
    tell(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let now = locks.lock("a").try_now().await.expect_err("full");
    let later = locks.lock("a").await.expect_err("full");
    for error in [now, later] {
        assert_is(&error, ErrorKind::Misconfigured, "has reached its maxmemory");
    }
    assert!(locks.inspect("held").await.expect("an answer").is_held());
    let renewal =
        backend(&server.url()).await.expect("a connection").renew(&[guard.grant().clone()], soon()).await;
    assert!(matches!(renewal[0], lockwell_core::Renewal::Renewed(_)), "{renewal:?}");
    assert_eq!(keys(&server), ["lockwell:held"]);
    guard.release().await.expect("a release needs no memory");
    assert_eq!(keys(&server), [""; 0]);
}

/// What the start-up check says of such a server: a warning, or with `strict=true` a refusal.
async fn doubted(options: &Options, part: &str) {
    logs::keep();
    let Some(server) = redis_with(options).await else { return };
    let port = server.addr().port().to_string();
    drop(client(&format!("{}?accept_loss=true", server.url())).await);
    assert!(!logs::has("WARN", &["may lose locks", &port]), "{part}: {:#?}", logs::lines());
    let locks = client(&server.url()).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    assert!(logs::has("WARN", &["may lose locks", part, &port]), "{part}: {:#?}", logs::lines());
    let error = refusal(&format!("{}?strict=true", server.url())).await;
    assert_is(&error, ErrorKind::Misconfigured, part);
    assert!(error.to_string().contains("strict=true"), "{error:#}");
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_server_that_may_lose_locks() {
    for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"] {
        let options = on_disk().setting("maxmemory", "100mb").setting("maxmemory-policy", policy);
        // Records have no end of life.
        let records = if policy.starts_with("allkeys") { ", and the records of locks" } else { "" };
        let doubt =
            format!("maxmemory-policy lets it evict locks that are held{records}: set it to noeviction");
        doubted(&options, &doubt).await;
    }
    doubted(&in_memory(), "no append-only file: locks and queues are lost when it restarts").await;
    for (setting, value) in [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes")] {
        doubted(&on_disk().setting(setting, value), "it answers before its change is on the disk").await;
    }
}

#[tokio::test]
async fn a_server_without_doubt() {
    logs::keep();
    // A policy without a limit evicts nothing.
    for options in [on_disk(), on_disk().setting("maxmemory-policy", "allkeys-lru")] {
        let Some(server) = redis_with(&options).await else { return };
        backend(&format!("{}?strict=true", server.url())).await.expect("no doubt");
        assert!(!logs::has("WARN", &[&format!("{}", server.addr().port())]));
    }
}

#[tokio::test]
async fn a_server_that_cannot_write_to_its_disk() {
    let Some(server) = redis_with(&in_memory().setting("dbfilename", "dump.rdb")).await else { return };
    tell(&server, &["CONFIG", "SET", "save", "3600 1"]);
    let locks = client(&server.url()).await;
    let guard = locks.lock("held").await.expect("a free lock");
    // Its snapshot cannot take the place of a folder.
    std::fs::create_dir(server.folder().join("data/dump.rdb")).expect("a folder");
    tell(&server, &["BGSAVE"]);
    until("the snapshot fails", || tell(&server, &["INFO"]).contains("rdb_last_bgsave_status:err")).await;
    let error = locks.lock("a").await.expect_err("refused");
    assert_is(&error, ErrorKind::Misconfigured, "cannot write to its disk");
    assert_is(
        &guard.release().await.expect_err("refused"),
        ErrorKind::Misconfigured,
        "cannot write to its disk",
    );
    assert_eq!(keys(&server), ["lockwell:held"]);
    tell(&server, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    until("the keeper frees it", || keys(&server).is_empty()).await;
}

#[tokio::test]
async fn a_server_that_demands_replicas() {
    if !is_redis_7("min-replicas-to-write for scripts") {
        return;
    }
    let Some(server) = redis_with(&in_memory().setting("min-replicas-to-write", "1")).await else { return };
    let locks = client(&server.url()).await;
    let error = locks.lock("a").await.expect_err("refused");
    assert_is(&error, ErrorKind::Misconfigured, "fewer replicas than it demands");
    assert_eq!(tell(&server, &["DBSIZE"]), ":0\r\n");
}

/// Somebody's endless script holds all others up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy() {
    let Some(server) = redis_with(&in_memory().setting("lua-time-limit", "20")).await else { return };
    // Each request has the time for several tries, also on a busy machine.
    let locks = client(&format!("{}?timeout=4s", server.url())).await;
    let script = std::thread::spawn({
        let server = server.clone();
        move || server.command(&["EVAL", "while true do end", "0"])
    });
    let busy = || server.command(&["GET", "x"]).is_ok_and(|answer| answer.starts_with("-BUSY"));
    until("it is busy", busy).await;
    let error = locks.lock("a").await.expect_err("busy");
    assert_is(&error, ErrorKind::Unreachable, "SCRIPT KILL");
    assert!(error.is_retryable());
    let error = refusal(&format!("{}?timeout=3s", server.url())).await;
    assert_is(&error, ErrorKind::Unreachable, "SCRIPT KILL");
    let waiting = tokio::spawn(locks.lock("b").into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    tell(&server, &["SCRIPT", "KILL"]);
    waiting.await.expect("no panic").expect("it goes on").release().await.expect("held");
    assert!(script.join().expect("no panic").expect("an answer").starts_with('-'));
    until("nothing is left", || keys(&server).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_clients() {
    let Some(server) = redis_with(&in_memory().setting("maxclients", "3")).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let three = client(&server.url()).await;
    let error = refusal(&format!("{}?timeout=500ms", server.url())).await;
    assert_is(&error, ErrorKind::Unreachable, "maxclients");
    assert!(error.is_retryable());
    one.close().await.expect("nothing is left");
    let late = client(&server.url()).await;
    late.lock("a").await.expect("a free lock").release().await.expect("held");
    drop((two, three));
}

/// As some providers have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_info_is_not_checked() {
    let Some(server) = redis_with(&in_memory().setting("rename-command INFO", "hidden")).await else {
        return;
    };
    let locks = client(&server.url()).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    let findings = locks.backend().examine().await.expect("an answer");
    assert!(findings.iter().any(|one| one.message.contains("INFO is not to be had")), "{findings:?}");
    let error = refusal(&format!("{}?strict=true", server.url())).await;
    assert_is(&error, ErrorKind::Refused, "INFO and CONFIG GET");
}
