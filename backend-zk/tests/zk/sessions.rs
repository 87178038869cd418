//! Sessions that end, and connections that do not last, around a lock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockwell_core::{ErrorKind, LeaseState, LockGuard, Locks, Moment};
use testbed::{Direction, Proxy, ZooKeeper};
use zookeeper_client::{self as zk, Client};

use crate::servers::{client, heir, hold, lasting, options, queued, secs, single, url};
use crate::wire::end_session;

/// One who looks from outside.
struct Witness {
    addr: SocketAddr,
    client: Client,
}

impl Witness {
    async fn of(server: &ZooKeeper) -> Self {
        let addr = server.addr();
        Self { addr, client: Client::connect(&addr.to_string()).await.expect("a client") }
    }

    /// The sessions of the nodes in the queue of a lock, in order.
    async fn sessions(&self, lock: &str) -> Vec<i64> {
        let folder = format!("/lockwell/{lock}");
        let mut names = match self.client.list_children(&folder).await {
            Err(zk::Error::NoNode) => Vec::new(),
            names => names.expect("an answer"),
        };
        names.sort_by_key(|name| name[name.len() - 10..].to_owned());
        let mut sessions = Vec::new();
        for name in names {
            let stat = self.client.check_stat(&format!("{folder}/{name}")).await.expect("an answer");
            sessions.extend(stat.map(|stat| stat.ephemeral_owner));
        }
        sessions
    }

    /// Waits until so many stand in the queue.
    async fn wait_for(&self, lock: &str, nodes: usize) -> Vec<i64> {
        let end = Moment::now().after(secs(30));
        loop {
            let sessions = self.sessions(lock).await;
            if sessions.len() == nodes {
                return sessions;
            }
            assert!(!end.has_passed(), "not {nodes} in the queue of {lock}: {sessions:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end_session(&self, session: i64) {
        end_session(self.addr, session).await;
    }
}

pub(crate) async fn becomes(guard: &LockGuard, wanted: LeaseState, within: Duration) {
    let end = Moment::now().after(within);
    while guard.lease_state() != wanted {
        assert!(!end.has_passed(), "{:?}, not {wanted:?}", guard.lease_state());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn leave(guard: LockGuard, locks: &Locks) {
    let name = guard.name().to_string();
    guard.release().await.expect("held");
    queued(locks, &name, 0).await;
    hold(locks, &name).await.release().await.expect("nothing was left behind");
}

/// A broken connection makes the guard doubtful at once, a new one makes it sure again, and the deadline ends
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_knows_about_its_connection() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (lasting(&url(proxy.addr())).await, client(&server.url()).await);
    let guard = one.lock("seen").ttl(secs(20)).await.expect("a free lock");
    for _ in 0..2 {
        assert_eq!(guard.lease_state(), LeaseState::Held);
        proxy.cut();
        becomes(&guard, LeaseState::Suspect, secs(3)).await;
        assert!(guard.is_held() && guard.time_left() > secs(10), "{guard:?}");
        proxy.heal();
        becomes(&guard, LeaseState::Held, secs(10)).await;
    }
    let brief = client(&url(proxy.addr())).await;
    let short = brief.lock("short").ttl(secs(2)).await.expect("a free lock");
    proxy.cut();
    becomes(&short, LeaseState::Suspect, secs(1)).await;
    let loss = short.lost().await;
    assert_eq!(loss, lockwell_core::Loss::Expired);
    assert_eq!(guard.lease_state(), LeaseState::Suspect, "a longer session lives on");
    let heir = two.lock("short").wait(secs(20)).await.expect("the session expires");
    proxy.heal();
    becomes(&guard, LeaseState::Held, secs(10)).await;
    assert!(heir.is_held() && heir.token() > short.token());
    leave(heir, &two).await;
    leave(guard, &two).await;
}

/// Leases of eighty lengths need few sessions, and the sessions that nobody uses any more are closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_few() {
    let Some(server) = single(&options()).await else { return };
    let sessions = || {
        let answer = server.four_letter("mntr").expect("an answer");
        let line = answer.lines().find_map(|line| line.strip_prefix("zk_num_alive_connections"));
        line.expect("a counter").trim().parse::<u32>().expect("a number")
    };
    let before = sessions();
    let locks = client(&server.url()).await;
    for length in (2..82).rev() {
        let guard = locks.lock("many").ttl(secs(length)).await.expect("a free lock");
        guard.release().await.expect("held");
    }
    let most = sessions() - before;
    let held = locks.lock("held").ttl(secs(40)).await.expect("a free lock");
    println!("{most} sessions for 80 lengths of leases");
    assert!(most <= 22, "{most} sessions");
    let end = Moment::now().after(secs(90));
    while sessions() - before > 2 {
        assert!(!end.has_passed(), "{} sessions are left", sessions() - before);
        tokio::time::sleep(secs(1)).await;
    }
    assert!(held.is_held());
    leave(held, &locks).await;
}

/// The lock delay is the end of the lease, and the session lasts at least as long as the lease. The steps of
/// the timeouts are 22.7 and 28.4 seconds here.
#[tokio::test]
async fn a_long_lock_delay_leaves_the_holder_its_time() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&url(server.addr())).await;
    let guard = locks.lock("delayed").ttl(secs(3)).lock_delay(secs(25)).await.expect("a free lock");
    assert!(guard.time_left() > secs(2), "{:?}", guard.time_left());
    tokio::time::sleep(secs(4)).await;
    assert!(guard.is_held(), "it is renewed");
    guard.release().await.expect("held");
}

