//! The limits of the servers, and whether they are an ensemble.
//!
//! Both can change while a client is connected: a server that was alone can be restarted as a member of an
//! ensemble, or its host name can lead to another server. So each session asks again, when it opens and when
//! it moves.

use std::sync::Mutex;
use std::time::Duration;

use lockwell_core::backend::lock;
use lockwell_core::{Error, ErrorKind, Result};
use zookeeper_client::{self as zk, CreateMode};

use crate::error::{ErrorClass, class_of};
use crate::names::CLOCK;
use crate::options::{Strict, ZkOptions};
use crate::session::connect::until_served;
use crate::session::four_letters::{ask_conf, is_alone};

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
    /// How long it may take until a heartbeat has reached the leader. Zero on a single server.
    pub(crate) fn lag(&self) -> Duration {
        if self.ensemble { self.lag_of_ensemble() } else { Duration::ZERO }
    }

    /// The [lag](Self::lag) if the servers are an ensemble: half a tick, and a margin for a slow server.
    pub(crate) fn lag_of_ensemble(&self) -> Duration {
        self.tick * 5 / 8
    }
}

/// The limits that all sessions of a client know.
#[derive(Debug)]
pub(crate) struct Known(Mutex<Limits>);

impl Known {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(limits))
    }

    pub(crate) fn get(&self) -> Limits {
        *lock(&self.0)
    }

    /// Asks the server of this session whether it is a member of an ensemble by now. If so, the limits are
    /// computed again. An ensemble is not asked: to take a single server for one is safe. `None`: there is no
    /// answer.
    pub(crate) async fn ask(&self, options: &ZkOptions, client: &zk::Client) -> Result<Option<Limits>> {
        let known = self.get();
        if known.ensemble {
            return Ok(Some(known));
        }
        match is_ensemble(options, client).await {
            None => return Ok(None),
            Some(false) => return Ok(Some(known)),
            Some(true) => tracing::info!("the server has become a member of an ensemble"),
        }
        let limits = limits_of(options, known.granted, known.most, true).await?;
        *lock(&self.0) = limits;
        Ok(Some(limits))
    }
}

/// Whether the server is a member of an ensemble, which is the safe assumption where it cannot be known.
/// `None`: there is no answer.
///
/// The configuration names the members. But a server that was alone when its data began has an empty one,
/// also after it has become a member. Then `srvr` says what it is. Where that is not answered, the number of
/// a write does: its upper half is the epoch, which is zero until the first election.
pub(crate) async fn is_ensemble(options: &ZkOptions, client: &zk::Client) -> Option<bool> {
    match until_served(|| client.get_config()).await {
        Ok((config, _)) if String::from_utf8_lossy(&config).contains("server.") => return Some(true),
        Ok(_) => (),
        Err(error) if class_of(&error) == ErrorClass::Refused => return Some(true),
        Err(_) => return None,
    }
    if let Some(alone) = is_alone(options).await {
        return Some(!alone);
    }
    match until_served(|| make_mark(options, client)).await {
        Ok((stat, _)) => Some(stat.czxid >> 32 != 0),
        Err(error) if class_of(&error) == ErrorClass::Refused || error == zk::Error::NoNode => Some(true),
        Err(_) => None,
    }
}

/// Creates a node that belongs to the session. Returns its stat and the end of its name.
pub(crate) async fn make_mark(
    options: &ZkOptions,
    client: &zk::Client,
) -> Result<(zk::Stat, zk::CreateSequence), zk::Error> {
    let passing = CreateMode::EphemeralSequential.with_acls(options.acls());
    client.create(&format!("{}/{CLOCK}", options.base), b"", &passing).await
}

/// The limits of servers that grant sessions of these lengths.
pub(crate) async fn limits_of(
    options: &ZkOptions,
    granted: Duration,
    most: Duration,
    ensemble: bool,
) -> Result<Limits> {
    let tick = options.tick.unwrap_or(USUAL_TICK);
    let mut limits = Limits { least: granted, most, ensemble, granted, tick, isolated: None };
    if !ensemble {
        return Ok(limits);
    }
    if let Some((tick, sync_limit)) = ask_conf(options).await {
        limits.tick = tick;
        limits.isolated = Some(tick * sync_limit);
    } else if options.tick.is_none() {
        // The shortest session need not be two ticks. So this assumes the default tick, or a longer one.
        limits.tick = USUAL_TICK.max(granted / 2);
        limits.least = limits.tick * 2;
    }
    if let Strict::Above(isolated) = options.strict {
        limits.isolated = Some(isolated);
    }
    check_isolation(options, &mut limits)?;
    Ok(limits)
}

/// A server that is cut off from its leader serves its clients for `syncLimit` more ticks. The leader can end
/// a shorter session during that time.
fn check_isolation(options: &ZkOptions, limits: &mut Limits) -> Result<()> {
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
            lockwell.shortest = ?limits.least, lockwell.isolated = ?isolated,
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
