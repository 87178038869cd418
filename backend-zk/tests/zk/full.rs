//! A session takes a bounded number of claims, since a server cannot read a transaction that is too long: the
//! end of a session with all its nodes.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lockwell_core::{DistributedLock, LockGuard, Locks, Loss, Moment, Severity};
use testbed::{Proxy, ZooKeeper, ZooKeeperEnsemble, if_installed};
use tokio::io::{AsyncBufReadExt, BufReader};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::servers::{client, connect, hold, options, secs, single, url};
use crate::wire::end_session;

/// What a session may have, and what the server's limit is, in bytes of paths.
const BOUND: usize = 256 * 1024;
const LIMIT: usize = 2 * 1024 * 1024;

/// As long as a name may be.
fn name(number: usize) -> String {
    format!("{number:0>512}")
}

async fn hold_many(locks: &Locks, ttl: Duration, numbers: std::ops::Range<usize>) -> Vec<LockGuard> {
    let numbers: Vec<_> = numbers.collect();
    let mut guards = Vec::new();
    for some in numbers.chunks(250) {
        let claims =
            some.iter().map(|number| locks.lock(name(*number)).ttl(ttl).wait(secs(60)).into_future());
        guards.extend(try_join_all(claims).await.expect("free locks"));
    }
    guards
}

/// The session of each lock, and the bytes of paths of each session.
async fn sessions(server: &ZooKeeper, locks: usize) -> (Vec<i64>, HashMap<i64, usize>) {
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let (mut of_locks, mut bytes) = (Vec::new(), HashMap::new());
    for number in 0..locks {
        let folder = format!("/lockwell/{}", name(number));
        let nodes = witness.list_children(&folder).await.expect("a folder");
        assert_eq!(nodes.len(), 1, "the lock {number} has {nodes:?}");
        let path = format!("{folder}/{}", nodes[0]);
        let stat = witness.check_stat(&path).await.expect("an answer").expect("a node");
        *bytes.entry(stat.ephemeral_owner).or_default() += 4 + path.len();
        of_locks.push(stat.ephemeral_owner);
    }
    (of_locks, bytes)
}

fn ephemerals(server: &ZooKeeper) -> u32 {
    let answer = server.four_letter("mntr").expect("an answer");
    let line = answer.lines().find_map(|line| line.strip_prefix("zk_ephemerals_count"));
    line.expect("a counter").trim().parse().expect("a number")
}

/// A client with more than the servers can read in one transaction dies. The server goes on, and reads its
/// own log when it starts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_the_death_of_a_client_with_many_claims_is_no_harm() {
    const LOCKS: usize = 4200;
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (client(&url(proxy.addr())).await, client(&server.url()).await);
    let guards = hold_many(&one, secs(10), 0..LOCKS).await;
    assert!(LOCKS * name(0).len() > LIMIT);
    // From now on the server sees nothing of it, as after its death.
    proxy.cut();
    let end = Moment::now().after(secs(60));
    // The other client has a mark at most.
    while ephemerals(&server) > 5 {
        assert!(!end.has_passed(), "{} nodes are left", ephemerals(&server));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    hold(&two, &name(7)).await.release().await.expect("held");
    assert!(guards.iter().all(|guard| !guard.is_held()));
    server.kill().expect("killed");
    server.restart().await.expect("it reads its log");
    let again = two.lock(name(7)).wait(secs(60)).await.expect("a free lock");
    again.release().await.expect("held");
}

