//! The purge of rows that nobody has used for long.
//!
//! It has a connection of its own and goes in small portions, so no request waits for it; behind each it pauses for as long
//! as that took, so it never takes more than half of the database's time. Rows that a transaction has locked are
//! passed over where the database can do that. One in the background that falls behind stops: the rows can wait.

use std::time::{Duration, Instant};

use lockcore::Result;

use crate::client::Client;
use crate::dialect::Dialect;
use crate::requests::{Context, Route};

/// How many names a portion has.
pub(crate) const PORTION: i64 = 500;
/// How many groups with dead members are put in order at once.
const GROUPS: usize = 64;
/// A portion that takes longer than this finds the database busy with other things.
const BEHIND: Duration = Duration::from_millis(250);

/// What a portion came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    pub gone: u64,
    /// The last name that was looked at. `None`: there are no more.
    pub last: Option<String>,
}

/// Deletes what nobody has used for `idle`, members whose leases ended that long ago included. `stops`: when it falls
/// behind.
pub(crate) async fn purge<D: Dialect>(client: &Client<D>, idle: Duration, stops: bool) -> Result<u64> {
    let purged = portions(client, idle, stops).await;
    // The next one is long after.
    client.close_on(Route::Purge);
    purged
}

async fn portions<D: Dialect>(client: &Client<D>, idle: Duration, stops: bool) -> Result<u64> {
    let deserted = client.run(Route::Purge, move |Context { dialect, conn, .. }| {
        Box::pin(async move { dialect.deserted(conn, idle).await })
    });
    for names in deserted.await?.chunks(GROUPS) {
        let names = names.to_vec();
        let reaped = client.run(Route::Purge, move |Context { dialect, waiters, conn }| {
            let names = names.clone();
            Box::pin(async move { dialect.reap(conn, &names, waiters).await })
        });
        client.notify(reaped.await?);
    }
    // No name is empty.
    let (mut after, mut gone) = (String::new(), 0);
    loop {
        let (began, from) = (Instant::now(), after.clone());
        let portion = client.run(Route::Purge, move |Context { dialect, conn, .. }| {
            let from = from.clone();
            Box::pin(async move { dialect.purge(conn, idle, &from).await })
        });
        let portion = portion.await?;
        gone += portion.gone;
        let Some(last) = portion.last else { return Ok(gone) };
        after = last;
        let took = began.elapsed();
        if stops && took > BEHIND {
            tracing::debug!(?took, "the purge falls behind and stops");
            return Ok(gone);
        }
        tokio::time::sleep(took.min(BEHIND)).await;
    }
}
