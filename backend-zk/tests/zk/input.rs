//! Odd names, and servers that cannot serve.

use std::collections::HashSet;

use lockcore::{ErrorKind, LockName};
use zookeeper_client::Client;

use crate::java::{JavaServer, free_port};
use crate::rights::refusal;
use crate::servers::{client, hold, options, single};

/// Whatever a lock is called, it is a child of the base of its own, and can be held beside all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_has_a_node_of_its_own() {
    let Some(server) = single(&options()).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let long = ["é".repeat(256), "日".repeat(170) + "ab", "🔒".repeat(128), "/".repeat(512), "%".repeat(512)];
    let mut names: Vec<&str> = long.iter().map(String::as_str).collect();
    assert!(names.iter().all(|name| name.len() == 512));
    names.extend([
        "/", "//", "a/b", "a%2Fb", "a%252Fb", "/a", "a/", ".", "..", "...", "../x", "./x", "%2E", "%2E.",
    ]);
    names.extend([
        "a", "A", " a", "a ", "é", "e\u{301}", "\u{200b}", "\u{feff}", "\u{e000}", "\u{fffd}", "😀",
    ]);
    names.extend([
        "zookeeper",
        "%7Aookeeper",
        "lock-0000000001",
        "_c_x-lock-",
        "%clock-",
        "{a}",
        "a\"b",
        "a\\b",
    ]);
    let mut guards = Vec::new();
    for &name in &names {
        guards.push(hold(&one, name).await);
        assert!(two.lock(name).try_now().await.expect("an answer").is_none(), "{name:?} is held twice");
    }
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let mut children = witness.list_children("/lockwell").await.expect("the base");
    // The mark of a client that is about to end its first session.
    children.retain(|child| !child.starts_with("%clock-") || child.len() < 12);
    assert_eq!(children.len(), names.len(), "{children:?}");
    let different: HashSet<u64> = guards.iter().map(|guard| guard.token().get()).collect();
    assert_eq!(different.len(), names.len());
    for guard in guards {
        let name = guard.name().to_string();
        assert!(two.inspect(name.as_str()).await.expect("an answer").is_held());
        guard.release().await.expect("held");
        hold(&two, &name).await.release().await.expect("held");
    }
    for bad in ["", "a\0b", "a\nb", "a\u{7f}", &"é".repeat(257)] {
        let error = LockName::new(bad).expect_err("no name");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
}

/// A server that has lost its ensemble, and is told to answer questions nevertheless, is no server for locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads_is_refused() {
    let member = || format!("127.0.0.1:{}:{}", free_port(), free_port());
    let settings = [
        ("server.1", member()),
        ("server.2", member()),
        ("server.3", member()),
        ("initLimit", "10".to_owned()),
        ("syncLimit", "5".to_owned()),
    ];
    let read_only = ["-Dreadonlymode.enabled=true".to_owned()];
    let Some(server) = JavaServer::start(&settings, &read_only).await else { return };
    let mode = server.four_letter("srvr").expect("an answer");
    assert!(mode.contains("Mode: read-only"), "{mode}");
    let error = refusal(&format!("zk://{}?timeout=3s", server.addr())).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    assert!(error.is_retryable(), "{error:#}");
    assert!(server.log().contains("Refusing session request"), "{}", server.log());
}
