//! `TCP_NODELAY` on the connections of sqlx.

use std::time::Duration;

use lockwell_core::backend::{can_set_nodelay, look_for_nodelay};

use crate::servers::{Kind, client, proxy, through, url};

/// The connections for requests, and on MySQL and MariaDB those that are parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_get_it() {
    if !can_set_nodelay() {
        return;
    }
    for kind in [Kind::Postgres, Kind::MariaDb] {
        // Nobody else is connected to the proxy.
        let (Some(url), Some(proxy)) = (url(kind, "nodelay").await, proxy(kind).await) else { continue };
        let locks = client(kind, &through(&url, &proxy)).await;
        let guard = locks.lock("a").await.expect("a free lock");
        let look = || look_for_nodelay(|peer| *peer == proxy.addr()).expect("our sockets");
        let found = look();
        assert!(found.sockets > 0 && found.lacking == 0, "{kind:?}: {found:?}");
        if kind == Kind::MariaDb {
            let waiting = tokio::spawn(locks.lock("a").into_future());
            while look().sockets < found.sockets + 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The last one may be at its handshake.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(look().lacking, 0, "{kind:?}: {:?}", look());
            guard.release().await.expect("held");
            waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
        }
    }
}
