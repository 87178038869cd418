//! A claim whose future is not polled any more.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::nodes;
use crate::asking::claim;
use crate::servers::{backend, on_disk, redlock_url};

/// Wherever it stopped, the other claims of its runtime get their votes.
#[tokio::test]
async fn a_claim_that_is_not_polled_keeps_no_other_from_the_nodes() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let backend = backend(&redlock_url(&nodes)).await.expect("a connection");
    for polls in 1..=12 {
        let backend = Arc::clone(&backend);
        // A runtime has connections of its own, which are made and examined for its first claim.
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let (idle, other) = (format!("idle/{polls}"), format!("other/{polls}"));
                let (idle, other) =
                    (claim(&idle, Duration::from_secs(20)), claim(&other, Duration::from_secs(20)));
                let mut acquiring = backend.acquire(&idle);
                let mut left = polls;
                poll_fn(|context| {
                    left -= 1;
                    let is_done = acquiring.as_mut().poll(context).is_ready();
                    if is_done || left == 0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                let grant = backend.acquire(&other).await;
                assert!(matches!(grant, Ok(Some(_))), "after {polls} polls of another: {grant:?}");
            });
        };
        tokio::task::spawn_blocking(work).await.expect("no panic");
    }
}
