//! Curator and kazoo: while one side holds, the other waits, and the queue keeps its order.

use std::time::Duration;

use lockwell_core::{LockGuard, Locks, Mode, Moment};
use testbed::ZooKeeper;
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::other::{Maker, Other};
use crate::servers::{client, connect, hold, options, queued, single};

struct Stage {
    server: ZooKeeper,
    other: Other,
    /// How their path begins.
    base: &'static str,
    locks: Locks,
    queue: std::sync::Arc<lockwell_zk::ZkLock>,
}

async fn stage(maker: Maker, suffix: &str) -> Option<Stage> {
    let server = single(&options()).await?;
    let other = Other::start(maker, &server.addr().to_string()).await?;
    let (locks, queue) = connect(&format!("{}/interop{suffix}", server.url())).await;
    Some(Stage { server, other, base: "/interop", locks, queue })
}

fn waiting(locks: &Locks, name: &'static str) -> JoinHandle<LockGuard> {
    let locks = locks.clone();
    tokio::spawn(async move { hold(&locks, name).await })
}

async fn mutex(maker: Maker) {
    let Some(mut stage) = stage(maker, "").await else { return };
    let (other, locks) = (&mut stage.other, &stage.locks);
    let path = format!("{}/plain", stage.base);
    // They hold, we wait.
    other.ask("a", "mutex", &path);
    assert_eq!(other.word().await, "a held");
    assert!(locks.lock("plain").try_now().await.expect("an answer").is_none(), "both hold");
    let shown = stage.queue.queue(&"plain".try_into().expect("a name")).await.expect("an answer");
    assert!(shown.len() == 1 && shown[0].holds && shown[0].ttl.is_none(), "{shown:?}");
    assert!(!shown[0].label.is_empty(), "{shown:?}");
    let ours = waiting(locks, "plain");
    queued(locks, "plain", 1).await;
    other.give("a");
    assert_eq!(other.word().await, "a released");
    let ours = ours.await.expect("our turn comes");
    assert!(ours.token() > shown[0].czxid);
    // We hold, they wait; and the queue is mixed.
    other.ask("b", "mutex", &path);
    queued(locks, "plain", 1).await;
    let second = waiting(locks, "plain");
    queued(locks, "plain", 2).await;
    other.ask("c", "mutex", &path);
    queued(locks, "plain", 3).await;
    assert!(other.is_silent().await, "both hold");
    ours.release().await.expect("held");
    assert_eq!(other.word().await, "b held");
    assert!(other.is_silent().await && !second.is_finished());
    other.give("b");
    assert_eq!(other.word().await, "b released");
    let second = second.await.expect("our turn comes");
    assert!(other.is_silent().await, "both hold");
    second.release().await.expect("held");
    assert_eq!(other.word().await, "c held");
    assert!(locks.lock("plain").try_now().await.expect("an answer").is_none(), "both hold");
    other.give("c");
    assert_eq!(other.word().await, "c released");
    hold(locks, "plain").await.release().await.expect("held");
}

async fn readers_and_writers(maker: Maker, suffix: &str) {
    let Some(mut stage) = stage(maker, suffix).await else { return };
    let (other, locks) = (&mut stage.other, &stage.locks);
    let path = format!("{}/book", stage.base);
    other.ask("r1", "read", &path);
    assert_eq!(other.word().await, "r1 held");
    let ours = locks.read("book").try_now().await.expect("an answer").expect("readers meet");
    assert!(
        locks.write("book").try_now().await.expect("an answer").is_none(),
        "a writer among their readers"
    );
    other.ask("w1", "write", &path);
    queued(locks, "book", 1).await;
    assert!(
        locks.read("book").try_now().await.expect("an answer").is_none(),
        "a reader overtook their writer"
    );
    let writer = waiting(locks, "book");
    queued(locks, "book", 2).await;
    other.ask("r2", "read", &path);
    queued(locks, "book", 3).await;
    other.give("r1");
    assert_eq!(other.word().await, "r1 released");
    assert!(other.is_silent().await, "a writer beside our reader");
    ours.release().await.expect("held");
    assert_eq!(other.word().await, "w1 held");
    assert!(other.is_silent().await && !writer.is_finished());
    other.give("w1");
    assert_eq!(other.word().await, "w1 released");
    let writer = writer.await.expect("our turn comes");
    assert!(other.is_silent().await, "a reader beside our writer");
    writer.release().await.expect("held");
    assert_eq!(other.word().await, "r2 held");
    let ours = locks.read("book").try_now().await.expect("an answer").expect("readers meet");
    other.give("r2");
    assert_eq!(other.word().await, "r2 released");
    ours.release().await.expect("held");
}

