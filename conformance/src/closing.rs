//! The end of a client.

use super::runtimes::Undriven;
use super::stage::{Stage, done, free_by, pause, queued, release, secs, ttl_of};
use lockwell_core::ErrorKind;

/// A program that drops its guards, closes its client and ends leaves nothing held.
pub(super) async fn close_waits_for_the_releases_under_way(stage: Stage) {
    let two = stage.client().await;
    for round in 0..5 {
        let names = [0, 1, 2].map(|which| stage.name(format!("{round}/{which}")));
        let ended = Undriven::after({
            let (stage, names) = (stage.clone(), names.clone());
            move || async move {
                let one = stage.client().await;
                let ttl = ttl_of(&one, 30_000);
                let mut guards = Vec::new();
                for name in &names {
                    guards.push(one.lock(name).ttl(ttl).await.expect("a free lock"));
                }
                drop(guards);
                one.close().await.expect("everything was released");
            }
        })
        .await;
        for name in &names {
            let guard = two.lock(name).try_now().await.expect("an answer");
            release(guard.unwrap_or_else(|| panic!("round {round}: {name} is held after close"))).await;
        }
        ended.end();
    }
}

/// What is asked of a closed client is refused, by all of its clones.
pub(super) async fn a_closed_client_refuses(stage: Stage) {
    let one = stage.client().await;
    let clone = one.clone();
    release(one.lock(stage.name("a")).await.expect("a free lock")).await;
    one.close().await.expect("nothing is left");
    for error in [
        clone.lock(stage.name("a")).await.expect_err("closed"),
        clone.lock(stage.name("a")).try_now().await.expect_err("closed"),
        clone.lock_all([stage.name("a")]).await.expect_err("closed"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:#}");
    }
}

/// Requests that wait end with the client, and leave their queues.
pub(super) async fn close_ends_requests_that_wait(stage: Stage) {
    let [one, two] = stage.clients().await;
    let names = [0, 1, 2].map(|which| stage.name(which));
    let mut held = Vec::new();
    for name in &names {
        held.push(one.lock(name).await.expect("a free lock"));
    }
    let waiting = names.each_ref().map(|name| {
        let request = two.lock(name).wait(secs(60));
        tokio::spawn(request.into_future())
    });
    for name in &names {
        queued(&one, name, 1, secs(20)).await;
    }
    two.clone().close().await.expect("all have their answers");
    for waiting in waiting {
        let answer = done("the end of the request", secs(5), waiting).await.expect("no panic");
        assert_eq!(answer.expect_err("the client was closed").kind(), ErrorKind::Closed);
    }
    for name in &names {
        queued(&one, name, 0, secs(1)).await;
    }
    for guard in held {
        release(guard).await;
    }
}

/// Requests that are at any point of their way leave nothing behind.
pub(super) async fn close_leaves_nothing_of_requests_under_way(stage: Stage) {
    let two = stage.client().await;
    for round in 0..6 {
        let one = stage.client().await;
        let names: Vec<_> = (0..20).map(|which| stage.name(format!("{round}/{which}"))).collect();
        let ttl = ttl_of(&one, 30_000);
        let requests: Vec<_> = names
            .iter()
            .map(|name| tokio::spawn(one.lock(name).ttl(ttl).wait(secs(60)).into_future()))
            .collect();
        pause(round).await;
        one.close().await.expect("all have their answers");
        for (name, request) in names.iter().zip(requests) {
            match done("the end of the request", secs(5), request).await.expect("no panic") {
                // It was granted before the close, which leaves it to its guard.
                Ok(guard) => {
                    drop(guard);
                    let (guard, _) = free_by(&two, name, ttl, "after a guard that outlived its client").await;
                    release(guard).await;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error:#}");
                    let guard = two.lock(name).try_now().await.expect("an answer");
                    release(guard.unwrap_or_else(|| panic!("round {round}: {name} is held after close")))
                        .await;
                }
            }
        }
    }
}
