//! Opens sessions.

use std::time::Duration;

#[cfg(feature = "tls")]
use futures_util::future::join_all;
use lockwell_core::backend::Backoff;
#[cfg(feature = "tls")]
use lockwell_core::backend::run_blocking;
use lockwell_core::{Error, ErrorKind, Moment, Result};
use zookeeper_client as zk;

use crate::error::{explain, no_answer};
use crate::options::{Login, ZkOptions};
use crate::session::places::Places;
use crate::session::runtime::SESSIONS;

/// A busy machine must not count as silent.
const SHORTEST: Duration = Duration::from_millis(500);

/// The time that a server needs on a slow network.
const SLOW: Duration = Duration::from_secs(2);

/// Opens a session for long use. Also returns the time of the request.
///
/// If the servers are so slow that the time is too short to try several of them, a second try gives them more
/// time.
pub(crate) async fn connect_for_long(options: &ZkOptions, timeout: Duration) -> Result<(Moment, zk::Client)> {
    let (places, limit) = (Places::find(options).await, options.timeout);
    let (servers, several) = (places.for_long(), places.each.len() > 1);
    let short = connection_timeout(&places, timeout, limit);
    let asked = Moment::now();
    let first = if several { limit / 2 } else { limit };
    match connect_within(options, zk::Client::connector(), &servers, timeout, first, short).await {
        Err(error) if error.is_retryable() && several => (),
        answer => return Ok((asked, answer?)),
    }
    // If the first try made a session, its id is unknown. The time of the second try begins now.
    let asked = Moment::now();
    let slow = slow(timeout, limit);
    let client = connect_within(options, zk::Client::connector(), &servers, timeout, limit, slow).await?;
    Ok((asked, client))
}

/// Opens a session of about this timeout. Tries each of these servers once.
pub(crate) async fn connect(options: &ZkOptions, places: Places, timeout: Duration) -> Result<zk::Client> {
    connect_once(options, zk::Client::connector(), places, timeout).await
}

/// Opens a session that [`reattach`] can continue: it is not closed when its client is dropped.
pub(crate) async fn connect_detached(options: &ZkOptions, timeout: Duration) -> Result<zk::Client> {
    let connector = zk::Client::connector().with_detached();
    connect_once(options, connector, Places::find(options).await, timeout).await
}

/// Continues the session of a detached client with another timeout. A new session would cost the servers two
/// writes.
///
/// A leader that is elected later counts the first timeout of a session until it hears of it. So such a
/// session must not have locks.
pub(crate) async fn reattach(
    options: &ZkOptions,
    client: zk::Client,
    timeout: Duration,
) -> Result<zk::Client> {
    let connector = zk::Client::connector().with_session(client.into_session());
    connect_once(options, connector, Places::find(options).await, timeout).await
}

async fn connect_once(
    options: &ZkOptions,
    connector: zk::Connector,
    places: Places,
    timeout: Duration,
) -> Result<zk::Client> {
    let silence = connection_timeout(&places, timeout, options.timeout);
    connect_within(options, connector, &places.each.join(","), timeout, options.timeout, silence).await
}

/// Repeats a request that the servers refuse because they have too many. The caller limits the time.
pub(crate) async fn until_served<T, F>(ask: impl Fn() -> F) -> Result<T, zk::Error>
where
    F: Future<Output = Result<T, zk::Error>>,
{
    let mut pauses = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
    loop {
        match ask().await {
            Err(zk::Error::Throttled) => pauses.pause().await,
            answer => return answer,
        }
    }
}

async fn connect_within(
    options: &ZkOptions,
    connector: zk::Connector,
    servers: &str,
    timeout: Duration,
    limit: Duration,
    silence: Duration,
) -> Result<zk::Client> {
    let mut connector =
        connector.with_fail_eagerly().with_session_timeout(timeout).with_connection_timeout(silence);
    match &options.login {
        None => (),
        Some(Login::Digest(user, passwords)) => {
            let digest = format!("{user}:{}", passwords.current().await?.expose());
            connector = connector.with_auth("digest", digest.as_bytes());
        }
        #[cfg(feature = "sasl")]
        Some(Login::Sasl(user, passwords)) => {
            let password = passwords.current().await?;
            let sasl = zk::SaslOptions::digest_md5(user.clone(), password.expose().to_owned());
            connector = connector.with_sasl(sasl);
        }
    }
    #[cfg(feature = "tls")]
    if let Some(files) = options.tls.clone() {
        // Reading files can block, and this can be the thread of the sessions, whose heartbeats keep the
        // locks.
        let reading = run_blocking("lockwell-tls", move || tls_options(&files));
        let slow = |_| Error::new(ErrorKind::Unreachable, "the files for TLS cannot be read in time");
        let read = tokio::time::timeout(limit, reading).await.map_err(slow)?;
        connector = connector.with_tls(read??);
    }
    let servers = servers.to_owned();
    // The crate spawns the session's task where it is called.
    let opening = SESSIONS.spawn(async move {
        tokio::time::timeout(limit, connector.connect(&servers)).await.unwrap_or(Err(zk::Error::Timeout))
    });
    match opening.await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(zk::Error::BadArguments(what))) => {
            Err(Error::new(ErrorKind::InvalidInput, format!("the address is not usable: {what}")))
        }
        #[cfg(feature = "tls")]
        Ok(Err(zk::Error::NoHosts)) if options.tls.is_some() => {
            let text = "no server can be reached, or TLS fails: the client certificate, or a server's";
            Err(untrusted(options).await.unwrap_or_else(|| Error::new(ErrorKind::Unreachable, text)))
        }
        // The session ended before it began: the server refused the credentials or the version.
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err(no_answer()),
    }
}

