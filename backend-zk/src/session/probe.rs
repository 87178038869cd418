//! What a client does first: it learns the limits of the servers, and checks the base path.

use std::time::Duration;

use futures_util::TryFutureExt;
use lockwell_core::{Error, ErrorKind, Moment, Result};
use zookeeper_client::{self as zk, CreateMode};

use crate::error::{explain, no_answer};
#[cfg(feature = "sasl")]
use crate::options::Login;
use crate::options::ZkOptions;
use crate::session::clock::ServerClock;
use crate::session::connect::{connect, connect_detached, reattach, until_served};
use crate::session::limits::{Limits, is_ensemble, limits_of, make_mark};
use crate::session::places::Places;

/// Longer than any server allows by default.
const LONG: Duration = Duration::from_secs(86_400);

/// Learns the limits, creates the base path if it is missing, and checks that nodes can be created in it.
/// With `create=false` it creates nothing.
///
/// One session serves for both limits: it is continued with another timeout.
pub(crate) async fn probe(options: &ZkOptions, clock: &ServerClock) -> Result<Limits> {
    // The rest uses a session whose timeout is long enough for a slow network.
    let long = connect_detached(options, LONG).await?;
    let most = long.session_timeout();
    let work = prepare(options, &long, clock);
    tokio::time::timeout(options.timeout, work).await.map_err(|_| no_answer())??;
    let asking = tokio::time::timeout(options.timeout, is_ensemble(options, &long));
    // An ensemble is the safe assumption.
    let ensemble = asking.await.ok().flatten().unwrap_or(true);
    let short = match reattach(options, long, options.session).await {
        Ok(short) => short,
        Err(error) => {
            tracing::debug!(error = format!("{error:#}"), "the session cannot be continued");
            shortest(options).await?
        }
    };
    limits_of(options, short.session_timeout(), most, ensemble).await
}

/// A session of the shortest time that the servers allow.
///
/// The crate derives its connection timeout from that of the session, so a slow server gets several tries.
async fn shortest(options: &ZkOptions) -> Result<zk::Client> {
    let end = Moment::now().after(options.timeout);
    loop {
        match connect(options, Places::find(options).await, options.session).await {
            Err(error) if error.is_retryable() && !end.has_passed() => {
                tracing::debug!(error = format!("{error:#}"), "no short session yet");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) if error.is_retryable() => break,
            answer => return answer,
        }
    }
    connect(options, Places::find(options).await, Duration::from_secs(4)).await
}

async fn prepare(options: &ZkOptions, client: &zk::Client, clock: &ServerClock) -> Result<()> {
    let base = &options.base;
    #[cfg(feature = "sasl")]
    if let Some(Login::Sasl(..)) = options.login {
        let users = client.list_auth_users().await;
        // A server without SASL ignores the request for SASL.
        if users.is_ok_and(|users| users.iter().all(|user| user.scheme() != "sasl")) {
            return Err(Error::new(
                ErrorKind::Refused,
                "the server has not authenticated the user by SASL; is SASL configured there?",
            ));
        }
    }
    // This checks first: creating a node that exists needs a right that an application should not have.
    let refused = |error: zk::Error| explain(&error);
    let found = until_served(|| client.check_stat(base));
    let is_there = |found| match found {
        // Whoever may not read it is not told more since releases 3.8.4 and 3.9.2 (ZOOKEEPER-2590).
        Err(zk::Error::NoAuth) => Ok(true),
        found => found.map(|stat: Option<zk::Stat>| stat.is_some()),
    };
    if !base.is_empty() && !is_there(found.await).map_err(refused)? {
        if !options.create {
            let text = format!("the base path {base} does not exist, and create=false forbids to make it");
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        let directory = CreateMode::Persistent.with_acls(options.acls());
        until_served(|| client.mkdir(base, &directory)).await.map_err(refused)?;
    }
    if options.create {
        // It ends with its session.
        let making = until_served(|| {
            let sent = Moment::now();
            make_mark(options, client).map_ok(move |(stat, _)| (sent, stat))
        });
        let (sent, stat) = making.await.map_err(refused)?;
        clock.saw(stat.ctime, sent);
    }
    Ok(())
}
