//! Finds the master by its sentinels.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockwell_core::backend::lock;
use redis::{
    ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, Value,
};

use crate::wire::dial::{connect_to, open, unreachable_now};
use crate::wire::link::{Link, Subscriber};
use crate::words::address::{Address, tcp};
use crate::words::error::{ErrorClass, SENTINEL_LOGIN, classify, is_denied};

/// How long one sentinel may take.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The answer of one sentinel.
enum SentinelAnswer {
    /// The connection to the master that it names.
    Master(Link),
    /// It names a master that another has named before.
    Same,
    /// It knows no master of this name.
    UnknownName,
    Failed(RedisError),
}

/// Makes a connection to the master.
///
/// All sentinels are asked at once, so that those that hang or are down do not delay it. The first connection
/// to a server that says by itself that it is a master wins: a sentinel that is cut off may name the former
/// master.
pub(crate) async fn connect(
    address: &Address,
    sentinels: &[ConnectionAddr],
    name: &str,
    subscriber: Option<Subscriber>,
) -> RedisResult<Link> {
    let named = Mutex::new(HashSet::new());
    let asks: FuturesUnordered<_> =
        sentinels.iter().map(|sentinel| ask(address, sentinel, name, subscriber.clone(), &named)).collect();
    let mut asks = std::pin::pin!(asks);
    let (mut unknown, mut failures) = (false, Vec::new());
    while let Some(asked) = asks.next().await {
        match asked {
            SentinelAnswer::Master(link) => return Ok(link),
            SentinelAnswer::Same => (),
            SentinelAnswer::UnknownName => unknown = true,
            SentinelAnswer::Failed(error) => failures.push(error),
        }
    }
    let is_final = |error: &RedisError| classify(error, true) == ErrorClass::Fatal;
    if let Some(at) = failures.iter().position(is_final) {
        return Err(failures.swap_remove(at));
    }
    if unknown && lock(&named).is_empty() {
        let text = "no sentinel knows a master of this name";
        return Err((ErrorKind::MasterNameNotFoundBySentinel, text).into());
    }
    // It is down, or a replica by now: there will be another master in a moment.
    Err(failures.pop().unwrap_or_else(unreachable_now))
}

async fn ask(
    address: &Address,
    sentinel: &ConnectionAddr,
    name: &str,
    subscriber: Option<Subscriber>,
    named: &Mutex<HashSet<(String, u16)>>,
) -> SentinelAnswer {
    let answer = match tokio::time::timeout(TIMEOUT, master_of(address, sentinel, name)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return SentinelAnswer::Failed(error),
        Err(_) => return SentinelAnswer::Failed(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    };
    let Some((host, port)) = answer else { return SentinelAnswer::UnknownName };
    if !lock(named).insert((host.clone(), port)) {
        return SentinelAnswer::Same;
    }
    let addr = address.node(host, port);
    match connect_to_master(address, &addr, subscriber).await {
        Ok(link) => SentinelAnswer::Master(link),
        Err(error) => SentinelAnswer::Failed(error),
    }
}

async fn connect_to_master(
    address: &Address,
    addr: &ConnectionAddr,
    subscriber: Option<Subscriber>,
) -> RedisResult<Link> {
    let mut link = connect_to(address, addr, subscriber).await?;
    match link.query(&redis::cmd("ROLE")).await {
        Ok(Value::Array(parts)) if !is_master(parts.first()) => Err(unreachable_now()),
        // Without the right to ask, a replica shows by refusing to write.
        Err(error) if !is_denied(&error) => Err(error),
        _ => Ok(link),
    }
}

fn is_master(role: Option<&Value>) -> bool {
    matches!(role, Some(Value::BulkString(word)) if word == b"master")
}

/// The address of the master according to the sentinel; `None` if it knows none of this name.
///
/// It is asked without a login first, and with a login only when it requires one. So no password is sent to a
/// sentinel that needs none. If the address has none for the sentinels, the master's is tried: it is no
/// secret to a sentinel, which is trusted to name the server that gets the master's password.
async fn master_of(
    address: &Address,
    sentinel: &ConnectionAddr,
    name: &str,
) -> RedisResult<Option<(String, u16)>> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let plain = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let info = |login| {
        RedisResult::Ok(
            sentinel.clone().into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp()),
        )
    };
    let asked = async {
        let mut link = open(address, info(plain.clone())?, None).await?;
        link.query(&command).await
    };
    let answer = match asked.await {
        Err(error) if wants_login(&error) => {
            let Some(login) = address.sentinel_login(plain) else { return Err(login_refused(&error)) };
            let asked = async {
                let mut link = open(address, info(login)?, None).await?;
                link.query(&command).await
            };
            asked.await.map_err(|error| {
                let refused = error.kind() == ErrorKind::AuthenticationFailed || wants_login(&error);
                if refused { login_refused(&error) } else { error }
            })?
        }
        answer => answer?,
    };
    let Value::Array(words) = answer else { return Ok(None) };
    let mut words = words.into_iter().filter_map(|word| match word {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    });
    let (Some(host), Some(port)) = (words.next(), words.next()) else { return Ok(None) };
    Ok(port.parse().ok().map(|port| (host, port)))
}

fn wants_login(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "NOPERM" | "WRONGPASS"))
}

fn login_refused(error: &RedisError) -> RedisError {
    redis::make_extension_error(SENTINEL_LOGIN.to_owned(), Some(error.to_string()))
}