/// Trusts only the certificates of these files. Reads the files for each session, so that renewed
/// certificates are used.
#[cfg(feature = "tls")]
fn tls_options(files: &lockwell_core::tls::TlsFiles) -> Result<zk::TlsOptions> {
    use lockwell_core::tls::{choose_provider, read_certificates, read_key, unusable};
    choose_provider();
    let mut options = zk::TlsOptions::new();
    if let Some(ca) = files.ca() {
        options = options.with_pem_ca(&read_certificates(ca)?).map_err(|error| unusable(ca, &error))?;
    }
    let Some((cert, key)) = files.identity() else { return Ok(options) };
    options
        .with_pem_identity(&read_certificates(cert)?, &read_key(key)?)
        .map_err(|error| unusable(&format!("{cert} and {key}"), &error))
}

/// The error if no server has a certificate that is trusted. The crate does not return the reason.
#[cfg(feature = "tls")]
async fn untrusted(options: &ZkOptions) -> Option<Error> {
    use lockwell_core::{backend::addresses_of, tls};
    let ca = options.tls.as_ref()?.ca()?;
    let asking = options.hosts.iter().map(async |host| {
        let (name, ca) = (host.name.clone(), ca.to_owned());
        let place = *addresses_of(&name, host.port).await.ok()?.first()?;
        run_blocking("lockwell-tls", move || tls::refusal(&name, place, &ca, SHORTEST)).await.ok()?
    });
    let refusals: Option<Vec<_>> = join_all(asking).await.into_iter().collect();
    Some(tls::untrusted(refusals?.first()?, "ca=FILE"))
}

/// How long a connection may be silent, or the connecting may take, before the client tries the next server.
///
/// With several servers there are two conditions. If a server falls silent and two more tries to reach it
/// fail, and one more by a name, there must be time to try another server before the session ends. If a
/// minority is silent and each of these servers is tried twice, there must be time to try another server
/// before the end of `limit`. A shorter time would cause more pings: the client crate pings after three
/// eighths of it.
fn connection_timeout(places: &Places, timeout: Duration, limit: Duration) -> Duration {
    let tries = if places.names.is_empty() { 4 } else { 5 };
    match u32::try_from(places.each.len()) {
        Ok(0 | 1) | Err(_) => timeout / 2,
        Ok(servers) => (timeout / tries).max(SHORTEST).min(timeout / 2).min(limit / servers),
    }
}

/// How long a connection may take on a slow network. A silent server still cannot use up all of the time.
fn slow(timeout: Duration, limit: Duration) -> Duration {
    (timeout / 4).max(SLOW).min(timeout / 2).min(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_gets_its_turn() {
        let secs = Duration::from_secs;
        let of = |servers: &str, names: &str, timeout| {
            let list = |text: &str| text.split_terminator(',').map(str::to_owned).collect();
            connection_timeout(&Places { each: list(servers), names: list(names) }, timeout, secs(5))
        };
        assert_eq!(of("a", "", secs(10)), secs(5));
        assert_eq!(of("a,b,c", "", secs(4)), secs(1));
        assert_eq!(of("a,b,c", "d", secs(5)), secs(1));
        assert_eq!(of("a,b,c", "", secs(1)), SHORTEST);
        assert_eq!(of("a,b,c", "", secs(86_400)), secs(5) / 3);
    }

    #[test]
    fn a_slow_network_gets_more_time() {
        let secs = Duration::from_secs;
        assert_eq!(slow(secs(2), secs(5)), secs(1));
        assert_eq!(slow(secs(6), secs(5)), SLOW);
        assert_eq!(slow(secs(86_400), secs(5)), secs(5) / 2);
    }
}
