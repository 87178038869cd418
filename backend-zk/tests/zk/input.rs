//! Odd names, and servers that cannot serve.

use std::collections::HashSet;
use std::time::Duration;

use lockwell_core::{ErrorKind, LockName, Moment};
use testbed::ZooKeeper;
use zookeeper_client::Client;

use crate::rights::refusal;
use crate::servers::{client, ensemble, hold, options, single};

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

/// Waits until a server says this of itself.
pub(crate) async fn becomes(server: &ZooKeeper, said: &str) {
    let end = Moment::now().after(Duration::from_secs(30));
    loop {
        let answer = server.four_letter("srvr").unwrap_or_default();
        if answer.contains(said) {
            return;
        }
        assert!(!end.has_passed(), "{answer}, not {said}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A server that has lost its ensemble, and is told to answer questions nevertheless, is no server for locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads_is_refused() {
    let Some(servers) = ensemble(&options().setting("-Dreadonlymode.enabled", "true")).await else { return };
    let [server, others @ ..] = servers.servers() else { panic!("no servers") };
    for other in others {
        other.kill().expect("killed");
    }
    becomes(server, "Mode: read-only").await;
    let error = refusal(&format!("zk://{}?timeout=3s", server.addr())).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    assert!(error.is_retryable(), "{error:#}");
    let said = format!("{} is read-only: it has no quorum", server.addr());
    assert!(error.to_string().contains(&said), "{error}");
}

/// Who cannot connect is told what each of the servers says, and no password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_say_that_cannot_be_reached() {
    let Some(servers) = ensemble(&options()).await else { return };
    let addresses = servers.addresses();
    let hosts = format!("{},{},{},-no-such-host.invalid", addresses[0], addresses[1], addresses[2]);
    servers.servers()[1].kill().expect("killed");
    servers.servers()[2].pause().expect("paused");
    becomes(&servers.servers()[0], "not currently serving").await;
    let error = refusal(&format!("zk://ann:s3cret@{hosts}?timeout=2s")).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    for said in [
        format!("{} is not serving: it has no quorum", addresses[0]),
        format!("{}: connection refused", addresses[1]),
        format!("{} takes connections but does not answer", addresses[2]),
        "-no-such-host.invalid:2181: host name unknown".to_owned(),
    ] {
        assert!(error.to_string().contains(&said), "{said}: {error}");
    }
    assert!(!format!("{error:#} {error:?}").contains("s3cret"), "{error:#}");
}
