//! The folders that are left behind.

use futures_util::future::try_join_all;
use lockwell_core::{Locks, Moment};
use testbed::ZooKeeper;
use zookeeper_client::Client;

use crate::servers::{client, hold, options, secs, single};

/// So many folders of a minute are left to the server.
const LEFT: usize = 2_000;

async fn use_names(locks: &Locks, kind: &str, numbers: std::ops::Range<usize>) {
    let numbers: Vec<_> = numbers.collect();
    for some in numbers.chunks(100) {
        let claims =
            some.iter().map(|number| locks.lock(format!("{kind}-{number}")).wait(secs(60)).into_future());
        for guard in try_join_all(claims).await.expect("free locks") {
            guard.release().await.expect("held");
        }
    }
}

/// The number of folders, when it does not change any more.
async fn folders(server: &ZooKeeper, expected: usize) -> usize {
    let witness = Client::connect(&server.addr().to_string()).await.expect("a client");
    let end = Moment::now().after(secs(20));
    loop {
        let folders = witness.list_children("/lockwell").await.expect("the base");
        let folders = folders.iter().filter(|name| !name.starts_with("%clock-")).count();
        if folders <= expected || end.has_passed() {
            return folders;
        }
        tokio::time::sleep(secs(1)).await;
    }
}

/// A client that uses more names than a server deletes folders deletes what it has made. A folder that
/// another claim is in stays, as do those that are used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_client_that_makes_many_folders_deletes_them() {
    // The server deletes none for as long as the test runs.
    let idle = options().setting("-Dznode.container.checkIntervalMs", "600000");
    let Some(server) = single(&idle).await else { return };
    let (locks, other) = (client(&server.url()).await, client(&server.url()).await);
    let began = Moment::now();
    use_names(&locks, "few", 0..LEFT).await;
    assert_eq!(folders(&server, LEFT).await, LEFT, "below the bound all of them stay");
    let held = hold(&locks, "more-7").await;
    let waiting = tokio::spawn(other.lock("more-7").wait(secs(60)).into_future());
    crate::servers::queued(&locks, "more-7", 1).await;
    held.release().await.expect("held");
    let held = waiting.await.expect("no panic").expect("its turn comes");
    use_names(&locks, "more", 8..800).await;
    // On a slow machine another minute may have begun.
    let minutes = usize::try_from((Moment::now().since(began).as_secs() + 5) / 60).expect("few");
    let left = LEFT * (1 + minutes) + 1;
    let seen = folders(&server, left).await;
    println!("{seen} folders are left, {minutes} minutes");
    assert!(seen <= left, "{seen} folders are left");
    assert!(held.is_held());
    held.release().await.expect("held");
    use_names(&locks, "more", 8..20).await;
}
