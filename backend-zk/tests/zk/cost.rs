//! What a lock costs: round trips, and time beside the raw operations.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::Moment;
use testbed::{Durability, Proxy, ZooKeeper};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::herd::received;
use crate::other::{Maker, Other};
use crate::servers::{client, ensemble, hold, options, queued, single, url};

const EACH_WAY: Duration = Duration::from_millis(50);
const TTL: Duration = Duration::from_secs(10);
const ROUND_TRIP: f64 = 0.100;

/// The lower quartile of some runs, in round trips: what it takes when nobody else is in the way.
fn usual(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 4].as_secs_f64() / ROUND_TRIP
}

/// An acquire and a release take one round trip each, whoever held the lock last, and a hand-over takes one
/// from the release to the grant. A lock that is new to the servers takes two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let (one, two) = (client(&url(proxy.addr())).await, client(&url(proxy.addr())).await);
    for locks in [&one, &two] {
        hold(locks, "warm").await.release().await.expect("held");
    }
    proxy.delay(EACH_WAY);
    let (mut fresh, mut again, mut after, mut releases, mut handovers) =
        (vec![], vec![], vec![], vec![], vec![]);
    for round in 0..8 {
        let name = format!("cost-{round}");
        for (turn, times) in [&mut fresh, &mut again, &mut after].into_iter().enumerate() {
            if turn == 2 {
                hold(&two, &name).await.release().await.expect("held");
            }
            let began = Moment::now();
            let guard = hold(&one, &name).await;
            times.push(Moment::now().since(began));
            let began = Moment::now();
            guard.release().await.expect("held");
            releases.push(Moment::now().since(began));
        }
        let held = hold(&one, &name).await;
        let waiter = tokio::spawn({
            let (two, name) = (two.clone(), name.clone());
            async move {
                let guard = hold(&two, &name).await;
                (Moment::now(), guard)
            }
        });
        queued(&one, &name, 1).await;
        tokio::time::sleep(EACH_WAY * 4).await;
        let began = Moment::now();
        held.release().await.expect("held");
        let (granted, guard) = waiter.await.expect("no panic");
        handovers.push(granted.since(began));
        guard.release().await.expect("held");
    }
    let [fresh, again, after, releases, handovers] = [fresh, again, after, releases, handovers].map(usual);
    println!(
        "round trips: acquire {after:.2} after another, {again:.2} again, {fresh:.2} of a new name; \
         release {releases:.2}, hand-over {handovers:.2}"
    );
    assert!(after < 1.6 && again < 1.6 && releases < 1.6 && handovers < 1.6, "more than one round trip");
    assert!(fresh < 2.6, "more than two round trips");
}

/// Several processes queue for one lock. Each hand-over takes one round trip from the release to the grant,
/// even if who gets the lock gives it back at once, so that all who wait have little time to learn who is
/// still before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips_between_processes() {
    const PROCESSES: u32 = 4;
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let mut clients = Vec::new();
    for _ in 0..PROCESSES {
        clients.push(client(&url(proxy.addr())).await);
        hold(clients.last().expect("one"), "warm").await.release().await.expect("held");
    }
    proxy.delay(EACH_WAY);
    for hold_for in [Duration::ZERO, EACH_WAY * 2, EACH_WAY * 6] {
        let name = format!("chain-{}", hold_for.as_millis());
        let held = hold(&clients[0], &name).await;
        let released = Arc::new(Mutex::new(None));
        let mut workers = Vec::new();
        for locks in clients.clone() {
            let (name, released) = (name.clone(), Arc::clone(&released));
            workers.push(tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..5 {
                    let guard = hold(&locks, &name).await;
                    let before = released.lock().expect("no panic").take();
                    times.extend(before.map(|before| Moment::now().since(before)));
                    tokio::time::sleep(hold_for).await;
                    *released.lock().expect("no panic") = Some(Moment::now());
                    guard.release().await.expect("held");
                }
                times
            }));
        }
        tokio::time::sleep(EACH_WAY * 10).await;
        *released.lock().expect("no panic") = Some(Moment::now());
        held.release().await.expect("held");
        let mut times = Vec::new();
        for worker in workers {
            times.extend(worker.await.expect("no panic"));
        }
        times.sort_unstable();
        let middle = times[times.len() / 2].as_secs_f64() / ROUND_TRIP;
        println!("held for {hold_for:?}: {} hand-overs, {middle:.2} round trips each", times.len());
        assert!(middle <= 1.5, "{middle:.2} round trips for a hand-over: {times:.0?}");
    }
}

