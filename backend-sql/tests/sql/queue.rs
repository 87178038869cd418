//! Places in the queue.

use std::time::Duration;

use crate::servers::{ALL, Kind, client, count, url, waiters};

#[tokio::test]
async fn a_waiter_that_got_its_lock_gives_its_place_up() {
    for kind in ALL {
        let Some(url) = url(kind, "places").await else { continue };
        let (one, two) = (client(kind, &url).await, client(kind, &url).await);
        for _ in 0..5 {
            let guard = one.lock("a").await.expect("a free lock");
            let waiting = tokio::spawn(two.lock("a").into_future());
            while count(kind, &url, &waiters(kind, "places")).await == "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            guard.release().await.expect("held");
            let guard = waiting.await.expect("no panic").expect("its turn comes");
            // PostgreSQL does it in one statement, the others in another one at once.
            for _ in 0..400 {
                if kind == Kind::Postgres || count(kind, &url, &waiters(kind, "places")).await == "0" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(count(kind, &url, &waiters(kind, "places")).await, "0", "{kind:?}");
            guard.release().await.expect("held");
        }
    }
}
