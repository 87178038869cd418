//! Addresses that lead nowhere, and passwords that do not open.

use std::time::{Duration, Instant};

use lockwell_core::ErrorKind;
use testbed::{RedisCluster, RedisSentinel, if_installed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::logs;
use crate::servers::{backend, client, in_memory, is_redis_6, keys, redis, redis_with, refusal, tell};

const CANARY: &str = "canary-secret-456";

/// Why this address is refused: the kind is this one, and the text has these parts.
async fn refused(url: &str, kind: ErrorKind, parts: &[&str]) {
    let error = refusal(url).await;
    let text = format!("{error} {error:#} {error:?}");
    assert_eq!(error.kind(), kind, "{text}");
    assert!(parts.iter().all(|part| error.to_string().contains(part)), "{parts:?}: {text}");
    assert!(error.to_string().contains("connect"), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[tokio::test]
async fn a_password_that_does_not_open() {
    let Some(server) = redis_with(&in_memory().setting("requirepass", CANARY)).await else { return };
    let addr = server.addr();
    let wrong = "user or password is wrong";
    refused(&format!("redis://:{CANARY}-wrong@{addr}"), ErrorKind::Refused, &[wrong]).await;
    refused(&format!("redis://canary-user:{CANARY}@{addr}"), ErrorKind::Refused, &[wrong]).await;
    refused(&format!("redis://{addr}"), ErrorKind::Refused, &["asks for a password"]).await;
    let nodes = format!("127.0.0.1:1,127.0.0.1:2,{addr}");
    refused(&format!("redlock://:{CANARY}-wrong@{nodes}"), ErrorKind::Refused, &[wrong]).await;
    assert_eq!(keys(&server), [""; 0]);
}

/// The password changes while a client is there. Its connections go on; a new one is refused.
#[tokio::test]
async fn a_password_that_changes() {
    logs::keep();
    let Some(server) = redis().await else { return };
    tell(&server, &["ACL", "SETUSER", "app", "on", &format!(">{CANARY}"), "~*", "&*", "+@all"]);
    let url = format!("redis://app:{CANARY}@{}", server.addr());
    let locks = client(&url).await;
    let guard = locks.lock("a").ttl(Duration::from_millis(400)).await.expect("a free lock");
    tell(&server, &["ACL", "SETUSER", "app", "resetpass", &format!(">{CANARY}-new")]);
    tell(&server, &["CLIENT", "KILL", "USER", "app"]);
    let error = locks.lock("b").await.expect_err("not with this password");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    guard.lost().await;
    assert!(logs::has("INFO", &["renewal failed", "user or password is wrong"]), "{:#?}", logs::lines());
    drop(guard);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(keys(&server), [""; 0]);
    let shown = format!("{locks:?} {error:?} {:?}", backend(&url).await);
    assert!(!shown.contains(CANARY), "{shown}");
    let logged = logs::lines().join("\n");
    assert!(!logged.contains(CANARY), "{logged}");
}

#[tokio::test]
async fn a_database_that_is_not_there() {
    let Some(server) = redis_with(&in_memory().setting("databases", "4")).await else { return };
    let locks = client(&format!("{}/3", server.url())).await;
    let guard = locks.lock("a").await.expect("a free lock");
    assert_eq!(keys(&server), [""; 0], "it is in another database");
    guard.release().await.expect("held");
    for url in [format!("{}/4", server.url()), format!("{}?db=99", server.url())] {
        refused(&url, ErrorKind::Misconfigured, &["no database of this number"]).await;
    }
}

#[tokio::test]
async fn a_port_where_nobody_is() {
    let start = Instant::now();
    let url = format!("redis://:{CANARY}@127.0.0.1:1?timeout=300ms");
    refused(&url, ErrorKind::Unreachable, &["cannot be reached"]).await;
    let url = "redis+unix:///nowhere/redis.sock?timeout=300ms";
    refused(url, ErrorKind::Unreachable, &["cannot be reached"]).await;
    let url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?timeout=300ms";
    refused(url, ErrorKind::Unreachable, &["0 of 3 nodes answer"]).await;
    let url = "redis://-no-such-host.invalid?timeout=300ms";
    refused(url, ErrorKind::Unreachable, &["cannot be reached"]).await;
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// A server that answers everything with this text, or with nothing at all.
async fn stranger(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    drop(tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            drop(tokio::spawn(async move {
                let mut request = [0; 4096];
                while matches!(stream.read(&mut request).await, Ok(1..)) {
                    let Some(answer) = answer else { continue };
                    if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }));
        }
    }));
    addr.to_string()
}

#[tokio::test]
async fn a_port_where_something_else_is() {
    for answer in ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let url = format!("redis://:{CANARY}@{}?timeout=300ms", stranger(Some(answer)).await);
        refused(&url, ErrorKind::Misconfigured, &["not Redis"]).await;
    }
    for answer in [Some(""), None] {
        let start = Instant::now();
        let url = format!("redis://:{CANARY}@{}?timeout=300ms", stranger(answer).await);
        refused(&url, ErrorKind::Unreachable, &["cannot be reached"]).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn tls_is_a_feature() {
    for url in ["rediss://a", "rediss+sentinel://a/m", "rediss+cluster://a", "redlocks://a,b,c"] {
        refused(url, ErrorKind::Unsupported, &["the feature \"tls\""]).await;
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_where_there_is_none() {
    let Some(server) = redis().await else { return };
    let url = format!("rediss://:{CANARY}@{}?timeout=500ms", server.addr());
    refused(&url, ErrorKind::Unreachable, &["cannot be reached"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_and_one_server_are_not_the_same() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    for node in cluster.nodes() {
        refused(&node.url(), ErrorKind::Misconfigured, &["part of a cluster", "redis+cluster://"]).await;
    }
    let nodes: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redlock://{}", nodes.join(","));
    refused(&url, ErrorKind::Misconfigured, &["a node is part of a cluster"]).await;
    let Some(server) = redis().await else { return };
    let url = format!("redis+cluster://{}", server.addr());
    refused(&url, ErrorKind::Misconfigured, &["not part of a cluster", "redis://"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_is_no_server_for_locks() {
    let Some(group) = if_installed(RedisSentinel::start_with(&in_memory()).await) else { return };
    refused(&group.sentinels()[0].url(), ErrorKind::Misconfigured, &["redis+sentinel://"]).await;
    let url = group.url().replace("mymaster", "other");
    refused(&url, ErrorKind::Misconfigured, &["no sentinel knows a master of this name"]).await;
    let url = format!("redis+sentinel://{}/mymaster?timeout=500ms", group.master().addr());
    let error = refusal(&url).await;
    assert_ne!(error.kind(), ErrorKind::Internal, "{error:#}");
}

/// Managed servers take commands away.
#[tokio::test]
async fn a_command_that_the_server_does_not_have() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["EVAL", "EVALSHA", "HSET", "HELLO"] {
        let file = folder.path().join(command);
        std::fs::write(&file, format!("rename-command {command} \"\"\n")).expect("a file");
        let options = in_memory().setting("include", file.to_str().expect("a text"));
        let Some(server) = redis_with(&options).await else { return };
        // Redis 6 cannot be asked which commands it has.
        if is_redis_6() && matches!(command, "EVALSHA" | "HSET") {
            let locked = client(&server.url()).await.lock("a").await;
            // A free lock is taken without HSET.
            if command == "EVALSHA" {
                let error = locked.expect_err("no such command");
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
                assert!(error.to_string().contains("does not know a command"), "{error:#}");
            }
            continue;
        }
        let (kind, part) = match command {
            "HELLO" => (ErrorKind::Misconfigured, "too old"),
            "EVAL" => (ErrorKind::Misconfigured, "does not know a command"),
            _ => (ErrorKind::Refused, command),
        };
        refused(&server.url(), kind, &[part]).await;
        assert_eq!(tell(&server, &["DBSIZE"]), ":0\r\n");
    }
}