/// A client of the crate as the backend uses it: with a thread of its own for its sessions.
async fn raw_client(addr: SocketAddr) -> Client {
    let (give, take) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let connector = Client::connector().with_session_timeout(TTL).with_connection_timeout(TTL / 2);
            let client = connector.connect(&addr.to_string()).await.expect("a client");
            let mut state = client.state_watcher();
            give.send(client).expect("somebody waits");
            while !state.state().is_terminated() {
                state.changed().await;
            }
        });
    });
    take.await.expect("a client")
}

/// Acquire and release beside create and delete of an ephemeral sequential node by the same kind of client,
/// in turns on one server, so that a busy machine is as bad for both: without a disk, and with one. The times
/// mean something in a release build only. What must not grow is the number of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_beside_raw_operations() {
    let on_disk = options().durability(Durability::Disk).parent(std::env::temp_dir());
    for (what, options, cycles) in [("in memory", options(), 1500), ("on disk", on_disk, 300)] {
        let Some(server) = single(&options).await else { return };
        let requests = beside_raw(&server, what, cycles).await;
        assert!((2.9..3.5).contains(&requests), "{what}, a lock costs {requests:.2} requests, not three");
    }
}

/// How many requests an acquire and a release take.
async fn beside_raw(server: &ZooKeeper, what: &str, cycles: u32) -> f64 {
    let raw = raw_client(server.addr()).await;
    let locks = client(&server.url()).await;
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    hold(&locks, "cost").await.release().await.expect("held");
    raw.create("/lockwell/raw", b"", &CreateMode::Container.with_acls(Acls::anyone_all()))
        .await
        .expect("a node");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let before = received(server);
    for _ in 0..cycles {
        let began = Moment::now();
        let (_, sequence) = raw.create("/lockwell/raw/lock-", b"some label", &options).await.expect("a node");
        raw.delete(&format!("/lockwell/raw/lock-{sequence}"), None).await.expect("deleted");
        theirs.push(Moment::now().since(began));
        let began = Moment::now();
        locks.lock("cost").ttl(TTL).await.expect("a free lock").release().await.expect("held");
        ours.push(Moment::now().since(began));
    }
    let requests = u32::try_from(received(server) - before).expect("not that many");
    // Two of each cycle are those of the raw client.
    let requests = f64::from(requests) / f64::from(cycles) - 2.0;
    ours.sort_unstable();
    theirs.sort_unstable();
    let cycles = ours.len();
    let ratio = |part: usize| {
        let at = cycles * part / 4;
        ours[at].as_secs_f64() / theirs[at].as_secs_f64()
    };
    let (middle, raw) = (ours[cycles / 2], theirs[cycles / 2]);
    println!(
        "{what}, median: acquire + release {middle:?} with {requests:.2} requests, create + delete {raw:?}, \
         ratio {:.2} [quartiles {:.2}, {:.2}]",
        ratio(2),
        ratio(1),
        ratio(3)
    );
    requests
}

/// The same work by other clients on the same server, in turns. It says something in a release build only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_beside_other_clients() {
    const ROUNDS: usize = 7;
    const CYCLES: u32 = 150;
    let Some(server) = single(&options()).await else { return };
    let locks = client(&server.url()).await;
    let mut others = Vec::new();
    for maker in [Maker::Curator, Maker::Kazoo] {
        if let Some(other) = Other::start(maker, &server.addr().to_string()).await {
            others.push((maker, other, Vec::new()));
        }
    }
    let mut ours = Vec::new();
    // The first round is for warming up.
    for round in 0..=ROUNDS {
        let began = Moment::now();
        for _ in 0..CYCLES {
            hold(&locks, "cost").await.release().await.expect("held");
        }
        let took = Moment::now().since(began) / CYCLES;
        let mut times = vec![took];
        for (maker, other, _) in &mut others {
            times.push(other.bench(&format!("/cost-{maker:?}"), CYCLES).await);
        }
        if round > 0 {
            ours.push(times.remove(0));
            others.iter_mut().zip(times).for_each(|((.., all), time)| all.push(time));
        }
    }
    let middle = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    println!("acquire + release: ours {:?}", middle(ours));
    for (maker, _, times) in others {
        println!("acquire + release: {maker:?} {:?}", middle(times));
    }
}

