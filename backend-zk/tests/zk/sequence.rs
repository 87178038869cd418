//! The end of the server's sequence numbers.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockwell_core::{ErrorKind, Locks};
use testbed::ZooKeeper;
use zookeeper_client::Client;

use crate::servers::{client, hold, options, queued, single};

/// Lets the numbers of a lock go on from here. `false`: there is no Java compiler.
async fn bump(server: &ZooKeeper, lock: &str, number: i64) -> bool {
    server.stop().await.expect("stopped");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zk/other/Bump.java");
    let done = Command::new("java")
        .args([
            "-cp",
            &ZooKeeper::class_path().expect("installed"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ])
        .arg(source)
        .arg(server.folder().join("data"))
        .args([format!("/lockwell/{lock}"), number.to_string()])
        .stderr(Stdio::inherit())
        .status()
        .is_ok_and(|status| status.success());
    server.restart().await.expect("started");
    if !done {
        testbed::lacks("the numbers cannot be changed: apt install default-jdk-headless");
    }
    done
}

async fn sequence(server: &ZooKeeper, lock: &str) -> i64 {
    let reader = Client::connect(&server.addr().to_string()).await.expect("a client");
    let names = reader.list_children(&format!("/lockwell/{lock}")).await.expect("a folder");
    names[0][names[0].len() - 10..].parse().expect("a number")
}

async fn insist(locks: &Locks, name: &str) -> lockwell_core::LockGuard {
    locks.lock(name).wait(Duration::from_secs(30)).await.expect("a free lock")
}

/// An idle lock's numbers start anew long before their end, tokens go on rising, and at the end comes an
/// error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_start_anew() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let before = hold(&locks, "old").await;
    let before_token = before.token();
    before.release().await.expect("held");
    if !bump(&server, "old", 1_500_000_000).await {
        return;
    }
    let guard = insist(&locks, "old").await;
    assert!(guard.token() > before_token);
    assert!(sequence(&server, "old").await >= 1_500_000_000);
    // Somebody waits: the folder stays.
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { insist(&locks, "old").await }
    });
    queued(&locks, "old", 1).await;
    guard.release().await.expect("held");
    let guard = waiting.await.expect("no panic");
    let token = guard.token();
    guard.release().await.expect("held");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let guard = insist(&locks, "old").await;
    assert!(sequence(&server, "old").await < 10, "the numbers go on");
    assert!(guard.token() > token);
    guard.release().await.expect("held");
}

/// At the end of the numbers the order of the queue is lost: the lock is refused before. Once its queue is
/// empty, the numbers start anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_the_end_of_the_numbers_is_an_error() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    for (name, number) in [("near", (1i64 << 31) - 500_000), ("end", (1i64 << 31) - 1)] {
        hold(&locks, name).await.release().await.expect("held");
        if !bump(&server, name, number).await {
            return;
        }
        let error = locks.lock(name).wait(Duration::from_secs(30)).await.expect_err("no numbers are left");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        queued(&locks, name, 0).await;
        assert!(!locks.inspect(name).await.expect("an answer").is_held());
        hold(&locks, name).await.release().await.expect("held");
    }
}
