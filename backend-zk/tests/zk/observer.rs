//! Servers that do not vote, or only read; and a base path that goes.

use std::future::IntoFuture;

use lockwell_core::{ErrorKind, Loss};
use testbed::{ZooKeeper, ZooKeeperEnsemble, if_installed};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::input::becomes;
use crate::servers::{client, ensemble, hold, lasting, options, queued, secs, single, url};

/// One whose session is at an observer excludes the others, waits in their queue, and takes its session along
/// when the observer dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_session_at_an_observer() {
    let Some(servers) = if_installed(ZooKeeperEnsemble::start_with_observer(3, &options()).await) else {
        return;
    };
    let [voters @ .., observer] = servers.servers() else { panic!("no servers") };
    let mode = observer.four_letter("srvr").expect("an answer");
    assert!(mode.contains("Mode: observer"), "{mode}");
    let (there, voter) = (client(&url(observer.addr())).await, client(&url(voters[0].addr())).await);
    // To and fro.
    for _ in 0..20 {
        let mine = hold(&there, "seen").await;
        assert!(voter.lock("seen").try_now().await.expect("an answer").is_none(), "both hold");
        let waiting = tokio::spawn(voter.lock("seen").wait(secs(30)).into_future());
        queued(&there, "seen", 1).await;
        let token = mine.token();
        mine.release().await.expect("held");
        let theirs = waiting.await.expect("no panic").expect("its turn comes");
        assert!(theirs.token() > token);
        theirs.release().await.expect("held");
    }
    // The only session is at the observer until that dies.
    let proxy = testbed::Proxy::start(voters[1].addr()).await.expect("a proxy");
    proxy.cut();
    let moving = lasting(&format!("{},{}", url(observer.addr()), proxy.addr())).await;
    let kept = moving.lock("kept").ttl(secs(20)).await.expect("a free lock");
    let held = hold(&voter, "turn").await;
    let waiting = tokio::spawn(moving.lock("turn").ttl(secs(20)).wait(secs(60)).into_future());
    queued(&voter, "turn", 1).await;
    observer.kill().expect("killed");
    proxy.heal();
    assert!(voter.lock("kept").try_now().await.expect("an answer").is_none(), "both hold");
    held.release().await.expect("held");
    let turn = waiting.await.expect("no panic").expect("its place moved along");
    assert!(kept.is_held() && turn.is_held(), "{kept:?} {turn:?}");
    turn.release().await.expect("held");
    kept.release().await.expect("held");
    hold(&voter, "kept").await.release().await.expect("nothing was left behind");
}

/// The majority goes while a lock is held, and the server that is left turns read-only. Its holder is told,
/// nobody gets a lock from it, and who waits gets its turn when the others are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_server_turns_read_only() {
    let Some(servers) = ensemble(&options().setting("-Dreadonlymode.enabled", "true")).await else { return };
    let locks = client(&servers.url()).await;
    let guard = locks.lock("held").ttl(secs(3)).await.expect("a free lock");
    let token = guard.token();
    let waiting = tokio::spawn(locks.lock("held").ttl(secs(3)).wait(secs(120)).into_future());
    queued(&locks, "held", 1).await;
    let [left, others @ ..] = servers.servers() else { panic!("no servers") };
    for other in others {
        other.kill().expect("killed");
    }
    let loss = guard.lost().await;
    assert!(matches!(loss, Loss::Expired | Loss::Taken), "{loss:?}");
    becomes(left, "Mode: read-only").await;
    let error = locks.lock("other").ttl(secs(3)).wait(secs(2)).await.expect_err("it only reads");
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut), "{error:#}");
    assert!(!waiting.is_finished());
    for other in others {
        other.restart().await.expect("started");
    }
    servers.ready().await.expect("an ensemble");
    let next = waiting.await.expect("no panic").expect("its turn comes");
    assert!(next.token() > token);
    next.release().await.expect("held");
}

async fn delete_all(client: &Client, path: &str) {
    for child in client.list_children(path).await.expect("a node") {
        Box::pin(delete_all(client, &format!("{path}/{child}"))).await;
    }
    client.delete(path, None).await.expect("deleted");
}

/// The base path is deleted while clients are there: one makes it again, the other says that it is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_that_goes() {
    let Some(server) = single(&options()).await else { return };
    let operator = operator(&server).await;
    for (option, made) in [("", true), ("?create=false", false)] {
        let directory = CreateMode::Persistent.with_acls(Acls::anyone_all());
        operator.mkdir("/app/locks", &directory).await.expect("made");
        let locks = client(&format!("{}/app/locks{option}", server.url())).await;
        let kept = hold(&locks, "a").await;
        delete_all(&operator, "/app").await;
        assert_eq!(kept.lost().await, Loss::Taken);
        let token = kept.token();
        drop(kept);
        if made {
            let again = hold(&locks, "a").await;
            assert!(again.token() > token);
            again.release().await.expect("held");
            hold(&locks, "b").await.release().await.expect("held");
        } else {
            let error = locks.lock("a").wait(secs(5)).await.expect_err("no base");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            assert!(error.to_string().contains("base path"), "{error}");
            assert!(locks.inspect("a").await.expect("an answer").holders.is_empty());
        }
    }
}

async fn operator(server: &ZooKeeper) -> Client {
    Client::connect(&server.addr().to_string()).await.expect("a client")
}
