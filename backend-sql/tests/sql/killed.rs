//! One name, wanted in every way, by processes of which some are killed while they hold or wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::{Claim, ErrorKind, LockName, LockRequest, Locks, Mode, Wait};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::servers::{ALL, Kind, backend, client, count, permit, until_count, url, waiters};

/// The lease of those who are killed, and of all others.
const TTL: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(1);

fn modes() -> [Mode; 4] {
    [Mode::Exclusive, Mode::Shared, permit(2), permit(3)]
}

/// How many hold the lock in each of the ways, as far as the test knows: those that live.
#[derive(Debug, Default)]
struct Room([AtomicU64; 4]);

impl Room {
    async fn visit(&self, mode: Mode) {
        let at = modes().iter().position(|one| *one == mode).expect("known");
        self.0[at].fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
        let inside: Vec<_> = self.0.iter().map(|one| one.load(Ordering::SeqCst)).collect();
        self.0[at].fetch_sub(1, Ordering::SeqCst);
        let most = match mode {
            Mode::Permit { limit } => u64::from(limit.get()),
            Mode::Shared => u64::MAX,
            _ => 1,
        };
        let others: u64 = inside.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, many)| many).sum();
        assert!(inside[at] <= most && others == 0, "{mode}: {inside:?}");
    }
}

fn request(locks: &Locks, mode: Mode) -> LockRequest {
    match mode {
        Mode::Shared => locks.read("name"),
        Mode::Permit { limit } => locks.permit("name", limit.get()),
        _ => locks.lock("name"),
    }
    .ttl(TTL)
}

/// One that lives: takes the lock in one way after another.
async fn live(locks: Locks, seed: u64, room: Arc<Room>, end: Instant) -> u64 {
    let (mut random, mut held) = (StdRng::seed_from_u64(seed), 0);
    while Instant::now() < end {
        let mode = modes()[random.random_range(0..4)];
        let guard = request(&locks, mode).wait(LONG).await.expect("its turn comes");
        room.visit(mode).await;
        // A machine that is too busy loses it.
        guard.release().await.map_or_else(|error| assert_eq!(error.kind(), ErrorKind::Lost), drop);
        held += 1;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..8))).await;
    }
    held
}

/// One that is killed, while it holds the lock or waits for it. Its runtime stops without a word to the
/// server.
fn kill(kind: Kind, url: &str, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mode = modes()[random.random_range(0..4)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let waits = Duration::from_millis(random.random_range(0..400));
    let lock = runtime.block_on(async {
        let lock = backend(kind, url).await.expect("connects");
        let name = LockName::new("name").expect("a good name");
        let claim = Claim::new(name, mode, TTL, Wait::Forever, "killed".into());
        // A backend alone renews nothing, and gives nothing back.
        drop(tokio::time::timeout(waits, lock.acquire(&claim)).await);
        lock
    });
    runtime.shutdown_background();
    drop(lock);
}

/// Nobody meets one that must not be there, all that live go on, and nothing is left in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_live_go_on() {
    for kind in ALL {
        let Some(url) = url(kind, "killed").await else { continue };
        let room = Arc::<Room>::default();
        let began = Instant::now();
        let end = began + Duration::from_secs(15);
        let mut tasks = Vec::new();
        for n in 0..6 {
            tasks.push(tokio::spawn(live(client(kind, &url).await, n, Arc::clone(&room), end)));
        }
        let mut killed = 0;
        while Instant::now() < end {
            let (url, seed) = (url.clone(), 1000 + killed);
            tokio::task::spawn_blocking(move || kill(kind, &url, seed)).await.expect("no panic");
            killed += 1;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let mut held = 0;
        for task in tasks {
            held += task.await.expect("no task fails");
        }
        println!("{kind:?}: {held} times held, {killed} killed, in {:?}", began.elapsed());
        assert!(held > 10 && killed > 5, "{kind:?}: {held} times held, {killed} killed");
        let locks = client(kind, &url).await;
        for mode in modes() {
            let guard = request(&locks, mode).wait(LONG).await;
            let guard = guard.unwrap_or_else(|error| panic!("{kind:?}: {mode} is never granted: {error:#}"));
            guard.release().await.expect("held");
        }
        assert_eq!(count(kind, &url, "killed_members").await, "0", "{kind:?}");
        // While anybody waits, the places of the dead are deleted.
        let guard = locks.lock("name").await.expect("a free lock");
        let other = client(kind, &url).await;
        let waiting = tokio::spawn(other.lock("name").wait(LONG).into_future());
        until_count(kind, &url, &waiters(kind, "killed"), 1, LONG).await;
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}