/// Some heartbeat is always under way, and none keeps the session that nobody has any more.
#[tokio::test]
async fn a_session_ends_with_its_client_on_a_slow_network() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&url(proxy.addr())).await;
    // A heartbeat every 91 ms, and 120 ms until its answer.
    let guard = locks.lock("slow").ttl(secs(1)).await.expect("a free lock");
    guard.release().await.expect("held");
    proxy.delay(Duration::from_millis(60));
    tokio::time::sleep(secs(1)).await;
    locks.close().await.expect("nothing is left");
    let end = Moment::now().after(secs(20));
    while proxy.connections() > 0 {
        assert!(!end.has_passed(), "{} connections are left", proxy.connections());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whoever ends at once after that leaves neither a session nor an error in the log of the server.
#[tokio::test]
async fn the_end_of_a_client_waits_for_the_end_of_its_sessions() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&url(proxy.addr())).await;
    locks.lock("last").ttl(secs(20)).await.expect("a free lock").release().await.expect("held");
    proxy.delay(Duration::from_millis(50));
    locks.close().await.expect("nothing is left");
    let sessions = server.four_letter("cons").expect("an answer");
    assert!(!sessions.contains("sid=0x"), "{sessions}");
}

/// The server comes back with a smaller `maxSessionTimeout`, and the session gets that when it is taken over.
/// The holder must not go by the time that it was granted at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_session_that_moves_is_granted_less() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    // The shortest session is the one that the server grants later.
    let far = url(proxy.addr()) + "?session=3s";
    let (one, two) = (client(&far).await, client(&server.url()).await);
    for (round, settled) in [secs(4), Duration::from_millis(50)].into_iter().enumerate() {
        let name = format!("less-{round}");
        server.set("maxSessionTimeout", "90000").expect("written");
        server.kill().expect("killed");
        server.restart().await.expect("started");
        let guard = one.lock(name.as_str()).ttl(secs(30)).wait(secs(30)).await.expect("a free lock");
        becomes(&guard, LeaseState::Held, secs(10)).await;
        server.set("maxSessionTimeout", "3000").expect("written");
        server.kill().expect("killed");
        server.restart().await.expect("started");
        becomes(&guard, LeaseState::Held, secs(20)).await;
        // In the second round the connection is lost before anybody can have asked.
        tokio::time::sleep(settled).await;
        let heir = heir(two.lock(name.as_str()).ttl(secs(3)).wait(secs(60)));
        queued(&two, &name, 1).await;
        assert!(guard.is_held(), "lost without a fault: {:?}", guard.lease_state());
        proxy.cut();
        let cut = Moment::now();
        guard.lost().await;
        let told = Moment::now();
        let (granted, heir) = heir.await.expect("no panic");
        println!(
            "round {round}: told {:?} after the cut, the heir came {:?} after it",
            told.since(cut),
            granted.since(cut)
        );
        assert!(told <= granted, "both were valid for {:?}", told.since(granted));
        proxy.heal();
        leave(heir, &two).await;
    }
}

