//! Futures that have a place in the queue and are kept without being polled.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lockwell_core::{LockGuard, LockRequest, Locks};

use crate::servers::{ALL, client, url, wait_for};

/// How long others wait for such a place on a busy machine: on SQLite it ends as that of a dead waiter does.
const LONGEST: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_mins(2);

/// A way to wait for a lock, by its name.
type Way = (&'static str, fn(&Locks, &str) -> LockRequest);

/// The ways in which a release does not grant the lock by itself.
const WAYS: [Way; 3] = [
    ("reader", |locks, name| locks.read(name)),
    ("permit", |locks, name| locks.permit(name, 1)),
    ("delay", |locks, name| locks.lock(name).lock_delay(Duration::from_secs(1))),
];

/// Such a place does not count, although the heartbeats of its client go on: another waiter needs them. When
/// its future is polled again, it gets its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_nobody_polls_delays_others_for_a_moment() {
    for kind in ALL {
        let Some(url) = url(kind, "unpolled").await else { continue };
        let (holder, one, two) =
            (client(kind, &url).await, client(kind, &url).await, client(kind, &url).await);
        let other = holder.lock("something else").await.expect("a free lock");
        let busy = tokio::spawn(one.lock("something else").wait(LONG).into_future());
        for (way, request) in WAYS {
            let ask = |locks: &Locks| match way {
                "permit" => locks.permit(way, 1),
                _ => locks.lock(way),
            };
            let held: LockGuard = ask(&holder).await.expect("a free lock");
            let mut kept = Box::pin(request(&one, way).wait(LONG).into_future());
            tokio::select! {
                answer = &mut kept => panic!("it is held: {answer:?}"),
                () = wait_for(&holder, way, 1) => (),
            }
            // It is at rest: its subscription works.
            let rests = tokio::time::timeout(Duration::from_millis(2500), &mut kept).await;
            assert!(rests.is_err(), "it is held");
            held.release().await.expect("held");
            let began = Instant::now();
            let next = ask(&two).wait(LONG).await;
            let took = began.elapsed();
            println!("{kind:?}, {way}: {took:?}");
            assert!(took < LONGEST, "{kind:?}, {way}: another has waited for {took:?}");
            assert!(kept.as_mut().now_or_never().is_none(), "{kind:?}, {way}: it is held");
            next.expect("nobody holds it").release().await.expect("held");
            let kept = kept.await.unwrap_or_else(|error| panic!("{kind:?}, {way}: {error:#}"));
            kept.release().await.expect("held");
        }
        assert!(!busy.is_finished(), "{kind:?}: its lock is held");
        busy.abort();
        other.release().await.expect("held");
    }
}
