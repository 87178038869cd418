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

/// Also if they are as many as there are rounds under way at most.
#[tokio::test]
async fn many_claims_that_are_not_polled_keep_no_other_from_the_nodes() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let backend = backend(&redlock_url(&nodes)).await.expect("a connection");
    let idle: Vec<_> = (0..200).map(|n| claim(&format!("idle/{n}"), Duration::from_secs(20))).collect();
    let mut acquiring: Vec<_> = idle.iter().map(|claim| backend.acquire(claim)).collect();
    // Otherwise tokio lets the last of them do nothing.
    tokio::task::unconstrained(poll_fn(|context| {
        for one in &mut acquiring {
            drop(one.as_mut().poll(context));
        }
        Poll::Ready(())
    }))
    .await;
    let other = claim("other", Duration::from_secs(20));
    let grant = tokio::time::timeout(Duration::from_secs(10), backend.acquire(&other)).await;
    assert!(matches!(grant, Ok(Ok(Some(_)))), "{grant:?}");
}
