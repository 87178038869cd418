//! The purge of rows that nobody has used for long.
//!
//! It has a connection of its own and works in small portions, so no request waits for it. After each portion
//! it pauses for as long as the portion took, so it never takes more than half of the database's time. It
//! skips rows that a transaction has locked, where the database can do that. A purge in the background stops
//! when the database is slow.

use std::time::{Duration, Instant};

use lockwell_core::Result;

use crate::client::Client;
use crate::dialect::Dialect;
use crate::dialect::requests::Route;

/// From how many groups members whose leases have ended are removed at once.
const GROUPS: usize = 64;
/// How many portions of places of waiters that are gone are deleted at most.
const SWEEPS: usize = 1000;
/// If a portion takes longer than this, the database is busy.
const BEHIND: Duration = Duration::from_millis(250);

/// Deletes the rows that nobody has used for `idle`, and members whose leases ended that long ago. With
/// `stops` it ends early when the database is slow.
pub(crate) async fn purge<D: Dialect>(client: &Client<D>, idle: Duration, stops: bool) -> Result<u64> {
    let purged = portions(client, idle, stops).await;
    // The next purge is much later.
    client.close_on(Route::Purge);
    purged
}

async fn portions<D: Dialect>(client: &Client<D>, idle: Duration, stops: bool) -> Result<u64> {
    for _ in 0..SWEEPS {
        let sweep =
            client.run(Route::Purge, |dialect, conn| Box::pin(async move { dialect.sweep(conn).await }));
        if !sweep.await?.more {
            break;
        }
    }
    let stale_groups = client.run(Route::Purge, move |dialect, conn| {
        Box::pin(async move { dialect.stale_groups(conn, idle).await })
    });
    for names in stale_groups.await?.chunks(GROUPS) {
        let names = names.to_vec();
        let reaped = client.run(Route::Purge, move |dialect, conn| {
            let names = names.clone();
            Box::pin(async move { dialect.reap(conn, &names).await })
        });
        client.notify(reaped.await?);
    }
    if client.dialect.hints().has_records() {
        let removed = client.run(Route::Purge, |dialect, conn| Box::pin(dialect.purge_records(conn)));
        // A user may well be without the right to delete.
        if let Err(error) = removed.await {
            tracing::debug!(error = format!("{error:#}"), "removed records are not deleted");
        }
    }
    // No name is empty.
    let (mut after, mut gone) = (String::new(), 0);
    loop {
        let (began, from) = (Instant::now(), after.clone());
        let portion = client.run(Route::Purge, move |dialect, conn| {
            let from = from.clone();
            Box::pin(async move { dialect.purge(conn, idle, &from).await })
        });
        let portion = portion.await?;
        gone += portion.gone;
        let Some(last) = portion.last else { return Ok(gone) };
        after = last;
        let took = began.elapsed();
        if stops && took > BEHIND {
            tracing::debug!(lockwell.took = ?took, "the purge falls behind and stops");
            return Ok(gone);
        }
        tokio::time::sleep(took.min(BEHIND)).await;
    }
}
