//! Tables of PostgreSQL on which grants wait for no disk: holders whose records a crash has lost.

use std::time::Duration;

use lockwell_core::{DistributedLock, Grant, Mode, Renewal};
use testbed::Postgres;

use crate::crash::crash;
use crate::grace::{forgetful, record, write_out};
use crate::servers::{Kind, backend, claim, soon};

/// No lease ends while a test runs.
const LONG: Duration = Duration::from_mins(5);

/// A server that writes out nothing by itself, and the address of tables with a long grace period.
async fn long(table: &str) -> Option<(Postgres, String)> {
    let (server, url) = forgetful(table).await?;
    Some((server, url.replace("=4s", "=5m")))
}

async fn granted(lock: &dyn DistributedLock, name: &str) -> Grant {
    lock.acquire(&claim(name, Mode::Exclusive, LONG)).await.expect("an answer").expect("a free lock")
}

/// What the renewal of each says, in words.
async fn renewed(lock: &dyn DistributedLock, grants: &[Grant]) -> Vec<&'static str> {
    let word = |renewal: &Renewal| match renewal {
        Renewal::Renewed(_) => "renewed",
        Renewal::Lost => "lost",
        _ => "unknown",
    };
    lock.renew(grants, soon()).await.iter().map(word).collect()
}

/// The record of the holder before is back, and is what the administrator sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_of_an_old_record_stands() {
    let Some((server, url)) = long("old").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let before = granted(&*lock, "a").await;
    write_out(&server).await;
    lock.release(before.claim()).await.expect("an answer");
    let later = granted(&*lock, "a").await;
    crash(&server).await;
    assert_eq!(record(&server, "old", "a").await, before.token().to_string());
    assert_eq!(lock.force_release(later.claim().name()).await.expect("an answer"), 1);
    assert_eq!(renewed(&*lock, &[later]).await, ["lost"]);
    // A second crash changes nothing.
    crash(&server).await;
    assert_eq!(renewed(&*lock, &[before]).await, ["lost"]);
}
