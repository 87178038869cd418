//! Many locks that were contended a moment ago and are free now. Their claims enter the queues first and ask
//! then, and together they take few round trips.

use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::Locks;

use crate::servers::{Kind, client, proxy, through, url};

const NAMES: usize = 100;
/// How long a message is under way.
const WAY: Duration = Duration::from_millis(20);

fn names() -> Vec<String> {
    (0..NAMES).map(|n| format!("hot/{n}")).collect()
}

/// Lets somebody wait for each of the locks, and frees all of them.
async fn contend(locks: &Locks) {
    for name in names() {
        let guard = locks.lock(&*name).await.expect("a free lock");
        let waiting = tokio::spawn(locks.lock(&*name).into_future());
        while locks.inspect(&*name).await.expect("an answer").waiters == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_hot_names_that_are_free_take_few_round_trips() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let Some(url) = url(kind, "hot").await else { continue };
        let Some(proxy) = proxy(kind).await else { continue };
        let locks = client(kind, &through(&url, &proxy)).await;
        contend(&locks).await;
        proxy.delay(WAY);
        let before = proxy.turns();
        let claims = names().into_iter().map(|name| locks.lock(&*name).into_future());
        let guards = join_all(claims).await;
        let trips = proxy.turns() - before;
        println!("{kind:?}: {trips} round trips for {NAMES} locks");
        assert!(trips < 30, "{kind:?}: {trips} round trips for {NAMES} locks");
        proxy.heal();
        proxy.delay(Duration::ZERO);
        let mut tokens = Vec::new();
        for guard in guards {
            let guard = guard.expect("a free lock");
            assert!(guard.is_held());
            tokens.push(guard.token());
            guard.release().await.expect("held");
        }
        // The places were given up: nobody is in the way of the next one.
        for (name, token) in names().iter().zip(tokens) {
            let next = locks.lock(&**name).try_now().await.expect("an answer").expect("a free lock");
            assert!(next.token() > token, "{kind:?}: {name}");
            next.release().await.expect("held");
        }
    }
}
