//! The limits of the servers.

use std::time::Duration;

use futures_util::TryFutureExt;
use lockcore::{Error, ErrorKind, Moment, Result};
use zookeeper_client::{self as zk, CreateMode};

use crate::connect::{connect, until_served};
use crate::error::explain;
use crate::four_letters::ask_conf;
use crate::inspect::ServerClock;
use crate::names::CLOCK;
#[cfg(feature = "sasl")]
use crate::options::Login;
use crate::options::{Options, Strict};

/// Longer than any server allows by default.
const LONG: Duration = Duration::from_hours(24);

/// The tick of servers that do not report it.
const USUAL_TICK: Duration = Duration::from_secs(2);

/// The limits of the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The shortest session.
    pub(crate) least: Duration,
    /// The longest session.
    pub(crate) most: Duration,
    /// Whether there is an ensemble, in which the leader counts the time of the session.
    pub(crate) ensemble: bool,
    /// The shortest session as it was granted.
    pub(crate) granted: Duration,
    /// The servers' `tickTime`.
    pub(crate) tick: Duration,
    /// How long a server may be cut off from its leader before it disconnects its clients.
    pub(crate) isolated: Option<Duration>,
}

impl Limits {
    /// How long it may take until a heartbeat has reached the leader: half a tick, and a margin for a slow server.
    pub(crate) fn lag(&self) -> Duration {
        if self.ensemble { self.tick * 5 / 8 } else { Duration::ZERO }
    }
}

/// Learns the limits, creates the base path, and checks that nodes can be created in it.
pub(crate) async fn probe(options: &Options, clock: &ServerClock) -> Result<Limits> {
    // The rest uses a session whose timeout is long enough for a slow network.
    let long = connect(options, &options.servers, LONG, options.timeout).await?;
    let short = shortest(options).await?;
    let work = prepare(options, &long, clock);
    tokio::time::timeout(options.timeout, work).await.map_err(|_| crate::error::no_answer())??;
    let config = until_served(|| long.get_config());
    let ensemble = match tokio::time::timeout(options.timeout, config).await {
        Ok(Ok((config, _))) => String::from_utf8_lossy(&config).contains("server."),
        // Without the right to read it, an ensemble is the safe assumption.
        _ => true,
    };
    let (least, most) = (short.session_timeout(), long.session_timeout());
    let mut limits = Limits { least, most, ensemble, granted: least, tick: USUAL_TICK, isolated: None };
    if ensemble {
        if let Some((tick, sync_limit)) = ask_conf(options).await {
            limits.tick = tick;
            limits.isolated = Some(tick * sync_limit);
        } else if let Some(tick) = options.tick {
            limits.tick = tick;
        } else {
            // The shortest session need not be two ticks. So this assumes the default tick, or a longer one.
            limits.tick = USUAL_TICK.max(least / 2);
            limits.least = limits.tick * 2;
        }
        if let Strict::Above(isolated) = options.strict {
            limits.isolated = Some(isolated);
        }
        check_isolation(options, &mut limits)?;
    }
    Ok(limits)
}

/// A session of the shortest time that the servers allow.
///
/// The crate derives its connection timeout from that of the session, so a slow server gets several tries.
async fn shortest(options: &Options) -> Result<zk::Client> {
    let end = Moment::now().after(options.timeout);
    loop {
        match connect(options, &options.servers, options.session, options.timeout).await {
            Err(error) if error.is_retryable() && !end.has_passed() => {
                tracing::debug!(error = format!("{error:#}"), "no short session yet");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) if error.is_retryable() => break,
            answer => return answer,
        }
    }
    connect(options, &options.servers, Duration::from_secs(4), options.timeout).await
}

async fn prepare(options: &Options, client: &zk::Client, clock: &ServerClock) -> Result<()> {
    let base = &options.base;
    #[cfg(feature = "sasl")]
    if let Some(Login::Sasl(..)) = options.login
        && let Ok(users) = client.list_auth_users().await
        && users.iter().all(|user| user.scheme() != "sasl")
    {
        // A server without SASL ignores the request for SASL.
        return Err(Error::new(
            ErrorKind::Refused,
            "the server has not authenticated the user by SASL; is SASL configured there?",
        ));
    }
    // This checks first: creating a node that exists needs a right that an application should not have.
    let refused = |error: zk::Error| explain(&error);
    let found = until_served(|| client.check_stat(base));
    if !base.is_empty() && found.await.map_err(refused)?.is_none() {
        if !options.create {
            let text = format!("the base path {base} does not exist, and create=false forbids to make it");
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        let directory = CreateMode::Persistent.with_acls(options.acls());
        until_served(|| client.mkdir(base, &directory)).await.map_err(refused)?;
    }
    // It ends with its session.
    let passing = CreateMode::EphemeralSequential.with_acls(options.acls());
    let path = format!("{base}/{CLOCK}");
    let making = until_served(|| {
        let sent = Moment::now();
        client.create(&path, b"", &passing).map_ok(move |(stat, _)| (sent, stat))
    });
    let (sent, stat) = making.await.map_err(refused)?;
    clock.saw(stat.ctime, sent);
    Ok(())
}

/// A server that is cut off from its leader serves its clients for `syncLimit` more ticks. The leader can end a shorter
/// session during that time.
fn check_isolation(options: &Options, limits: &mut Limits) -> Result<()> {
    let misconfigured = |text: String| Err(Error::new(ErrorKind::Misconfigured, text));
    match (limits.isolated, options.strict) {
        (None, Strict::Yes) => {
            return misconfigured(
                "strict=true needs to know syncLimit x tickTime, and the servers do not tell: allow the command conf \
                 (4lw.commands.whitelist), or give it as strict=10s"
                    .to_owned(),
            );
        }
        (Some(isolated), Strict::No) if limits.least <= isolated => tracing::warn!(
            shortest = ?limits.least, ?isolated,
            "leases that are not longer than syncLimit x tickTime are lost when a server is cut off from its leader, \
             before the server notices; strict=true refuses them"
        ),
        (Some(isolated), Strict::Yes | Strict::Above(_)) => {
            limits.least = limits.least.max(isolated + limits.tick);
        }
        (_, Strict::No | Strict::Above(_)) => (),
    }
    if limits.least > limits.most {
        return misconfigured(format!(
            "no lease satisfies strict: the shortest is {:?}, and the servers' maxSessionTimeout is {:?}",
            limits.least, limits.most
        ));
    }
    Ok(())
}