/// Somebody ends the session while the claim holds, while it waits, and while its node is being made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_ended_by_another_client() {
    let Some(server) = single(&options()).await else { return };
    let witness = Witness::of(&server).await;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (client(&url(proxy.addr())).await, client(&server.url()).await);
    let ttl = secs(20);
    let held = one.lock("held").ttl(ttl).await.expect("a free lock");
    let session = witness.wait_for("held", 1).await[0];
    let other = hold(&two, "waiting").await;
    let waiting = tokio::spawn(one.lock("waiting").ttl(ttl).wait(secs(60)).into_future());
    assert_eq!(witness.wait_for("waiting", 2).await[1], session, "one session serves both");
    witness.end_session(session).await;
    let ended = Moment::now();
    assert_eq!(held.lost().await, lockwell_core::Loss::Taken);
    assert!(Moment::now().since(ended) < ttl / 2, "the news came no sooner than the deadline");
    // The one who waits is in the queue again, in a new session.
    let next = witness.wait_for("waiting", 2).await[1];
    assert_ne!(next, session);
    let error = held.release().await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    let token = other.token();
    other.release().await.expect("held");
    let waited = waiting.await.expect("no panic").expect("its turn comes");
    assert!(waited.token() > token);

    // The node is made, and nobody hears of it.
    hold(&two, "making").await.release().await.expect("held");
    proxy.blackhole(Direction::ToClient);
    let making = tokio::spawn(one.lock("making").ttl(ttl).wait(secs(60)).into_future());
    assert_eq!(witness.wait_for("making", 1).await, [next]);
    witness.end_session(next).await;
    witness.wait_for("making", 0).await;
    proxy.heal();
    let made = making.await.expect("no panic").expect("a free lock");
    let last = witness.wait_for("making", 1).await[0];
    assert!(last != next && made.is_held());
    assert_eq!(waited.lost().await, lockwell_core::Loss::Taken);
    leave(made, &two).await;
    queued(&two, "waiting", 0).await;
    hold(&two, "waiting").await.release().await.expect("nothing was left behind");
}

/// The answer to a create is lost, but the session lives: the node is found, and with it the place in the
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_making_was_not_answered_is_found() {
    let Some(server) = single(&options()).await else { return };
    let witness = Witness::of(&server).await;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (client(&url(proxy.addr())).await, client(&server.url()).await);
    for round in 0..4 {
        let name = format!("found-{round}");
        // In half of the rounds another client had the lock before.
        let maker = if round % 2 == 0 { &one } else { &two };
        maker.lock(name.as_str()).ttl(secs(20)).await.expect("a free lock").release().await.expect("held");
        proxy.blackhole(Direction::ToClient);
        let first = tokio::spawn(one.lock(name.as_str()).ttl(secs(20)).wait(secs(60)).into_future());
        let session = witness.wait_for(&name, 1).await[0];
        let second = tokio::spawn(two.lock(name.as_str()).wait(secs(60)).into_future());
        assert_eq!(witness.wait_for(&name, 2).await[0], session);
        proxy.heal();
        let first = first.await.expect("no panic").expect("a free lock");
        assert!(!second.is_finished(), "both hold");
        assert_eq!(witness.wait_for(&name, 2).await[0], session, "the place was given away");
        let token = first.token();
        first.release().await.expect("held");
        let second = second.await.expect("no panic").expect("its turn comes");
        assert!(second.token() > token);
        leave(second, &two).await;
    }
}

/// CURATOR-498 and CURATOR-604: the answer to a create is lost, and the client gives its session up before
/// the server does. The old node stands in the queue, has the right id, and is about to vanish. A lock that
/// rests on it would be held by two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_of_a_former_session_is_not_ours() {
    let Some(server) = single(&options()).await else { return };
    let witness = Witness::of(&server).await;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (client(&url(proxy.addr())).await, client(&server.url()).await);
    let ttl = secs(5);
    one.lock("twin").ttl(ttl).await.expect("a free lock").release().await.expect("held");
    proxy.blackhole(Direction::ToClient);
    let acquiring = tokio::spawn(one.lock("twin").ttl(ttl).wait(secs(90)).into_future());
    let former = witness.wait_for("twin", 1).await[0];
    // A server that starts grants its sessions their whole time again. The client has stopped by then.
    server.kill().expect("killed");
    tokio::time::sleep(ttl * 3).await;
    server.restart().await.expect("started");
    let restarted = Moment::now();
    // The old one's session is over, too.
    let witness = Witness::of(&server).await;
    assert_eq!(witness.sessions("twin").await, [former], "the old node is still there");
    proxy.heal();
    let guard = acquiring.await.expect("no panic").expect("a free lock");
    let sessions = server.four_letter("dump").expect("an answer");
    assert!(sessions.contains(&format!("{former:#x}")), "the old session was over: {sessions}");
    let ours = witness.wait_for("twin", 1).await[0];
    assert_ne!(ours, former, "the lock rests on the old node");
    // Past the end of the old session.
    restarted.after(ttl * 2).sleep().await;
    assert!(guard.is_held(), "{guard:?}");
    assert_eq!(witness.sessions("twin").await, [ours]);
    assert!(two.lock("twin").try_now().await.expect("an answer").is_none(), "both hold");
    leave(guard, &two).await;
}

