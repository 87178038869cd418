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

const LONGEST: Duration = Duration::from_secs(4);

/// A client of a new cluster, with the shortest grace periods that there may be.
async fn open(cluster: &RedisCluster) -> Locks {
    let locks = client(&format!("{}?longest_ttl=4s", cluster.url())).await;
    locks.end_grace().await.expect("they grant locks");
    locks
}

/// Names of locks in different slots of a node.
fn names_at(cluster: &RedisCluster, node: usize, many: usize) -> Vec<String> {
    (0..1000).map(|n| n.to_string()).filter(|name| node_of(cluster, name) == node).take(many).collect()
}

async fn try_lock(locks: &Locks, name: &str) -> lockwell_core::Result<()> {
    let guard = locks.lock(name).ttl(LONGEST).try_now().await?;
    guard.expect("a free lock").release().await
}

async fn is_closed(locks: &Locks, name: &str) {
    let error = try_lock(locks, name).await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
}

/// The mark of each server is in its last slot. If it gains a higher one, clients put the mark there, and its
/// locks go on, with those that came along. In a slot without any nobody knows what was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_is_in_the_last_slot_of_its_server() {
    let Some(cluster) = start().await else { return };
    let locks = open(&cluster).await;
    let [here, there] = [0, 1].map(|node| names_at(&cluster, node, 2));
    let (moved, unused) = (&there[0], &there[1]);
    for name in [&here[0], moved] {
        try_lock(&locks, name).await.expect("open");
    }
    let kept = lock(&locks, moved, 4).await;
    let (node, all) = (&cluster.nodes()[0], |name: &String| slot_of(&cluster.nodes()[0], name));
    Move::begin(&cluster, all(moved), 1, 0).end();
    let moving = Instant::now();
    while moving.elapsed() < LONGEST {
        try_lock(&locks, &here[0]).await.expect("nothing is waited for");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    kept.release().await.expect("held");
    try_lock(&locks, moved).await.expect("its keys came along");
    let marks = tell(node, &["KEYS", "*mark"]);
    assert!(marks.starts_with("*1\r\n"), "{marks}");
    Move::begin(&cluster, all(unused), 1, 0).end();
    let moved_at = Instant::now();
    loop {
        try_lock(&locks, &here[0]).await.expect("the rest goes on");
        match try_lock(&locks, unused).await {
            Ok(()) => break,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::GracePeriod | ErrorKind::Unreachable), "{error:#}");
            }
        }
        assert!(moved_at.elapsed() < LONGEST * 5, "never granted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(moved_at.elapsed() >= LONGEST, "{:?}", moved_at.elapsed());
}

/// As the tool of Redis does it (`--cluster fix`) if a master without a replica is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_came_without_its_locks_grants_nothing_for_a_period() {
    let Some(cluster) = start().await else { return };
    for node in cluster.nodes() {
        tell(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let (holder, other) = (open(&cluster).await, client(&format!("{}?longest_ttl=4s", cluster.url())).await);
    let name = &names_at(&cluster, 0, 1)[0];
    let at_rest = &names_at(&cluster, 2, 1)[0];
    let slot = slot_of(&cluster.nodes()[0], name);
    let [_, to, third] = cluster.nodes() else { panic!("three nodes") };
    try_lock(&other, at_rest).await.expect("open");
    let guard = lock(&holder, name, 4).await;
    cluster.nodes()[0].kill().expect("it runs");
    let owner = id_of(to);
    for node in [to, third] {
        tell(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
    }
    let lost = Instant::now();
    // While the holder has its lock nobody else is granted it, and the holder makes its record again.
    while lost.elapsed() < LONGEST * 2 {
        match other.lock(name.as_str()).ttl(LONGEST).try_now().await {
            Ok(Some(next)) => {
                assert!(!guard.is_held(), "two holders {:?} after the slot was given away", lost.elapsed());
                next.release().await.expect("held");
            }
            Ok(None) => (),
            Err(error) => assert!(error.is_retryable(), "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    try_lock(&other, at_rest).await.expect("the rest goes on");
}

/// Whatever slots come and go: all clients look at the same mark, and without one there is a period.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_end_no_period_and_hide_none() {
    let Some(cluster) = start().await else { return };
    let (locks, operator) = (open(&cluster).await, open(&cluster).await);
    let name = &names_at(&cluster, 1, 1)[0];
    try_lock(&locks, name).await.expect("open");
    // Lower than the first slot of that master. No call of this client is told so.
    Move::begin(&cluster, "0".to_owned(), 0, 1).end();
    let begun = Instant::now();
    operator.begin_grace().await.expect("begun");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    is_closed(&locks, name).await;
    // The first and the last slot of that master.
    let told = tell(&cluster.nodes()[1], &["CLUSTER", "NODES"]);
    let myself = told.lines().find(|line| line.contains("myself")).expect("itself");
    let (first, last) =
        myself.split(' ').next_back().and_then(|range| range.split_once('-')).expect("a range");
    for slot in ["0", first, last.trim_end()] {
        Move::begin(&cluster, slot.to_owned(), 1, 0).end();
    }
    let new = client(&format!("{}?longest_ttl=4s", cluster.url())).await;
    for locks in [&locks, &new] {
        let guard = locks.lock(name.as_str()).ttl(LONGEST).wait(Duration::from_secs(60)).await;
        assert!(begun.elapsed() >= LONGEST, "{:?}", begun.elapsed());
        guard.expect("a free lock").release().await.expect("held");
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
    // A connection that has subscribed is of another type.
    for kind in ["normal", "pubsub"] {
        tell(old, &["CLIENT", "KILL", "TYPE", kind]);
    }
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
