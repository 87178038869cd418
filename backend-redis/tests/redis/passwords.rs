//! Passwords that change while clients are connected, and the login of a client of the application.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwell_core::{DistributedLock, ErrorKind, LockConfig, Locks, Result};
use lockwell_redis::client::Client;
use lockwell_redis::{RedisLock, Redlock};
use testbed::{Redis, RedisCluster, RedisSentinel, if_installed};

use crate::asking::queued;
use crate::redlock::nodes;
use crate::servers::{client, in_memory, on_disk, redis, redlock_url, tell, until};

const CANARY: &str = "canary-secret";

/// A client whose password comes from the configuration.
async fn connect(config: LockConfig) -> Result<Locks> {
    let (url, config) = config.resolve()?;
    let backend: Arc<dyn DistributedLock> = if url.scheme() == "redlock" {
        Arc::new(Redlock::connect(&url).await?)
    } else {
        Arc::new(RedisLock::connect(&url).await?)
    };
    Locks::with_config(backend, &config)
}

fn set_password(nodes: &[&Redis], password: &str) {
    for node in nodes {
        tell(
            node,
            &["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"],
        );
    }
}

fn kill(nodes: &[&Redis]) {
    for node in nodes {
        tell(node, &["CLIENT", "KILL", "USER", "app"]);
    }
}

/// The password is changed at the servers and at its source, in either order, and all connections end. One
/// client reads it from a file, and the other one has a function.
async fn locks_go_on(url: &str, nodes: &[&Redis]) {
    let url = url.replace("://", "://app@");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    let text = Arc::<Mutex<String>>::default();
    let is_broken = Arc::<AtomicBool>::default();
    let publish = |password: &str| {
        std::fs::write(&file, format!("{password}\n")).expect("our file");
        password.clone_into(&mut text.lock().unwrap_or_else(PoisonError::into_inner));
    };
    set_password(nodes, CANARY);
    publish(CANARY);
    let by_file = || LockConfig::new(&url).password_file(file.to_str().expect("a text"));
    let source = (Arc::clone(&text), Arc::clone(&is_broken));
    let by_function = LockConfig::new(&url).password_from(move || {
        let (text, is_broken) = source.clone();
        async move {
            assert!(!is_broken.load(Ordering::SeqCst), "as the test wants it");
            Ok::<_, Infallible>(text.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }
    });
    let one = connect(by_file()).await.expect("a connection");
    let two = connect(by_function).await.expect("a connection");
    let ttl = Duration::from_secs(5);
    let guards = [
        one.lock("one").ttl(ttl).await.expect("a free lock"),
        two.lock("two").ttl(ttl).await.expect("a free lock"),
    ];
    for round in 1..=2 {
        let before = [one.stats().renewals, two.stats().renewals];
        let next = format!("{CANARY}-{round}");
        if round == 1 {
            set_password(nodes, &next);
            kill(nodes);
            tokio::time::sleep(Duration::from_millis(100)).await;
            publish(&next);
        } else {
            is_broken.store(true, Ordering::SeqCst);
            kill(nodes);
            tokio::time::sleep(Duration::from_millis(300)).await;
            publish(&next);
            set_password(nodes, &next);
            is_broken.store(false, Ordering::SeqCst);
        }
        until("locks are renewed", || one.stats().renewals > before[0] && two.stats().renewals > before[1])
            .await;
        assert!(guards.iter().all(lockwell_core::LockGuard::is_held), "{url}, round {round}: {guards:?}");
        let wait = Duration::from_secs(20);
        let other = one.lock("other").wait(wait).await.expect("a free lock");
        let waits = tokio::spawn(two.lock("other").wait(wait).into_future());
        queued(&one, "other", 1).await;
        other.release().await.expect("held");
        waits.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
    for guard in guards {
        guard.release().await.expect("held");
    }
    // Nobody told the source.
    set_password(nodes, "another");
    kill(nodes);
    let error = one.lock("b").wait(Duration::from_secs(5)).await.expect_err("not with this password");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    let error = connect(by_file()).await.map(drop).expect_err("not with this password");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    let shown = format!("{error:#} {error:?} {one:?} {:?} {:?}", one.backend(), by_file());
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_with_another_password() {
    let Some(server) = redis().await else { return };
    locks_go_on(&server.url(), &[&server]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_with_another_password_behind_sentinels() {
    let Some(group) = if_installed(RedisSentinel::start_with(&in_memory()).await) else { return };
    locks_go_on(&group.url(), &[group.master(), group.replica()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_with_another_password_in_a_cluster() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    locks_go_on(&cluster.url(), &cluster.nodes().iter().collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_with_another_password_of_redlock() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    locks_go_on(&redlock_url(&nodes), &nodes.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_function_that_does_not_return_is_an_error_in_time() {
    let Some(server) = redis().await else { return };
    for url in [server.url(), format!("redlock://{},127.0.0.1:1,127.0.0.1:2", server.addr())] {
        let config = LockConfig::new(format!("{url}?timeout=2s")).password_from(|| async {
            std::thread::park();
            std::future::pending::<Result<String, Infallible>>().await
        });
        let began = Instant::now();
        let error = connect(config).await.map(drop).expect_err("no password");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
        let part = if url.starts_with("redis:") { "the function that gives the password" } else { "0 of 3" };
        assert!(error.to_string().contains(part), "{error:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_login_of_a_client() {
    let Some(server) = redis().await else { return };
    set_password(&[&server], CANARY);
    let url = format!("redis://app:{CANARY}@{}/3", server.addr());
    let application = Client::open(url.as_str()).expect("an address");
    let at = |url: &str| url.parse().expect("an address");
    let info = application.get_connection_info();
    let backend = RedisLock::connect_with(&at("redis://?namespace=of:"), info).await.expect("a connection");
    assert!(!format!("{backend:?}").contains(CANARY));
    let locks = Locks::new(Arc::new(backend)).expect("a keeper");
    let guard = locks.lock("a").await.expect("a free lock");
    let same = client(&format!("{url}?namespace=of:")).await;
    assert!(same.lock("a").try_now().await.expect("an answer").is_none(), "both hold");
    guard.release().await.expect("held");
    // The password comes from elsewhere.
    let other = format!("redis://app:canary-wrong@{}", server.addr());
    let other = Client::open(other).expect("an address");
    let error = RedisLock::connect_with(&at("redis://"), other.get_connection_info()).await;
    assert_eq!(error.expect_err("not with this password").kind(), ErrorKind::Refused);
    let config = LockConfig::new("redis://").password_from(async || Ok::<_, Infallible>(CANARY.into()));
    let (present, _) = config.resolve().expect("an address");
    RedisLock::connect_with(&present, other.get_connection_info()).await.expect("a connection");
    for wrong in ["redis://h", "redis://?db=1", "redis://u@", "redis://?ca=file"] {
        let error = RedisLock::connect_with(&at(wrong), info).await.map(drop).expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong}: {error}");
    }
}
