//! Waiters that receive no notifications, for example behind a proxy that drops them.

use std::time::Duration;

use lockwell_core::{LockRequest, Locks};
use testbed::Redis;

use crate::asking::queued;
use crate::servers::{client, redis, tell};

/// A client without the right to subscribe. It has the right while it connects, since that is checked.
async fn unnotified(server: &Redis) -> Locks {
    tell(server, &["ACL", "SETUSER", "deaf", "on", ">canary", "~*", "&*", "+@all"]);
    let locks = client(&format!("redis://deaf:canary@{}", server.addr())).await;
    tell(server, &["ACL", "SETUSER", "deaf", "-subscribe"]);
    tell(server, &["CLIENT", "KILL", "USER", "deaf"]);
    locks
}

/// Waiters queue in this order behind a writer, and have to be served in it.
async fn in_order<const N: usize>(server: &Redis, requests: impl Fn(&Locks, &Locks) -> [LockRequest; N]) {
    let (one, two) = (unnotified(server).await, client(&server.url()).await);
    for round in 0..6 {
        let holder = two.write("a").await.expect("a free lock");
        let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for (place, request) in requests(&one, &two).into_iter().enumerate() {
            let request = request.wait(Duration::from_secs(60)).label(place.to_string());
            let order = order.clone();
            waiting.push(tokio::spawn(async move {
                let guard = request.await.expect("its turn comes");
                order.send(place).expect("somebody listens");
                guard.release().await.expect("held");
            }));
            queued(&two, "a", place + 1).await;
            let shown = two.inspect("a").await.expect("an answer").waiting;
            let labels: Vec<_> = shown.into_iter().map(|one| one.label).collect();
            assert_eq!(labels, (0..=place).map(|place| place.to_string()).collect::<Vec<_>>());
        }
        // At different times after the last heartbeats.
        tokio::time::sleep(Duration::from_millis(190 * round)).await;
        holder.release().await.expect("held");
        for place in 0..N {
            assert_eq!(served.recv().await, Some(place), "round {round}");
        }
        for waiter in waiting {
            waiter.await.expect("no panic");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_without_notifications_keeps_its_place() {
    let Some(server) = redis().await else { return };
    in_order(&server, |unnotified, notified| [unnotified.lock("a"), notified.lock("a")]).await;
}

/// The grant to the first reader includes the second one, which gets no notification.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_granted_without_a_notification_comes_before_the_next_writer() {
    let Some(server) = redis().await else { return };
    in_order(&server, |unnotified, notified| [notified.read("a"), unnotified.read("a"), notified.write("a")])
        .await;
}
