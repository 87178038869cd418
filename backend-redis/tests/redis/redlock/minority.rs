//! A client that can reach a minority of the nodes only.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{DistributedLock, ErrorKind};
use testbed::Redis;

use super::nodes;
use crate::asking::{calls, claim};
use crate::servers::{backend, on_disk, redlock_url};

/// A client of three nodes, which knows that only the first is left.
async fn with_one_left() -> Option<(Redis, Arc<dyn DistributedLock>)> {
    let mut nodes = nodes(3, &on_disk()).await?;
    let backend = backend(&redlock_url(&nodes)).await.expect("a connection");
    let first = claim("first", Duration::from_secs(20));
    assert!(backend.acquire(&first).await.expect("an answer").is_some());
    nodes.truncate(1);
    for _ in 0..3 {
        let claim = claim("learns", Duration::from_secs(20));
        let error = backend.acquire(&claim).await.expect_err("no majority");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    }
    // What was sent to the first meanwhile is given back.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Some((nodes.remove(0), backend))
}

/// Its votes would be in the way of those who reach a majority.
#[tokio::test]
async fn who_has_no_majority_takes_no_votes() {
    let Some((node, backend)) = with_one_left().await else { return };
    let votes = || calls(&node, "set");
    let before = votes();
    assert!(before > 0, "each vote sets the lock");
    for _ in 0..20 {
        let claim = claim("a", Duration::from_secs(20));
        backend.acquire(&claim).await.expect_err("no majority");
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(votes(), before);
}
