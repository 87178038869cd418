//! What a program waits for at its end.

use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lockwell_core::testing::TestServer;
use lockwell_core::{Operation, wait_for_releases};

use crate::alone;

const LEASE: Duration = Duration::from_secs(60);

/// A release that does not end fails the test.
async fn wait() {
    tokio::time::timeout(Duration::from_secs(20), wait_for_releases()).await.expect("all releases end");
}

#[test]
fn the_release_of_a_dropped_guard_is_waited_for_after_its_client() {
    alone("end_of_process::the_release_of_a_dropped_guard_is_waited_for_after_its_client", async {
        let server = TestServer::new();
        let client = server.locks().unwrap();
        server.delay(Operation::Release, Duration::from_secs(1));
        drop(client.lock("a").ttl(LEASE).await.unwrap());
        drop(client);
        let mut waits = pin!(wait());
        assert!(waits.as_mut().now_or_never().is_none(), "the release has no answer");
        loop {
            tokio::select! {
                () = &mut waits => break,
                () = tokio::time::sleep(Duration::from_millis(1)) => server.advance(Duration::from_millis(100)),
            }
        }
        assert!(server.locks().unwrap().inspect("a").await.unwrap().is_free());
    });
}

#[test]
fn a_dropped_request_has_left_its_queue() {
    alone("end_of_process::a_dropped_request_has_left_its_queue", async {
        let server = TestServer::new();
        let (locks, client) = (server.locks().unwrap(), server.locks().unwrap());
        let held = locks.lock("a").ttl(LEASE).await.unwrap();
        let mut request = client.lock("a").ttl(LEASE).into_future();
        assert!((&mut request).now_or_never().is_none(), "it waits");
        assert_eq!(locks.inspect("a").await.unwrap().waiters, 1);
        drop((request, client));
        wait().await;
        assert_eq!(locks.inspect("a").await.unwrap().waiters, 0);
        held.release().await.unwrap();
    });
}

#[test]
fn without_releases_it_ends() {
    alone("end_of_process::without_releases_it_ends", async {
        let locks = TestServer::new().locks().unwrap();
        locks.lock("a").await.unwrap().release().await.unwrap();
        wait().await;
    });
}
