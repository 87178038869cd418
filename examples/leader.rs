//! Leader election: of several candidates one leads; when it loses leadership its work is cancelled, and
//! another's begins.
//!
//! `cargo run --example leader`, or `--features zk -- zk://127.0.0.1:2181` and any other address

use std::time::Duration;

use lockwell::{FencingToken, Locks, Result};

/// The work of a leader. It never ends by itself: it is dropped when leadership is lost.
async fn schedule(candidate: usize, leading: lockwell::LockHandle) {
    println!("candidate {candidate} leads, token {}", leading.token());
    let mut round = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        round += 1;
        // Whatever a leader orders carries its token, so that orders of a former leader can be refused.
        println!("  candidate {candidate}: order {round} under token {}", leading.token());
    }
}

/// Waits until somebody leads who came after the leader with this token, for ten seconds at most.
async fn next_leader(locks: &Locks, after: Option<FencingToken>) -> Result<Option<FencingToken>> {
    for _ in 0..500 {
        let status = locks.inspect("scheduler").await?;
        let token = status.holders.first().map(|leader| leader.token);
        if token > after {
            return Ok(token);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(after)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locks: Locks = lockwell::connect(url).await?;

    let mut observer = locks.observe("scheduler").every(Duration::from_millis(20));
    let watching = tokio::spawn(async move {
        while let Ok(leader) = observer.next().await {
            match leader {
                Some(leader) => println!("observer: {} leads", leader.label),
                None => println!("observer: nobody leads"),
            }
        }
    });

    // A leader that is deposed learns it at its next renewal, after a third of the ttl.
    let ttl = locks.capabilities().min_ttl().max(Duration::from_millis(300));
    let mut candidates = Vec::new();
    for candidate in 0..3 {
        let campaign = locks.campaign("scheduler").ttl(ttl).label(format!("candidate {candidate}"));
        candidates.push(tokio::spawn(campaign.run_as_leader(move |leading| schedule(candidate, leading))));
    }

    // The leaders go, one after the other: the process of the first ends, the second is deposed by an
    // operator.
    let first = next_leader(&locks, None).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("the first leader's process ends");
    candidates.remove(0).abort();
    let second = next_leader(&locks, first).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("an operator deposes the leader");
    locks.force_release("scheduler").await?;
    next_leader(&locks, second).await?;
    tokio::time::sleep(ttl).await;

    for candidate in candidates {
        candidate.abort();
    }
    watching.abort();
    Ok(())
}
