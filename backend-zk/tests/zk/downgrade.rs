//! A writer that becomes a reader, in one queue with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockwell_core::{LockGuard, Locks, Mode};
use testbed::{Direction, Proxy};
use tokio::task::JoinHandle;

use crate::other::{Maker, Other};
use crate::servers::{client, connect, hold, lasting, options, queued, single, url};

fn reading(locks: &Locks) -> JoinHandle<LockGuard> {
    let request = locks.read("book").wait(Duration::from_secs(60));
    tokio::spawn(async move { request.await.expect("its turn comes") })
}

async fn turn(task: JoinHandle<LockGuard>) -> LockGuard {
    let came = tokio::time::timeout(Duration::from_secs(20), task).await;
    came.expect("in time").expect("no panic")
}

async fn give(guard: LockGuard) {
    guard.release().await.expect("held");
}

/// Readers come in at once, a writer waits for all of them, and a reader of Curator, who does not know of
/// this, for the one who was a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_join_and_others_wait() {
    let Some(server) = single(&options()).await else { return };
    let Some(mut curator) = Other::start(Maker::Curator, &server.addr().to_string()).await else { return };
    let (locks, zk) = connect(&format!("{}/down?recipe=curator-rw", server.url())).await;
    let writer = hold(&locks, "book").await;
    let first = reading(&locks);
    queued(&locks, "book", 1).await;
    curator.ask("r", "read", "/down/book");
    queued(&locks, "book", 2).await;
    let second = reading(&locks);
    queued(&locks, "book", 3).await;
    let token = writer.token();
    let was_writer = writer.downgrade().await.expect("a writer becomes a reader");
    let (first, second) = (turn(first).await, turn(second).await);
    assert!(token < first.token() && first.token() < second.token());
    // One who does not wait comes in, too, while no writer waits.
    let third = locks.read("book").try_now().await.expect("an answer").expect("readers meet");
    let name = "book".try_into().expect("a name");
    let shown: Vec<_> =
        zk.queue(&name).await.expect("an answer").iter().map(|at| (at.mode, at.holds)).collect();
    let (holds, waits) = ((Mode::Shared, true), (Mode::Shared, false));
    assert_eq!(shown, [holds, holds, waits, holds, holds]);
    give(third).await;
    let next = locks.clone();
    let next = tokio::spawn(async move { hold(&next, "book").await });
    queued(&locks, "book", 2).await;
    assert!(locks.read("book").try_now().await.expect("an answer").is_none(), "a reader overtook a writer");
    give(first).await;
    give(second).await;
    assert!(curator.is_silent().await && !next.is_finished(), "beside the one who was a writer");
    give(was_writer).await;
    assert_eq!(curator.word().await, "r held");
    assert!(!next.is_finished(), "a writer beside Curator's reader");
    curator.give("r");
    assert_eq!(curator.word().await, "r released");
    give(turn(next).await).await;
}

/// An operator who frees the lock frees it of all who hold it, and of nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_takes_it_from_all_who_read() {
    let Some(server) = single(&options()).await else { return };
    let Some(mut curator) = Other::start(Maker::Curator, &server.addr().to_string()).await else { return };
    let (locks, _) = connect(&format!("{}/down?recipe=curator-rw", server.url())).await;
    let writer = hold(&locks, "book").await.downgrade().await.expect("a writer becomes a reader");
    let reader = locks.read("book").try_now().await.expect("an answer").expect("readers meet");
    curator.ask("r", "read", "/down/book");
    queued(&locks, "book", 1).await;
    assert_eq!(locks.force_release("book").await.expect("an answer"), 2);
    assert_eq!(curator.word().await, "r held");
    for guard in [writer, reader] {
        tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("it is told");
    }
}

/// A request or an answer that gets lost is made good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_outlives_a_lost_connection() {
    let Some(server) = single(&options()).await else { return };
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let far = lasting(&format!("{}/down?timeout=30s", url(proxy.addr()))).await;
    let near = client(&format!("{}/down", server.url())).await;
    for direction in [Direction::ToClient, Direction::ToServer] {
        let writer = hold(&far, "book").await;
        let reader = reading(&near);
        queued(&near, "book", 1).await;
        proxy.blackhole(direction);
        let downgrade = tokio::spawn(writer.downgrade());
        let reader = if direction == Direction::ToClient {
            // The request has arrived.
            turn(reader).await
        } else {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert!(!reader.is_finished(), "beside a writer");
            proxy.heal();
            turn(reader).await
        };
        proxy.heal();
        let writer = tokio::time::timeout(Duration::from_secs(20), downgrade).await.expect("in time");
        let writer = writer.expect("no panic").expect("a writer becomes a reader");
        assert!(near.lock("book").try_now().await.expect("an answer").is_none(), "a writer beside readers");
        give(writer).await;
        give(reader).await;
    }
}

/// Who is in: writers as a thousand, readers as one each.
#[derive(Default)]
struct Room(AtomicU32);

impl Room {
    fn enter(&self, weight: u32) {
        let inside = self.0.fetch_add(weight, Ordering::SeqCst) + weight;
        assert!(inside <= WRITER, "{} writers beside {} readers", inside / WRITER, inside % WRITER);
    }

    fn leave(&self, weight: u32) {
        self.0.fetch_sub(weight, Ordering::SeqCst);
    }
}

const WRITER: u32 = 1000;

/// Readers, writers, and writers that become readers, in no order: nobody writes beside anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_beside_a_writer() {
    let Some(server) = single(&options()).await else { return };
    let room = Arc::new(Room::default());
    let mut tasks = Vec::new();
    for task in 0..12_u32 {
        let (room, url) = (Arc::clone(&room), format!("{}/down", server.url()));
        tasks.push(tokio::spawn(async move {
            let locks = client(&url).await;
            for round in 0..30 {
                let pause = Duration::from_millis(u64::from((task * 7 + round * 5) % 4));
                if (task + round).is_multiple_of(3) {
                    let writer = hold(&locks, "room").await;
                    room.enter(WRITER);
                    tokio::time::sleep(pause).await;
                    room.leave(WRITER - 1);
                    let reader = writer.downgrade().await.expect("a writer becomes a reader");
                    tokio::time::sleep(pause).await;
                    room.leave(1);
                    give(reader).await;
                    continue;
                }
                let wait = if round % 2 == 0 { pause } else { Duration::from_secs(20) };
                if let Ok(reader) = locks.read("room").wait(wait).await {
                    room.enter(1);
                    tokio::time::sleep(pause).await;
                    room.leave(1);
                    give(reader).await;
                }
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(120), task)
            .await
            .expect("nobody is stuck")
            .expect("no panic");
    }
}
