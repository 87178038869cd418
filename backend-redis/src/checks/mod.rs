//! The check of a server when a client connects: whether locks are safe on it.

pub(crate) mod examine;

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Moment, Result};
use redis::{Cmd, ErrorKind as Kind, RedisResult, ServerErrorKind, Value};

use crate::gather::gather;
use crate::wire::Wire;
use crate::wire::doubts::{self, Demands};
use crate::wire::route::Route;
use crate::words::answers::text;
use crate::words::error::{ErrorClass, classify, fatal, is_denied, loading, no_answer, no_link};
use crate::words::info::{Info, config};
use crate::words::keys::Keys;
use crate::words::options::RedisOptions;
use crate::words::script::RIGHTS;

/// How long to wait for masters of a cluster that hang when one has answered.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Reaches the server, or the masters of a cluster, and checks what can be checked before the first lock.
/// `more`: the commands that are needed beside those that all need. `None`: the user may only read, so no
/// rights are checked. Returns whether each server has told that its locks survive a restart.
pub(crate) async fn route(
    route: &Route,
    keys: &Keys,
    more: Option<&[&str]>,
    options: &RedisOptions,
    demands: Demands,
) -> Result<bool> {
    let timeout = options.timeout;
    match route {
        Route::One(wire) => {
            let is_durable = server(wire, false, options, demands).await?;
            if let Some(more) = more {
                rights(wire, keys, more, timeout).await?;
            }
            Ok(is_durable)
        }
        Route::Cluster(cluster) => {
            let end = Moment::now().after(timeout);
            let mut last = None;
            loop {
                match tokio::time::timeout(end.remaining(), cluster.learn()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error))
                        if matches!(classify(&error, true), ErrorClass::Retry | ErrorClass::Broken) =>
                    {
                        last = Some(error);
                    }
                    Ok(Err(error)) => return Err(no_link(&error)),
                    Err(_) => return Err(no_answer(last.as_ref())),
                }
            }
            masters(&cluster.masters(), keys, more, options, demands).await
        }
    }
}

