//! What an ensemble and a network can do to a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockwell_core::{DistributedLock, ErrorKind, Locks, Moment};
use testbed::{Direction, Proxy, ZooKeeper, ZooKeeperEnsemble};
use zookeeper_client::Client;

use crate::servers::{client, connect, ensemble, heir, hold, options, queued, secs, single, url};

/// The holder's server loses its leader and does not know it for longer than the session lasts. The holder
/// must not consider itself the holder when the next one gets the lock, though its own server goes on
/// answering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_holder_on_a_cut_off_follower_stops_in_time() {
    // An island of five seconds, and sessions of two.
    let options = options().setting("tickTime", "500").setting("syncLimit", "10").setting("initLimit", "20");
    let Some(servers) = ensemble(&options).await else { return };
    let mut longest = Duration::ZERO;
    for round in 0..3 {
        let name = format!("island-{round}");
        let follower = servers.followers().await.expect("an answer")[0];
        let leader = servers.leader().await.expect("an answer");
        let one = client(&url(servers.addresses()[follower])).await;
        let two = client(&url(servers.addresses()[leader])).await;
        let guard = one.lock(name.as_str()).ttl(secs(2)).await.expect("a free lock");
        let heir = heir(two.lock(name.as_str()).ttl(secs(2)).wait(secs(30)));
        queued(&two, &name, 1).await;
        tokio::time::sleep(secs(3) + Duration::from_millis(137) * round).await;
        assert!(guard.is_held(), "lost without a fault: {:?}", guard.lease_state());
        let cut = Moment::now();
        servers.isolate(follower).expect("links");
        guard.lost().await;
        let told = Moment::now();
        let (granted, next) = heir.await.expect("no panic");
        println!(
            "round {round}: told {:?} after the cut, the heir came {:?} after it",
            told.since(cut),
            granted.since(cut)
        );
        assert!(told <= granted, "both were valid for {:?}", told.since(granted));
        longest = longest.max(told.since(cut));
        servers.rejoin(follower).expect("links");
        next.release().await.expect("held");
        servers.ready().await.expect("an ensemble");
    }
    // On a busy machine the last heartbeat may be old when the link is cut, but not every time.
    assert!(longest >= Duration::from_millis(800), "ended too soon each time");
}

/// The holder's server is the leader, is cut off, and does not know it for longer than the session lasts; the
/// others have another leader at once, since they were restarted. The old one goes on answering all that
/// needs no majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_holder_on_a_cut_off_leader_stops_in_time() {
    // The old leader leads for ten seconds more.
    let options = options().setting("tickTime", "500").setting("syncLimit", "20").setting("initLimit", "20");
    let Some(servers) = ensemble(&options).await else { return };
    let leader = servers.leader().await.expect("an answer");
    let followers = servers.followers().await.expect("an answer");
    let addresses = servers.addresses();
    let one = client(&url(addresses[leader])).await;
    let others: Vec<_> = followers.iter().map(|follower| addresses[*follower]).collect();
    let two = client(&servers.url_via(&others)).await;
    let guard = one.lock("reign").ttl(secs(3)).await.expect("a free lock");
    let heir = heir(two.lock("reign").ttl(secs(20)).wait(secs(60)));
    queued(&two, "reign", 1).await;
    tokio::time::sleep(secs(4)).await;
    assert!(guard.is_held(), "lost without a fault: {:?}", guard.lease_state());
    servers.isolate(leader).expect("links");
    let cut = Moment::now();
    for follower in &followers {
        servers.servers()[*follower].kill().expect("killed");
    }
    for follower in &followers {
        servers.servers()[*follower].restart().await.expect("started");
    }
    guard.lost().await;
    let told = Moment::now();
    let (granted, next) = heir.await.expect("no panic");
    println!("told {:?} after the cut, the heir came {:?} after it", told.since(cut), granted.since(cut));
    assert!(told <= granted, "both were valid for {:?}", told.since(granted));
    assert!(granted.since(cut) < secs(30), "{:?}", granted.since(cut));
    servers.rejoin(leader).expect("links");
    next.release().await.expect("held");
}

/// Servers that do not tell their tick are taken to have the usual one: a guess from their shortest session
/// would make it too short, and half of a tick is what a heartbeat can take to reach the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_tick_is_a_long_one() {
    let options = options()
        .setting("tickTime", "500")
        .setting("minSessionTimeout", "250")
        .setting("initLimit", "20")
        .setting("4lw.commands.whitelist", "srvr,ruok");
    let Some(servers) = ensemble(&options).await else { return };
    let shortest = async |suffix| connect(&(servers.url() + suffix)).await.1.capabilities().min_ttl();
    assert!(shortest("").await >= secs(4), "{:?}", shortest("").await);
    assert!(shortest("?tick=500ms").await <= secs(1), "{:?}", shortest("?tick=500ms").await);
}