/// While the one who waits is away, everything before it goes, and its own node, too. The news of both comes
/// at once when it is back, in any order: it must not take the first for its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_was_deleted_meanwhile_gets_no_turn() {
    let Some(server) = single(&options()).await else { return };
    let witness = Witness::of(&server).await;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (lasting(&url(proxy.addr())).await, client(&server.url()).await);
    for round in 0..6 {
        let name = format!("away-{round}");
        let held = hold(&two, &name).await;
        let waiting = tokio::spawn(one.lock(name.as_str()).wait(secs(60)).into_future());
        witness.wait_for(&name, 2).await;
        // The watches are set by the time that another request of theirs is answered.
        one.lock("other").await.expect("a free lock").release().await.expect("held");
        proxy.cut();
        let folder = format!("/lockwell/{name}");
        for node in witness.client.list_children(&folder).await.expect("a folder") {
            witness.client.delete(&format!("{folder}/{node}"), None).await.expect("deleted");
        }
        proxy.heal();
        let error = waiting.await.expect("no panic").expect_err("its place was deleted");
        assert_eq!(error.kind(), ErrorKind::NotHeld, "{error:#}");
        drop(held);
        leave(hold(&two, &name).await, &two).await;
    }
}

/// The folder of a lock is deleted whenever it is empty: between its making and the node's, and between two
/// holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_folder_goes_at_any_time() {
    const ROUNDS: usize = 150;
    let Some(server) = single(&options()).await else { return };
    let witness = Witness::of(&server).await;
    let mut workers = Vec::new();
    let last = Arc::new(tokio::sync::Mutex::new(0));
    for _ in 0..2 {
        let (locks, last) = (client(&server.url()).await, Arc::clone(&last));
        workers.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locks.lock("fleeting").wait(secs(60)).await.expect("its turn comes");
                let mut last = last.try_lock().expect("nobody else holds it");
                assert!(*last < guard.token().get(), "token {} after {last}", guard.token());
                *last = guard.token().get();
                drop(last);
                guard.release().await.expect("held");
                // Leaves the folder empty now and then.
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }));
    }
    let mut deleted = 0;
    while !workers.iter().all(tokio::task::JoinHandle::is_finished) {
        deleted += usize::from(witness.client.delete("/lockwell/fleeting", None).await.is_ok());
    }
    for worker in workers {
        worker.await.expect("no worker fails");
    }
    println!("the folder was deleted {deleted} times");
    assert!(deleted > 5, "the folder was deleted {deleted} times only");
}

/// Whoever asked for the first session, and is not polled meanwhile, keeps no other from it.
#[tokio::test]
async fn an_acquire_that_is_not_polled_does_not_keep_others_from_a_session() {
    let Some(server) = single(&options()).await else { return };
    let locks = client(&url(server.addr())).await;
    let mut idle = Vec::new();
    for number in 0..3 {
        let mut future = Box::pin(locks.lock(format!("idle/{number}")).into_future());
        assert!(future.as_mut().now_or_never().is_none(), "no session yet");
        idle.push(future);
    }
    let guard = locks.lock("here").wait(secs(20)).await.expect("a session");
    guard.release().await.expect("held");
    drop(idle);
}

/// Nor does it leave an old error to others.
#[tokio::test]
async fn an_acquire_that_was_given_up_leaves_no_error_to_others() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&url(proxy.addr())).await;
    proxy.cut();
    let mut given_up = Box::pin(locks.lock("given-up").into_future());
    assert!(given_up.as_mut().now_or_never().is_none(), "no session yet");
    drop(given_up);
    // Until the session could not be opened.
    tokio::time::sleep(secs(10)).await;
    proxy.heal();
    let guard = locks.lock("here").try_now().await.expect("a session").expect("a free lock");
    guard.release().await.expect("held");
}
