//! The promise that a lock survives a restart is made only where the server has told that it keeps a file.

use std::time::Duration;

use lockwell_core::{ErrorKind, Requirement};
use testbed::{Redis, RedisCluster, RedisSentinel, if_installed};

use crate::asking::claim;
use crate::servers::{backend, client, in_memory, on_disk, redis_with, tell, until};

/// Whether a client that connects now is promised it. An application that demands it is refused otherwise.
async fn is_promised(url: &str) -> bool {
    let promised = backend(url).await.expect("a connection").capabilities();
    let demanded = promised.require(&[Requirement::Durable]);
    if let Err(error) = &demanded {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
        assert!(error.to_string().contains("does not promise: durable"), "{error:#}");
    }
    assert_eq!(demanded.is_ok(), promised.promises(Requirement::Durable));
    assert!(promised.promises(Requirement::Fencing) && promised.promises(Requirement::AcrossHosts));
    demanded.is_ok()
}

#[tokio::test]
async fn only_a_server_with_an_append_only_file_promises_it() {
    let snapshots = in_memory().setting("save", "3600 1");
    for (options, expected) in [
        (on_disk(), true),
        // A clean restart loses nothing of the last second.
        (on_disk().setting("appendfsync", "everysec"), true),
        (in_memory(), false),
        (snapshots, false),
    ] {
        let Some(server) = redis_with(&options).await else { return };
        for option in ["", "?accept_loss=true", "?create=false", "?durability=grace&longest_ttl=4s"] {
            let url = format!("{}{option}", server.url());
            assert_eq!(is_promised(&url).await, expected, "{url}: {options:?}");
        }
    }
}

/// What the server is asked counts for the client that connects then.
#[tokio::test]
async fn a_file_that_is_switched_on_or_off_counts_for_the_next_client() {
    let Some(server) = redis_with(&in_memory()).await else { return };
    let before = backend(&server.url()).await.expect("a connection");
    tell(&server, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(is_promised(&server.url()).await);
    assert!(!before.capabilities().promises(Requirement::Durable));
    tell(&server, &["CONFIG", "SET", "appendonly", "no"]);
    assert!(!is_promised(&server.url()).await);
}

#[tokio::test]
async fn a_user_without_the_right_to_info_is_promised_nothing() {
    let Some(server) = redis_with(&on_disk()).await else { return };
    for (user, more, expected) in [("blind", "+ping", false), ("app", "+info", true)] {
        let mut command = vec!["ACL", "SETUSER", user, "on", ">canary-secret-123", more];
        command.extend(include_str!("minimal.acl").split_whitespace().filter(|word| *word != "-@all"));
        tell(&server, &command);
        let url = server.url().replace("://", &format!("://{user}:canary-secret-123@"));
        assert_eq!(is_promised(&url).await, expected, "{user}");
    }
}

/// While it reads its file, it says that it has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_loading_its_file_is_asked_again() {
    // For each key, in microseconds.
    let Some(server) = redis_with(&on_disk().setting("key-load-delay", "500")).await else { return };
    tell(&server, &["EVAL", "for i = 1, 5000 do redis.call('SET', i, i) end", "0"]);
    server.kill().expect("it runs");
    let restart = tokio::spawn({
        let server = server.clone();
        async move { server.restart().await }
    });
    let loading = || server.command(&["INFO"]).is_ok_and(|told| told.contains("\r\nloading:1\r\n"));
    until("it is loading", loading).await;
    assert!(tell(&server, &["INFO"]).contains("aof_enabled:0"), "else this test shows nothing");
    assert!(is_promised(&format!("{}?timeout=30s", server.url())).await);
    restart.await.expect("no panic").expect("it starts");
}

/// Whether a lock that nobody renews is there after a clean restart.
async fn survives(server: &Redis, url: &str, ttl: Duration) -> bool {
    let lock = backend(url).await.expect("a connection");
    let asked = claim("kept", ttl);
    let grant = lock.acquire(&asked).await.expect("an answer").expect("a free lock");
    server.stop().await.expect("it ends");
    server.restart().await.expect("it starts again");
    let after = backend(url).await.expect("a connection");
    let status = after.inspect(asked.name()).await.expect("an answer");
    assert!(status.holders.iter().all(|holder| holder.token == grant.token()), "{status:?}");
    status.is_held()
}

/// The promise is what a restart shows. In a grace period a holder can make its lock anew, and nobody else
/// gets it; but the server has forgotten it, and so it is not promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_promise_is_kept_and_is_missing_where_it_could_not_be() {
    for options in [on_disk(), on_disk().setting("appendfsync", "everysec"), in_memory()] {
        let Some(server) = redis_with(&options).await else { return };
        let promised = is_promised(&server.url()).await;
        assert_eq!(survives(&server, &server.url(), Duration::from_secs(60)).await, promised, "{options:?}");
    }
    let longest = Duration::from_secs(4);
    let Some(server) = redis_with(&in_memory()).await else { return };
    let url = format!("{}?durability=grace&longest_ttl=4s", server.url());
    assert!(!is_promised(&url).await);
    client(&url).await.end_grace().await.expect("it grants locks");
    assert!(!survives(&server, &url, longest).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_of_a_cluster_must_have_told() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &on_disk()).await) else { return };
    for url in [cluster.url(), format!("{}?longest_ttl=4s&namespace=grace:", cluster.url())] {
        assert!(is_promised(&url).await, "{url}");
        for master in cluster.nodes() {
            tell(master, &["CONFIG", "SET", "appendonly", "no"]);
            assert!(!is_promised(&url).await, "{url}");
            tell(master, &["CONFIG", "SET", "appendonly", "yes"]);
        }
        assert!(is_promised(&url).await, "{url}");
    }
    // Of one that hangs nobody knows.
    cluster.nodes()[2].pause().expect("it runs");
    assert!(!is_promised(&cluster.url()).await);
    cluster.nodes()[2].resume().expect("it runs");
    assert!(is_promised(&cluster.url()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_behind_sentinels_must_have_told() {
    for (options, expected) in [(on_disk(), true), (in_memory(), false)] {
        let Some(group) = if_installed(RedisSentinel::start_with(&options).await) else { return };
        assert_eq!(is_promised(&group.url()).await, expected);
        assert_eq!(is_promised(&format!("{}?longest_ttl=4s", group.url())).await, expected);
    }
}