/// One of three servers takes connections and is silent. Everybody connects, and no lock is lost when it
/// falls silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_one_server_is_silent() {
    let Some(servers) = ensemble(&options().setting("syncLimit", "10").setting("initLimit", "50")).await
    else {
        return;
    };
    let mut proxies = Vec::new();
    for address in servers.addresses() {
        proxies.push(Proxy::start(address).await.expect("a proxy"));
    }
    let through: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let url = servers.url_via(&through);
    let locks = client(&url).await;
    for round in 0..9 {
        let silent = &proxies[round % 3];
        let guard = locks.lock("kept").ttl(secs(6)).wait(secs(20)).await.expect("a free lock");
        silent.blackhole(Direction::Both);
        let mut connecting = Vec::new();
        for _ in 0..4 {
            let url = url.clone();
            connecting.push(tokio::spawn(async move { client(&url).await }));
        }
        tokio::time::sleep(secs(8)).await;
        assert!(guard.is_held(), "round {round}: {:?}", guard.lease_state());
        for connecting in connecting {
            connecting.await.expect("one of the others serves");
        }
        silent.heal();
        guard.release().await.expect("held");
    }
}

/// Locks that are held and idle cost few requests, with a short lease, too, and many cost no more than one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_idle_locks_cost_few_requests() {
    let options = options().setting("tickTime", "2000");
    let Some(servers) = ensemble(&options).await else { return };
    let received = || {
        let counts = servers.servers().iter().map(|server| {
            let answer = server.four_letter("mntr").expect("an answer");
            let line = answer.lines().find_map(|line| line.strip_prefix("zk_packets_received"));
            line.expect("a counter").trim().parse::<u64>().expect("a number")
        });
        counts.sum::<u64>()
    };
    // The servers count our questions, too.
    let (first, asked) = (received(), received());
    let questions = asked - first;
    for (length, count) in [(4, 1), (4, 50), (5, 1), (6, 1), (6, 50)] {
        let locks = client(&servers.url()).await;
        let mut guards = Vec::new();
        for number in 0..count {
            let name = format!("idle-{number}");
            guards
                .push(locks.lock(name.as_str()).ttl(secs(length)).wait(secs(20)).await.expect("a free lock"));
            // Each is renewed at a time of its own.
            tokio::time::sleep(Duration::from_millis(37)).await;
        }
        tokio::time::sleep(secs(length)).await;
        let before = received();
        tokio::time::sleep(secs(length * 3)).await;
        let requests = (received() - before - questions) / 3;
        println!("ttl {length} s, {count} locks: {requests} requests for each ttl");
        for guard in guards {
            assert!(guard.is_held(), "{:?}", guard.lease_state());
            guard.release().await.expect("held");
        }
        // Eleven for each timeout of the session, which is up to a quarter shorter than the ttl.
        assert!(requests <= 16, "{requests} requests in {length} s for {count} idle locks");
        locks.close().await.expect("closed");
    }
}

/// What the workers of a test have seen together.
#[derive(Default)]
struct Seen {
    inside: AtomicU64,
    last: AtomicU64,
    grants: AtomicU64,
    stop: AtomicBool,
}

