//! Slots that are moved from one master of a cluster to another while their locks are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, LeaseState, LockGuard, Locks};
use testbed::{Redis, RedisCluster, if_installed};

use crate::asking::queued;
use crate::cluster::node_of;
use crate::servers::{client, on_disk, tell, until};

async fn start() -> Option<RedisCluster> {
    if_installed(RedisCluster::start(3, &on_disk()).await)
}

fn slot_of(node: &Redis, name: &str) -> String {
    let answer = tell(node, &["CLUSTER", "KEYSLOT", &format!("lockwell:{name}")]);
    answer.trim_start_matches(':').trim_end().to_owned()
}

fn id_of(node: &Redis) -> String {
    tell(node, &["CLUSTER", "MYID"]).split("\r\n").nth(1).expect("an id").to_owned()
}

/// A slot on its way.
struct Move<'a> {
    slot: String,
    from: &'a Redis,
    to: &'a Redis,
    all: &'a [Redis],
}

impl<'a> Move<'a> {
    fn begin(cluster: &'a RedisCluster, slot: String, from: usize, to: usize) -> Self {
        let (from, to) = (&cluster.nodes()[from], &cluster.nodes()[to]);
        tell(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        tell(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
        Self { slot, from, to, all: cluster.nodes() }
    }

    fn key(&self, key: &str) {
        let port = self.to.addr().port().to_string();
        tell(self.from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    fn all_keys(&self) {
        loop {
            let answer = tell(self.from, &["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            let lines = answer.split("\r\n").skip(1);
            let keys: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with('$')).collect();
            if keys.is_empty() {
                return;
            }
            for key in keys {
                self.key(key);
            }
        }
    }

    fn end(self) {
        self.all_keys();
        let owner = id_of(self.to);
        // First the new owner, as the tool of Redis does it.
        tell(self.to, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &owner]);
        for node in self.all {
            tell(node, &["CLUSTER", "SETSLOT", &self.slot, "NODE", &owner]);
        }
    }
}

async fn lock(locks: &Locks, name: &str, ttl: u64) -> LockGuard {
    locks.lock(name).ttl(Duration::from_secs(ttl)).await.expect("a free lock")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_live_through_a_move_and_what_cannot_be_done_is_told() {
    let Some(cluster) = start().await else { return };
    let url = format!("{}?timeout=700ms", cluster.url());
    let (one, two) = (client(&url).await, client(&url).await);
    // All in one slot.
    let tag = (0..1000).map(|n| format!("{{tag{n}}}")).find(|tag| node_of(&cluster, tag) == 0);
    let tag = tag.expect("some tag leads there");
    let name = |what: &str| format!("{tag}{what}");
    let (kept, moved) = (lock(&one, &name("kept"), 2).await, lock(&one, &name("moved"), 2).await);
    let released = lock(&one, &name("released"), 30).await;
    let handed = lock(&one, &name("handed"), 30).await;
    let waiting = tokio::spawn(two.lock(name("handed")).wait(Duration::from_secs(60)).into_future());
    queued(&one, &name("handed"), 1).await;

    let slot = slot_of(&cluster.nodes()[0], &tag);
    let on_its_way = Move::begin(&cluster, slot, 0, 2);
    on_its_way.key(&format!("lockwell:{}", name("moved")));
    let patient = tokio::spawn(two.lock(name("patient")).wait(Duration::from_secs(60)).into_future());
    let start = Instant::now();
    for wait in [None, Some(Duration::from_millis(1500)), Some(Duration::from_millis(300))] {
        let request = two.lock(name("new"));
        let asked = Instant::now();
        let error = match wait {
            None => request.try_now().await.map(drop).expect_err("not now"),
            Some(wait) => request.wait(wait).await.map(drop).expect_err("not now"),
        };
        println!("with {wait:?} after {:?}: {error:#}", asked.elapsed());
        // On a busy machine the client's own clock can be faster at the end of the wait.
        if error.to_string().contains("has no answer after a wait of") && wait.is_some() {
            continue;
        }
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
        assert!(
            error.is_retryable() && error.to_string().contains("slot of this lock is being moved"),
            "{error:#}"
        );
        // A short wait covers the first answer, for a second at most.
        let most = |wait: Duration| wait.max(Duration::from_secs(1)) * 2;
        assert!(
            wait.is_none_or(|wait| asked.elapsed() >= wait && asked.elapsed() < most(wait)),
            "{:?}",
            asked.elapsed()
        );
    }
    let error = released.release().await.expect_err("not now");
    assert!(error.to_string().contains("slot of this lock is being moved"), "{error:#}");
    // Twice as long as the leases last. Each of the two is at one node, and they are at different ones.
    tokio::time::sleep(Duration::from_secs(5).saturating_sub(start.elapsed())).await;
    for guard in [&kept, &moved] {
        assert_eq!(guard.lease_state(), LeaseState::Held, "{guard:?}");
    }
    assert!(!patient.is_finished());
    on_its_way.end();
    let start = Instant::now();
    patient.await.expect("no panic").expect("its turn").release().await.expect("held");
    println!("taken {:?} after the move", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    handed.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    for guard in [kept, moved] {
        guard.release().await.expect("held");
    }
    let free = async {
        while one.inspect(name("released")).await.expect("an answer").is_held() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), free).await.expect("the keeper releases what could not be");
    for node in cluster.nodes() {
        let left = || tell(node, &["KEYS", "lockwell:{*"]) == "*0\r\n";
        until("no lock is left", left).await;
    }
}

/// The mark of each server is in its first slot. That of another, which came with the slot, keeps no client
/// out for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_has_moved_is_set_again() {
    let Some(cluster) = start().await else { return };
    let locks = client(&format!("{}?longest_ttl=4s", cluster.url())).await;
    let (old, new) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    let at_old = (0..1000).map(|n| n.to_string()).find(|name| node_of(&cluster, name) == 0);
    // Its slot is 0.
    let names = ["{265b}".to_owned(), at_old.expect("some name leads there")];
    let ask = async || {
        for name in &names {
            let request = locks.lock(name.as_str()).ttl(Duration::from_secs(4)).wait(Duration::from_secs(60));
            request.await.expect("a free lock").release().await.expect("held");
        }
    };
    let run = |node: &Redis| {
        let info = tell(node, &["INFO", "server"]);
        info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("a run").to_owned()
    };
    let mark = |node: &Redis| tell(node, &["GET", "lockwell:\u{1f}{265b}mark"]);
    ask().await;
    assert!(mark(old).contains(&run(old)));
    Move::begin(&cluster, "0".to_owned(), 0, 1).end();
    assert!(mark(new).contains(&run(old)));
    let began = std::time::Instant::now();
    while !mark(new).contains(&run(new)) {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not set");
        tokio::time::sleep(Duration::from_millis(1100)).await;
        ask().await;
    }
}

/// Nothing that this client asks for has moved, only the mark of the server. So no call for a lock is told
/// who has the slots now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_has_moved_is_found_by_those_whose_locks_have_not() {
    let Some(cluster) = start().await else { return };
    let url = format!("{}?longest_ttl=4s", cluster.url());
    let locks = client(&url).await;
    let old = &cluster.nodes()[0];
    let stays =
        |name: &String| node_of(&cluster, name) == 0 && !["0", "1"].contains(&slot_of(old, name).as_str());
    let name = (0..1000).map(|n| n.to_string()).find(stays).expect("some name leads there");
    let request = || locks.lock(name.as_str()).ttl(Duration::from_secs(4));
    let patient = async || {
        let guard = request().wait(Duration::from_secs(60)).await.expect("a free lock");
        guard.release().await.expect("held");
    };
    patient().await;
    Move::begin(&cluster, "0".to_owned(), 0, 1).end();
    let operator = client(&url).await;
    operator.begin_grace().await.expect("begun");
    let began = Instant::now();
    let error = loop {
        match request().try_now().await {
            Ok(guard) => guard.expect("a free lock").release().await.expect("held"),
            Err(error) => break error,
        }
        assert!(began.elapsed() < Duration::from_secs(3), "it is not noticed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    patient().await;
    // A connection made while the client does not know who has the slots grants nothing at all.
    Move::begin(&cluster, "1".to_owned(), 0, 1).end();
    operator.begin_grace().await.expect("begun");
    tell(old, &["CLIENT", "KILL", "TYPE", "normal"]);
    let error = loop {
        match request().try_now().await {
            Ok(guard) => panic!("granted in a grace period: {guard:?}"),
            Err(error) if error.kind() == ErrorKind::GracePeriod => break error,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("{error:#}");
    patient().await;
    let marks = tell(old, &["KEYS", "*mark"]);
    assert!(marks.starts_with("*1"), "{marks}");
}

/// Many slots are moved to and fro while tasks of two clients take, keep and release locks in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_fails_while_slots_are_moved() {
    const NAMES: usize = 12;
    let Some(cluster) = start().await else { return };
    let clients = [client(&cluster.url()).await, client(&cluster.url()).await];
    let names = (0..).map(|n| format!("moving {n}")).filter(|name| node_of(&cluster, name) == 0);
    let names: Vec<_> = names.take(NAMES).collect();
    let over = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for name in &names {
        let (inside, highest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        for locks in &clients {
            let (locks, name, over, done) =
                (locks.clone(), name.clone(), Arc::clone(&over), Arc::clone(&done));
            let (inside, highest) = (Arc::clone(&inside), Arc::clone(&highest));
            tasks.push(tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard =
                        locks.lock(&*name).ttl(Duration::from_secs(2)).wait(Duration::from_secs(30)).await;
                    let guard = guard.expect("its turn comes");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{name}: two hold");
                    let token = guard.token().get();
                    assert!(highest.swap(token, Ordering::SeqCst) < token, "{name}: tokens rise");
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.expect("held");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        for name in &names {
            let on_its_way = Move::begin(&cluster, slot_of(&cluster.nodes()[0], name), from, to);
            tokio::time::sleep(Duration::from_millis(50)).await;
            on_its_way.all_keys();
            tokio::time::sleep(Duration::from_millis(50)).await;
            on_its_way.end();
        }
    }
    over.store(true, Ordering::Relaxed);
    for task in join_all(tasks).await {
        task.expect("nothing fails");
    }
    println!("{} hand-overs while {} slots were moved", done.load(Ordering::Relaxed), 3 * NAMES);
    assert!(done.load(Ordering::Relaxed) > 100);
}
