//! A server that was alone when a client connected, and is a member of an ensemble later.

use std::net::TcpListener;
use std::time::Duration;

use lockwell_core::Moment;
use testbed::{Proxy, ZooKeeper};
use zookeeper_client::Client;

use crate::frames::{CREATE, Frames, SET_DATA};
use crate::servers::{client, ensemble, heir, options, queued, secs, single, url};

/// The host name of the server leads to a member of an ensemble, which is then cut off from its leader. It
/// goes on answering reads. They must not count as proof that the session lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_session_that_opens_asks_what_its_server_is() {
    let options = options().setting("tickTime", "500").setting("syncLimit", "10").setting("initLimit", "20");
    let (Some(alone), Some(servers)) = (single(&options).await, ensemble(&options).await) else { return };
    let follower = servers.followers().await.expect("an answer")[0];
    let leader = servers.leader().await.expect("an answer");
    let proxy = Proxy::start(alone.addr()).await.expect("a proxy");
    let one = client(&url(proxy.addr())).await;
    let two = client(&url(servers.addresses()[leader])).await;
    let before = one.lock("island").ttl(secs(2)).await.expect("a free lock");
    proxy.redirect(servers.addresses()[follower]);
    proxy.cut_existing();
    before.lost().await;
    let guard = one.lock("island").ttl(secs(2)).wait(secs(30)).await.expect("a free lock");
    let heir = heir(two.lock("island").ttl(secs(2)).wait(secs(30)));
    queued(&two, "island", 1).await;
    tokio::time::sleep(secs(3)).await;
    assert!(guard.is_held(), "lost without a fault: {:?}", guard.lease_state());
    servers.isolate(follower).expect("links");
    guard.lost().await;
    let told = Moment::now();
    let (granted, next) = heir.await.expect("no panic");
    assert!(told <= granted, "both were valid for {:?}", told.since(granted));
    servers.rejoin(follower).expect("links");
    next.release().await.expect("held");
}

/// Makes a server the member of an ensemble from its next start on.
fn join(server: &ZooKeeper, id: usize, members: &[String]) {
    std::fs::write(server.folder().join("data/myid"), id.to_string()).expect("a file");
    for (number, member) in members.iter().enumerate() {
        server.set(&format!("server.{}", number + 1), member).expect("a setting");
    }
    for limit in ["initLimit", "syncLimit"] {
        server.set(limit, "20").expect("a setting");
    }
}

/// The server of a session is restarted as a member of an ensemble, and the session goes on. From then on its
/// heartbeats are writes, since reads prove nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_session_that_moves_asks_what_its_server_is() {
    let (Some(first), Some(second)) = (single(&options()).await, single(&options()).await) else { return };
    let frames = Frames::start(first.addr()).await;
    let locks = client(&format!("{}?session=40s", frames.url())).await;
    let guard = locks.lock("kept").ttl(secs(60)).await.expect("a free lock");
    // The first is the creation of a node.
    let writes = || frames.count(CREATE) + frames.count(SET_DATA);
    let before = writes();
    tokio::time::sleep(secs(8)).await;
    assert_eq!(writes(), before, "the server is alone");
    let ports: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let port = |at: usize| ports[at].local_addr().expect("an address").port();
    let members: Vec<_> =
        (0..2).map(|at| format!("127.0.0.1:{}:{}", port(2 * at), port(2 * at + 1))).collect();
    drop(ports);
    for (id, server) in [(1, &first), (2, &second)] {
        join(server, id, &members);
        server.stop().await.expect("stopped");
    }
    let (one, two) = tokio::join!(first.restart(), second.restart());
    one.and(two).expect("started");
    let witness = Client::connect(&first.addr().to_string()).await.expect("a client");
    let (config, _) = witness.get_config().await.expect("an answer");
    let config = String::from_utf8_lossy(&config).into_owned();
    let end = Moment::now().after(secs(45));
    while writes() == before {
        assert!(!end.has_passed(), "the heartbeats are no writes; {config:?}; {guard:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(guard.is_held(), "{guard:?}");
    guard.release().await.expect("held");
}