/// Takes the lock again and again. Grants come in the order of the queue, since the token is the place in it.
async fn work(locks: Locks, seen: Arc<Seen>) {
    while !seen.stop.load(Ordering::SeqCst) {
        let guard = locks.lock("load").ttl(secs(15)).wait(secs(120)).await.expect("no waiter is lost");
        assert_eq!(seen.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
        let before = seen.last.swap(guard.token().get(), Ordering::SeqCst);
        assert!(before < guard.token().get(), "token {} after {before}", guard.token());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(guard.is_held(), "lost: {:?}", guard.lease_state());
        seen.inside.fetch_sub(1, Ordering::SeqCst);
        seen.grants.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = guard.release().await {
            assert!(error.is_retryable(), "{error:#}");
        }
    }
}

/// What the servers think, for the day when the test fails.
fn state(servers: &ZooKeeperEnsemble) -> Vec<String> {
    let ask =
        |server: &ZooKeeper| ["srvr", "dump", "cons"].map(|word| format!("{:?}", server.four_letter(word)));
    servers.servers().iter().flat_map(ask).collect()
}

/// The leader is killed again and again. All who wait are served, never two at a time, and tokens rise.
async fn kill_leaders(length: Duration) {
    const WORKERS: u64 = 12;
    // An election that goes wrong at first is repeated after the time of `initLimit`.
    let options = options().setting("syncLimit", "10").setting("initLimit", "15");
    let Some(servers) = ensemble(&options).await else { return };
    let seen = Arc::new(Seen::default());
    let mut workers = Vec::new();
    for _ in 0..3 {
        let locks = client(&servers.url()).await;
        for _ in 0..WORKERS / 3 {
            workers.push(tokio::spawn(work(locks.clone(), Arc::clone(&seen))));
        }
    }
    let end = Moment::now().after(length);
    let mut times = Vec::new();
    while !end.has_passed() {
        tokio::time::sleep(secs(2)).await;
        let leader = servers.leader().await.expect("a leader");
        let before = seen.grants.load(Ordering::SeqCst);
        servers.servers()[leader].kill().expect("killed");
        let killed = Moment::now();
        while seen.grants.load(Ordering::SeqCst) < before + WORKERS {
            let late = Moment::now().since(killed) > secs(60);
            assert!(!late, "nobody is served any more: {:#?}", state(&servers));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times.push(Moment::now().since(killed));
        servers.servers()[leader].restart().await.expect("started");
        servers.ready().await.expect("an ensemble");
    }
    seen.stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.expect("no worker fails");
    }
    times.sort_unstable();
    let grants = seen.grants.load(Ordering::SeqCst);
    println!(
        "{grants} grants; {} leaders killed, and twelve served after {:.2?} in the middle, {:.2?} at most",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_the_leader_is_killed_under_load() {
    kill_leaders(secs(40)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn the_leader_is_killed_for_long() {
    kill_leaders(secs(600)).await;
}

/// Two of three servers are gone: nobody gets a lock, who holds one is told in time, and all goes on when
/// they are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_the_majority_is_down() {
    let Some(servers) = ensemble(&options()).await else { return };
    let locks = client(&servers.url()).await;
    let guard = locks.lock("held").ttl(secs(3)).await.expect("a free lock");
    let token = guard.token();
    let down: Vec<_> = servers.servers().iter().take(2).collect();
    for server in &down {
        server.kill().expect("killed");
    }
    let began = Moment::now();
    let waiting = tokio::spawn(locks.lock("free").ttl(secs(3)).wait(secs(120)).into_future());
    let error = locks.lock("other").ttl(secs(3)).wait(secs(1)).await.expect_err("no quorum");
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut), "{error:#}");
    // If the session moved to the server that is left, nobody can tell how much time it has there, and it is
    // ended early.
    let loss = guard.lost().await;
    assert!(matches!(loss, lockwell_core::Loss::Expired | lockwell_core::Loss::Taken), "{loss:?}");
    assert!(Moment::now().since(began) < secs(4), "told late");
    for server in &down {
        server.restart().await.expect("started");
    }
    servers.ready().await.expect("an ensemble");
    waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    let next = hold(&locks, "held").await;
    assert!(next.token() > token);
    next.release().await.expect("held");
}

/// The session expires while the claim holds, while it waits, and while its node is being made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_expire() {
    let Some(server) = single(&options()).await else { return };
    let two = client(&server.url()).await;
    for way in [Direction::Both, Direction::ToClient, Direction::ToServer] {
        let proxy = Proxy::start(server.addr()).await.expect("a proxy");
        let one = client(&url(proxy.addr())).await;
        let ttl = secs(1);
        // Holding.
        let held = one.lock("held").ttl(ttl).await.expect("a free lock");
        // Waiting.
        let other = hold(&two, "waiting").await;
        let waiting = tokio::spawn(one.lock("waiting").ttl(ttl).wait(secs(40)).into_future());
        queued(&two, "waiting", 1).await;
        proxy.blackhole(way);
        // Making its node.
        let making = tokio::spawn(one.lock("making").ttl(ttl).wait(secs(40)).into_future());
        let heir = two.lock("held").wait(secs(20)).await.expect("the session expires");
        assert!(!held.is_held(), "both are held");
        tokio::time::sleep(ttl * 3).await;
        proxy.heal();
        let made = making.await.expect("no panic").expect("a free lock");
        assert!(made.is_held());
        let token = other.token();
        other.release().await.expect("held");
        let waited = waiting.await.expect("no panic").expect("its turn comes");
        assert!(waited.token() > token);
        let error = held.release().await.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
        assert!(heir.is_held(), "the old holder freed the heir's lock");
        for guard in [made, waited, heir] {
            let name = guard.name().to_string();
            guard.release().await.expect("held");
            queued(&two, &name, 0).await;
            hold(&two, &name).await.release().await.expect("held");
        }
    }
}

/// An operator deletes everything, those who wait included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_queue_is_deleted() {
    let Some(server) = single(&options()).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let operator = Client::connect(&server.addr().to_string()).await.expect("a client");
    let held = one.lock("gone").ttl(secs(3)).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("gone").wait(secs(20)).into_future());
    queued(&one, "gone", 1).await;
    let mut nodes = operator.list_children("/lockwell/gone").await.expect("a folder");
    // The last first: the waiter must hear of its own end, not of the holder's.
    nodes.sort_by_key(|name| std::cmp::Reverse(name[name.len() - 10..].to_owned()));
    for node in nodes {
        operator.delete(&format!("/lockwell/gone/{node}"), None).await.expect("deleted");
    }
    operator.delete("/lockwell/gone", None).await.expect("deleted");
    let error = waiting.await.expect("no panic").expect_err("its place was deleted");
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error:#}");
    assert_eq!(held.lost().await, lockwell_core::Loss::Taken);
    let next = hold(&two, "gone").await;
    assert!(next.token() > held.token());
}