/// A claim reads the whole queue when it enters it, in one request. What that costs with thousands of
/// waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_the_place_in_a_long_queue() {
    const CLAIMS: u32 = 30;
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&url(proxy.addr())).await;
    let raw = raw_client(server.addr()).await;
    hold(&locks, "long").await.release().await.expect("held");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let claim = format!("/lockwell/long/_c_{}-lock-", uuid::Uuid::from_u128(1));
    let mut waiters = 0;
    for wanted in [1, 1000, 5000] {
        let making: Vec<_> = (waiters..wanted).map(|_| raw.create(&claim, b"", &options)).collect();
        for made in making {
            made.await.expect("a node");
        }
        waiters = wanted;
        let (mut ours, mut writes) = (Vec::new(), Vec::new());
        let (requests, bytes) = (received(&server), proxy.bytes(testbed::Direction::ToClient));
        for _ in 0..CLAIMS {
            let began = Moment::now();
            assert!(locks.lock("long").try_now().await.expect("an answer").is_none());
            ours.push(Moment::now().since(began));
            let began = Moment::now();
            let (_, sequence) = raw.create("/lockwell/raw-", b"", &options).await.expect("a node");
            raw.delete(&format!("/lockwell/raw-{sequence}"), None).await.expect("deleted");
            writes.push(Moment::now().since(began));
        }
        let requests = (received(&server) - requests) / u64::from(CLAIMS);
        let bytes = (proxy.bytes(testbed::Direction::ToClient) - bytes) / u64::from(CLAIMS);
        ours.sort_unstable();
        writes.sort_unstable();
        let (ours, writes) = (ours[ours.len() / 2], writes[writes.len() / 2]);
        println!(
            "{wanted} in the queue: a claim takes {ours:?} and {bytes} bytes; create and delete {writes:?}"
        );
        // Two of them are those of the raw client.
        assert!((5..=6).contains(&requests), "{requests} requests for a claim");
        assert!(bytes < 70 * wanted + 1000, "{bytes} bytes for a claim behind {wanted}");
    }
}

/// The number of the last write of the server, sessions included.
fn zxid(server: &ZooKeeper) -> u64 {
    let answer = server.four_letter("srvr").expect("an answer");
    let text = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("a number");
    u64::from_str_radix(text.trim(), 16).expect("hexadecimal")
}

/// Waits until no session but these is left.
async fn sessions_left(servers: &[ZooKeeper], sessions: usize) {
    let end = Moment::now().after(Duration::from_secs(20));
    let count = || {
        let counts = servers.iter().map(|server| {
            let dump = server.four_letter("cons").expect("an answer");
            dump.lines().filter(|line| line.contains("sid=0x")).count()
        });
        counts.sum::<usize>()
    };
    while count() != sessions {
        assert!(!end.has_passed(), "{} sessions", count());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A short program costs an ensemble few writes: three for the session that learns the limits and tries its
/// right to create, two for the session of the lock, and two for the lock, whose folder is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_program_costs_few_writes() {
    let Some(servers) = ensemble(&options()).await else { return };
    hold(&client(&servers.url()).await, "short").await.release().await.expect("held");
    sessions_left(servers.servers(), 0).await;
    let leader = &servers.servers()[servers.leader().await.expect("a leader")];
    let mut costs = Vec::new();
    for lock in [true, false] {
        let (before, packets) = (zxid(leader), all_received(servers.servers()));
        let locks = client(&servers.url()).await;
        if lock {
            locks.lock("short").ttl(TTL).await.expect("a free lock").release().await.expect("held");
        } else {
            locks.inspect("short").await.expect("an answer");
        }
        locks.close().await.expect("nothing is left");
        sessions_left(servers.servers(), 0).await;
        costs.push((zxid(leader) - before, all_received(servers.servers()) - packets));
    }
    println!("writes and packets: a lock {:?}, a look {:?}", costs[0], costs[1]);
    // Heartbeats and requests that are repeated on a busy machine may come on top.
    assert!(costs[0].0 <= 9, "a lock costs {} writes", costs[0].0);
    assert!(costs[1].0 <= 7, "a look costs {} writes", costs[1].0);
}

fn all_received(servers: &[ZooKeeper]) -> u64 {
    servers.iter().map(received).sum()
}