/// Whoever wrote a node, it is shown in its place, with what it says and the zxid that is its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_shows_the_nodes_of_all() {
    let Some(mut stage) = stage(Maker::Curator, "").await else { return };
    let Some(mut kazoo) = Other::start(Maker::Kazoo, &stage.server.addr().to_string()).await else { return };
    let (curator, locks) = (&mut stage.other, &stage.locks);
    let path = format!("{}/mixed", stage.base);
    curator.ask("a", "mutex", &path);
    assert_eq!(curator.word().await, "a held");
    let mut ours = Vec::new();
    for (label, waiters) in [("the first of ours", 1), ("the second, 夜", 3)] {
        let ttl = Duration::from_secs(20);
        ours.push(tokio::spawn(locks.lock("mixed").label(label).ttl(ttl).wait(ttl * 3).into_future()));
        queued(locks, "mixed", waiters).await;
        if waiters == 1 {
            kazoo.ask("b", "mutex", &path);
            queued(locks, "mixed", 2).await;
        }
    }
    let name = "mixed".try_into().expect("a name");
    let shown = stage.queue.queue(&name).await.expect("an answer");
    let said: Vec<_> = shown.iter().map(|place| (place.holds, place.mode, place.ttl.is_some())).collect();
    let mutex = |holds, ours| (holds, Mode::Exclusive, ours);
    assert_eq!(said, [mutex(true, false), mutex(false, true), mutex(false, false), mutex(false, true)]);
    assert!(!shown[0].label.is_empty(), "{shown:?}");
    let labels: Vec<_> = shown[1..].iter().map(|place| place.label.as_str()).collect();
    assert_eq!(labels, ["the first of ours", "kazoo", "the second, 夜"]);
    assert!(shown.is_sorted_by(|a, b| a.czxid < b.czxid && a.waited >= b.waited), "{shown:?}");
    let status = locks.inspect("mixed").await.expect("an answer");
    assert_eq!((status.holders.len(), status.waiters), (1, 3));
    assert_eq!(status.holders[0].token, shown[0].czxid);
    curator.give("a");
    let first = ours.remove(0).await.expect("no panic").expect("its turn comes");
    assert_eq!(first.token(), shown[1].czxid);
    let shown = stage.queue.queue(&name).await.expect("an answer");
    assert!(shown.len() == 3 && shown[0].holds && !shown[1].holds, "{shown:?}");
    first.release().await.expect("held");
    assert_eq!(kazoo.word().await, "b held");
    kazoo.give("b");
    let second = ours.remove(0).await.expect("no panic").expect("its turn comes");
    assert_eq!(second.token(), shown[2].czxid);
    second.release().await.expect("held");
}

/// CURATOR-621: from 5.5 on, a writer of Curator that becomes a reader makes a reader's node with its own
/// number, and then deletes its writer's node. Our writer behind it must not take the end of that node for
/// its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_of_curator_becomes_a_reader() {
    let Some(server) = single(&options()).await else { return };
    let url = format!("{}/interop?recipe=curator-rw", server.url());
    let (locks, other) = (client(&url).await, raw(&server).await);
    let passing = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let queueing = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for (name, before) in [("one", 0), ("several", 2)] {
        hold(&locks, name).await.release().await.expect("held");
        let folder = format!("/interop/{name}");
        let writer = format!("{folder}/_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-__WRIT__");
        let (_, sequence) = other.create(&writer, b"10.0.0.1", &queueing).await.expect("a writer");
        // Of those who wait in other processes, the first is the one behind the writer.
        let mut ours = Vec::new();
        for waiters in 1..=before + 1 {
            let (locks, watch) = (client(&url).await, locks.clone());
            ours.push(tokio::spawn(async move { hold(&locks, name).await }));
            queued(&watch, name, waiters).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let reader = format!("{folder}/_c_6ba7b811-9dad-41d1-80b4-00c04fd430c8-__READ__{sequence}");
        other.create(&reader, b"10.0.0.1", &passing).await.expect("a reader");
        other.delete(&format!("{writer}{sequence}"), None).await.expect("deleted");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(ours.iter().all(|waiting| !waiting.is_finished()), "a writer beside a reader of Curator");
        other.delete(&reader, None).await.expect("deleted");
        for waiting in ours {
            waiting.await.expect("its turn comes").release().await.expect("held");
        }
    }
}

/// An object of kazoo's `Lock` makes its path once. When the servers have deleted our folder, which is a
/// container, the object fails for good; a folder that stays is good for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_an_object_of_kazoo_outlives_our_folder() {
    let Some(server) = single(&options().setting("-Dznode.container.checkIntervalMs", "200")).await else {
        return;
    };
    let Some(mut kazoo) = Other::start(Maker::Kazoo, &server.addr().to_string()).await else { return };
    let reader = raw(&server).await;
    for (base, option, comes_of_it) in
        [("stays", "?folders=persistent", "again took"), ("goes", "", "again NoNodeError")]
    {
        let locks = client(&format!("{}/{base}{option}", server.url())).await;
        let path = format!("/{base}/object");
        // The folder is ours, and in use until kazoo has found it.
        let ours = hold(&locks, "object").await;
        kazoo.again(&path);
        queued(&locks, "object", 1).await;
        ours.release().await.expect("held");
        assert_eq!(kazoo.word().await, "again took");
        let end = Moment::now().after(Duration::from_secs(if option.is_empty() { 30 } else { 3 }));
        while reader.check_stat(&path).await.expect("an answer").is_some() && !end.has_passed() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        kazoo.again(&path);
        assert_eq!(kazoo.word().await, comes_of_it, "{base}");
    }
}

async fn raw(server: &ZooKeeper) -> Client {
    Client::connect(&server.addr().to_string()).await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mutex_of_curator() {
    mutex(Maker::Curator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mutex_of_kazoo() {
    mutex(Maker::Kazoo).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reader_writer_lock_of_curator() {
    readers_and_writers(Maker::Curator, "?recipe=curator-rw").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reader_writer_lock_of_kazoo() {
    readers_and_writers(Maker::Kazoo, "").await;
}
