//! The order of waiters over a grace period.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::asking::queued;
use crate::servers::{client, on_disk, redis_with};

const LONGEST: Duration = Duration::from_secs(4);

/// First come those who waited before the restart, in their order, and then those who came in the grace
/// period. The lock is free when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grace_period_keeps_the_order_of_waiters() {
    let Some(server) = redis_with(&on_disk()).await else { return };
    let url = format!("{}?durability=grace&longest_ttl=4s", server.url());
    let holder = client(&url).await;
    let wait = Duration::from_secs(60);
    let mut guard = Some(holder.lock("a").ttl(LONGEST).wait(wait).await.expect("after the first period"));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client(&url).await);
    }
    for (number, locks) in clients.iter().enumerate() {
        if number == 5 {
            server.stop().await.expect("it ends");
            server.restart().await.expect("it starts again");
        }
        let (request, order) = (locks.lock("a").ttl(LONGEST).wait(wait), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = request.await.expect("its turn comes");
            order.lock().expect("no panic").push(number);
            tokio::time::sleep(Duration::from_millis(50)).await;
            guard.release().await.expect("held");
        }));
        if number < 5 {
            queued(&holder, "a", number + 1).await;
        } else {
            // In the grace period.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if let Some(guard) = guard.take_if(|_| number == 5) {
            guard.release().await.expect("held");
        }
    }
    for waiting in waiting {
        waiting.await.expect("in its turn");
    }
    assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4, 5, 6, 7]);
}
