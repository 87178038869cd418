//! Nodes of other programs that hold a lock: they are shown, and a forced release deletes them.

use std::time::Duration;

use lockwell_core::{ErrorKind, Locks, Mode};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::servers::{client, connect, hold, options, single};

/// Who holds it, if one does.
async fn holder(locks: &Locks, name: &str) -> (String, Duration) {
    let status = locks.inspect(name).await.expect("an answer");
    assert_eq!(status.holders.len(), 1, "{status:?}");
    (status.holders[0].label.clone(), status.holders[0].ttl_left)
}

/// A node that no session ends, which an operator has made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stays_is_named_and_freed_by_force() {
    let Some(server) = single(&options()).await else { return };
    let (locks, queue) = connect(&server.url()).await;
    let other = Client::connect(&server.addr().to_string()).await.expect("a client");
    let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for (name, node, said) in [
        ("silent", "lock-0000000000", ""),
        ("told", "_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-0000000000", "ops"),
        ("reader", "x__READ__0000000000", ""),
        ("permit", "-permit-1-0000000000", ""),
    ] {
        hold(&locks, name).await.release().await.expect("held");
        other.create(&format!("/lockwell/{name}/{node}"), said.as_bytes(), &lasting).await.expect("a node");
        let (label, left) = holder(&locks, name).await;
        assert!(label.starts_with(said) && label.contains(node), "{label}");
        assert_eq!(left, Duration::MAX);
        let shown = queue.queue(&name.try_into().expect("a name")).await.expect("an answer");
        assert!(shown.len() == 1 && shown[0].holds && shown[0].lasts, "{shown:?}");
        if name != "permit" {
            assert!(locks.lock(name).try_now().await.expect("an answer").is_none(), "both hold");
        }
        assert_eq!(locks.force_release(name).await.expect("an answer"), 1);
        assert!(locks.inspect(name).await.expect("an answer").is_free());
        hold(&locks, name).await.release().await.expect("held");
    }
}

/// A lock of a program that has one node of a session for each lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_in_place_of_the_folder_is_named_and_freed_by_force() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let other = Client::connect(&server.addr().to_string()).await.expect("a client");
    let passing = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    for (name, said, label) in [("silent", "", "another program"), ("told", "web-7", "web-7")] {
        other.create(&format!("/lockwell/{name}"), said.as_bytes(), &passing).await.expect("a node");
        let refused = [
            locks.lock(name).try_now().await.map(drop).expect_err("it cannot have a queue"),
            locks
                .lock(name)
                .wait(Duration::from_mins(5))
                .await
                .map(drop)
                .expect_err("it cannot have a queue"),
        ];
        for refused in refused {
            assert!(refused.kind() == ErrorKind::KindClash && !refused.is_retryable(), "{refused}");
        }
        assert_eq!(holder(&locks, name).await.0, label);
        assert_eq!(locks.force_release(name).await.expect("an answer"), 1);
        hold(&locks, name).await.release().await.expect("held");
    }
    // The folder of an idle lock is no holder.
    assert!(locks.inspect("told").await.expect("an answer").is_free());
    assert_eq!(locks.force_release("told").await.expect("an answer"), 0);
}

/// Claims of other programs in the queue, with whatever data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_who_wait_are_named() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let other = Client::connect(&server.addr().to_string()).await.expect("a client");
    let passing = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let guard = hold(&locks, "queue").await;
    let nodes: [(&str, &[u8]); 4] = [
        ("_c_x-lock-0000000901", b""),
        ("y__lock__0000000902", b"10.0.0.1"),
        ("z__rlock__0000000903", b"\xff\x1f\nlockwell ttl=5000"),
        ("no part of the queue", b"a"),
    ];
    for (name, said) in nodes {
        other.create(&format!("/lockwell/queue/{name}"), said, &passing).await.expect("a node");
    }
    let shown = locks.inspect("queue").await.expect("an answer");
    let labels: Vec<_> = shown.waiting.iter().map(|one| (one.label.as_str(), one.mode)).collect();
    let others = [
        ("another program", Mode::Exclusive),
        ("10.0.0.1", Mode::Exclusive),
        ("\u{fffd}\u{1f}", Mode::Shared),
    ];
    assert_eq!((shown.waiters, &labels[..]), (3, &others[..]));
    guard.release().await.expect("held");
}

/// What is below a node may be needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_nodes_below_it_is_left_to_the_operator() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let other = Client::connect(&server.addr().to_string()).await.expect("a client");
    let lasting = CreateMode::Persistent.with_acls(Acls::anyone_all());
    other.mkdir("/lockwell/tree/lock-0000000000/data", &lasting).await.expect("nodes");
    assert!(holder(&locks, "tree").await.0.contains("lock-0000000000"));
    let refused = locks.force_release("tree").await.expect_err("it is not empty");
    assert_eq!(refused.kind(), ErrorKind::Misconfigured, "{refused}");
    assert!(other.check_stat("/lockwell/tree/lock-0000000000/data").await.expect("an answer").is_some());
}