/// The same in an ensemble, whose servers read a fifth of the usual: its followers would leave a leader that has
/// written more, and each next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_an_ensemble_outlives_a_client_with_many_claims() {
    let options = options().setting("-Djute.maxbuffer", (LIMIT / 10).to_string());
    let Some(servers) = if_installed(ZooKeeperEnsemble::start(3, &options).await) else { return };
    assert!(MANY * name(0).len() > LIMIT / 5 && BOUND < LIMIT / 5);
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "full::holder_of_many", "--ignored", "--nocapture"])
        .env("LOCKWELL_TEST_URL", servers.url())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    while !said.next_line().await.expect("a line").expect("it holds the locks").ends_with("held") {}
    let other = client(&servers.url()).await;
    assert!(other.lock(name(7)).try_now().await.expect("an answer").is_none());
    child.kill().await.expect("it runs");
    other.lock(name(7)).wait(secs(60)).await.expect("its session ends").release().await.expect("held");
    for server in servers.servers() {
        let alone = client(&server.url()).await;
        hold(&alone, &name(MANY - 1)).await.release().await.expect("held");
    }
}

const MANY: usize = 850;

/// What the other process does, until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by another test"]
async fn holder_of_many() {
    let locks = client(&std::env::var("LOCKWELL_TEST_URL").expect("an address")).await;
    let _guards = hold_many(&locks, secs(10), 0..MANY).await;
    println!("\nheld");
    std::future::pending::<()>().await;
}

/// Nodes that another client has in one session. The server's list of them is longer than its other answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_a_full_session() {
    let Some(server) = single(&options()).await else { return };
    let (_locks, lock) = connect(&server.url()).await;
    let finding = async || {
        let findings = lock.examine().await.expect("an answer");
        findings.into_iter().find(|finding| finding.subject == "sessions").expect("a finding")
    };
    assert_eq!(finding().await.severity, Severity::Good);
    let other = Client::connect(&server.addr().to_string()).await.expect("a client");
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    for number in 0..11 {
        let long = format!("/{number}{}", "x".repeat(100_000));
        other.create(&long, b"", &ephemeral).await.expect("a node");
    }
    let finding = finding().await;
    assert_eq!(finding.severity, Severity::Doubtful);
    let said = format!("0x{:x} has 11 ephemeral nodes with 1075 KiB", other.session_id().0);
    assert!(finding.message.contains(&said), "{said}: {finding:?}");
}

/// The second session of one ttl: its end is that of its own claims, and it is closed when it has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_full_session_is_followed_by_another() {
    const LOCKS: usize = 600;
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let ttl = secs(20);
    let guards = hold_many(&locks, ttl, 0..LOCKS).await;
    let (of_locks, bytes) = sessions(&server, LOCKS).await;
    assert_eq!(bytes.len(), 2, "{bytes:?}");
    assert!(bytes.values().all(|bytes| *bytes <= BOUND), "{bytes:?}");
    let first = of_locks[0];
    let second = *bytes.keys().find(|session| **session != first).expect("two");
    // It is renewed as the first.
    tokio::time::sleep(ttl / 2).await;
    assert!(guards.iter().all(|guard| guard.is_held() && guard.time_left() > ttl / 4));
    end_session(server.addr(), second).await;
    let (mut kept, lost): (Vec<_>, Vec<_>) =
        guards.into_iter().zip(&of_locks).partition(|(_, session)| **session == first);
    for loss in join_all(lost.iter().map(|(guard, _)| guard.lost())).await {
        assert_eq!(loss, Loss::Taken);
    }
    assert!(kept.iter().all(|(guard, _)| guard.is_held()), "the end of one session ends claims of the other");
    drop(lost);
    // Room in the first session is used again.
    for (guard, _) in kept.drain(..100) {
        guard.release().await.expect("held");
    }
    let again = hold_many(&locks, ttl, 0..50).await;
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    for number in 0..50 {
        let folder = format!("/lockwell/{}", name(number));
        let nodes = witness.list_children(&folder).await.expect("a folder");
        let stat =
            witness.check_stat(&format!("{folder}/{}", nodes[0])).await.expect("an answer").expect("a node");
        assert_eq!(stat.ephemeral_owner, first, "lock {number}");
    }
    drop(again);
    locks.close().await.expect("nothing is left");
}