/// Checks all masters of a cluster at once, without waiting for long for those that hang. One must answer.
/// Returns whether all have answered, and each has told that its locks survive a restart.
async fn masters(
    masters: &[Arc<Wire>],
    keys: &Keys,
    more: Option<&[&str]>,
    options: &RedisOptions,
    demands: Demands,
) -> Result<bool> {
    let checks = masters.iter().map(async |wire| {
        let timeout = options.timeout;
        let is_durable = server(wire, true, options, demands).await?;
        if let Some(more) = more {
            rights(wire, keys, more, timeout).await?;
        }
        Ok(is_durable)
    });
    let checks = gather(checks, 1, PATIENCE).await;
    let (mut answered, mut silent, mut all_durable) = (false, None, true);
    for (check, wire) in checks.into_iter().zip(masters) {
        let check = check.unwrap_or_else(|| Err(no_answer(None)));
        match check.map_err(|error| error.at(wire.address.topology.to_string())) {
            Ok(is_durable) => {
                answered = true;
                all_durable &= is_durable;
            }
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                tracing::warn!(lockwell.node = ?wire.address.topology, "this master of the cluster cannot be reached, and is not checked");
                silent = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match silent {
        Some(error) if !answered => Err(error),
        // Of a master that is silent nobody knows whether it keeps its locks.
        silent => Ok(all_durable && answered && silent.is_none()),
    }
}

/// Reaches the server, and warns of one that may lose locks. With `strict=true` such a server has been
/// refused when the connection was made. Returns whether the server has told that its locks survive a
/// restart.
async fn server(
    wire: &Arc<Wire>,
    in_cluster: bool,
    options: &RedisOptions,
    demands: Demands,
) -> Result<bool> {
    let misconfigured = |text: &str| Err(Error::new(ErrorKind::Misconfigured, text));
    let info = info(wire, options.timeout).await?;
    if info.is_sentinel() {
        return misconfigured("the server is a sentinel: use redis+sentinel:// to reach its master");
    }
    if info.is_replica() {
        return misconfigured("the server is a replica, and read only: connect to its master");
    }
    if info.is_in_cluster() && !in_cluster {
        return misconfigured("the server is part of a cluster: use redis+cluster:// to reach it");
    }
    let is_durable = info.survives_restart();
    if options.accept_loss {
        return Ok(is_durable);
    }
    for doubt in demands.doubts(&info, keeps_every_change(wire, options.timeout).await?) {
        tracing::warn!(lockwell.address = %wire.address.topology, "this Redis server may lose locks: {doubt}");
    }
    Ok(is_durable)
}

/// Checks that the user has every right that will be needed: a right that is missing at a release would leave
/// a lock behind.
pub(crate) async fn rights(wire: &Arc<Wire>, keys: &Keys, more: &[&str], timeout: Duration) -> Result<()> {
    // By its text, so that the check leaves no script at the server.
    let mut command = RIGHTS.call(true, 0, (0, 0));
    command.arg(keys.probe()).arg(keys.channel("rights")).arg(more);
    let answer = match ask(wire, &command, timeout).await? {
        Ok(answer) => answer,
        Err(error) => return Err(fatal(&error, Some(&RIGHTS))),
    };
    let missing = match answer {
        Value::Array(names) => names.iter().map(|name| text(Some(name))).collect::<Result<Vec<_>>>()?,
        _ => Vec::new(),
    };
    if missing.is_empty() {
        return Ok(());
    }
    let namespace = keys.namespace();
    let text = format!(
        "the user lacks rights, or the server lacks commands: {} on the keys ~{namespace}* and the channels &{namespace}*",
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Refused, text))
}

/// The pause before a server that is loading is asked again.
const LOADING: Duration = Duration::from_millis(20);

/// The server's `INFO`, empty where the user has no right to it. Asks again while the server is loading.
pub(crate) async fn info(wire: &Arc<Wire>, timeout: Duration) -> Result<Info> {
    let end = Moment::now().after(timeout);
    let mut was_loading = false;
    loop {
        let left = end.remaining();
        let answer = ask(wire, &redis::cmd("INFO"), left).await;
        // The last question may have too little time for an answer: then what the server said before counts.
        let is_last = was_loading && left < 10 * LOADING;
        let answer = answer.map_err(|error| if is_last { no_answer(Some(&loading())) } else { error })?;
        match Info::of_loaded(answer) {
            Ok(info) => return Ok(info),
            Err(error) if is_denied(&error) => {
                tracing::info!(%error, "INFO is not allowed: the server is not checked");
                return Ok(Info::default());
            }
            Err(error) if error.kind() == Kind::Server(ServerErrorKind::BusyLoading) => (),
            Err(error) => return Err(fatal(&error, None)),
        }
        if end.remaining() <= LOADING {
            return Err(no_answer(Some(&loading())));
        }
        was_loading = true;
        tokio::time::sleep(LOADING).await;
    }
}

/// Whether the server answers only after its change is on the disk. `None`: it does not say.
pub(crate) async fn keeps_every_change(wire: &Arc<Wire>, timeout: Duration) -> Result<Option<bool>> {
    Ok(ask(wire, &config(), timeout).await?.ok().and_then(|answer| doubts::keeps_every_change(&answer)))
}

/// Asks again while the server is loading, busy or just restarting. The inner error is the server's final
/// word. A connection that stays silent is discarded, like one that does not answer calls.
pub(crate) async fn ask(wire: &Arc<Wire>, command: &Cmd, timeout: Duration) -> Result<RedisResult<Value>> {
    let end = Moment::now().after(timeout);
    let mut last = None;
    while !end.has_passed() {
        let sent = Moment::now();
        let (error, generation) = match tokio::time::timeout(end.remaining(), wire.link()).await {
            Err(_) => break,
            Ok(Err(error)) => (error, 0),
            Ok(Ok((mut link, generation))) => {
                match tokio::time::timeout(end.remaining(), link.query(command)).await {
                    Err(_) => {
                        wire.note_silence(generation, Moment::now().since(sent));
                        break;
                    }
                    Ok(Ok(value)) => return Ok(Ok(value)),
                    Ok(Err(error)) => (error, generation),
                }
            }
        };
        match classify(&error, true) {
            ErrorClass::Retry | ErrorClass::Torn => (),
            ErrorClass::Broken => wire.hang_up(generation),
            ErrorClass::NoScript | ErrorClass::Elsewhere | ErrorClass::Fatal => return Ok(Err(error)),
        }
        last = Some(error);
        tokio::time::sleep(Duration::from_millis(50).min(end.remaining())).await;
    }
    Err(no_answer(last.as_ref()))
}
