//! Why a lock server cannot be reached.
//!
//! The backends try again when a server refuses connections, and their errors say little about why. So the
//! hosts are checked by plain connections, but only after a connection has failed or takes more than a
//! moment: servers log connections without a request.

use std::error::Error as _;
use std::io::ErrorKind as Io;
use std::time::Duration;

use lockwell_core::backend::addresses_of;
use lockwell_core::{Error, ErrorKind, Host, ServerUrl};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

/// How long a connection may take before the hosts are checked.
const MOMENT: Duration = Duration::from_millis(300);

/// How long a host is tried.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The outcome of a connection to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostState {
    Takes,
    Refuses,
    /// The name does not exist.
    Unknown,
    /// No name server answers.
    NotLookedUp,
    /// A socket in the file system that does not exist.
    Missing,
    Silent,
}

impl HostState {
    /// Whether it is clear that no server is there.
    fn is_clear(self) -> bool {
        matches!(self, Self::Refuses | Self::Unknown | Self::NotLookedUp | Self::Missing)
    }
}

/// Resolves when it is clear that none of the hosts has a server: all refuse connections, or are unknown.
/// The error passes when a server is started. It stays if no name exists, since the address is wrong then.
pub(crate) async fn no_server(url: &ServerUrl) -> Error {
    sleep(MOMENT).await;
    match states(url).await {
        Some(states) if states.iter().all(|(_, state)| state.is_clear()) => {
            let error = Error::new(ErrorKind::Unreachable, words(&states));
            let is_wrong = states.iter().all(|(_, state)| *state == HostState::Unknown);
            if is_wrong { error.for_good() } else { error }
        }
        _ => std::future::pending().await,
    }
}

/// Adds to the error of a connection what the hosts do that cannot be reached; what all hosts do, if the
/// backend knows no reason. What the backend says of a host itself is not repeated.
pub(crate) async fn explained(error: Error, url: &ServerUrl) -> Error {
    if error.kind() != ErrorKind::Unreachable {
        return error;
    }
    let Some(mut states) = states(url).await else { return error };
    let has_reason = error.source().is_some();
    states.retain(|(host, state)| {
        let is_told = error.message().contains(host.as_str());
        let is_blameless = has_reason && *state == HostState::Takes;
        !is_told && !is_blameless
    });
    if states.is_empty() { error } else { error.adding(words(&states)) }
}

/// The error of a server that did not answer within this time.
pub(crate) async fn silent(url: &ServerUrl, limit: Duration) -> Error {
    explained(Error::new(ErrorKind::Unreachable, format!("no answer within {limit:?}")), url).await
}

/// The servers of an address whose scheme is one of ours, as errors name them.
pub(crate) fn servers(url: &ServerUrl) -> Option<String> {
    usual_port(url.scheme()).map(|port| url.servers(port))
}

async fn states(url: &ServerUrl) -> Option<Vec<(String, HostState)>> {
    let named = match url.scheme() {
        "redis+unix" => Some(url.location()),
        // A folder is one of PostgreSQL, whose default port is the end of the name.
        "postgres" | "postgresql" => url.option("socket").map(|path| match path.rsplit_once("/.s.") {
            Some(_) => path.to_owned(),
            None => format!("{path}/.s.PGSQL.5432"),
        }),
        _ => url.option("socket").map(str::to_owned),
    };
    if let Some(path) = named {
        let state = socket(&path).await;
        return Some(vec![(path, state)]);
    }
    let usual = usual_port(url.scheme())?;
    let hosts = url.hosts().ok()?;
    let mut looks = Vec::new();
    for host in hosts {
        let port = host.port().unwrap_or(usual);
        looks.push(tokio::spawn(async move { Some((host.authority(port), state(&host, port).await?)) }));
    }
    let mut states = Vec::new();
    for look in looks {
        states.push(look.await.ok()??);
    }
    Some(states)
}

/// `None`: no thread can be started for the look-up.
async fn state(host: &Host, port: u16) -> Option<HostState> {
    let found = match timeout(TIMEOUT, addresses_of(host.name(), port)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) if error.get_ref().is_some_and(|error| error.downcast_ref::<Error>().is_some()) => {
            return None;
        }
        // The standard library has the texts of the C library, and no kinds.
        Ok(Err(error)) if error.to_string().contains("emporary failure") => {
            return Some(HostState::NotLookedUp);
        }
        Ok(Err(_)) => return Some(HostState::Unknown),
        Err(_) => return Some(HostState::Silent),
    };
    Some(match timeout(TIMEOUT, TcpStream::connect(&found[..])).await {
        Ok(Ok(_)) => HostState::Takes,
        Ok(Err(error)) if error.kind() == Io::ConnectionRefused => HostState::Refuses,
        _ => HostState::Silent,
    })
}

/// The state of a socket in the file system.
#[cfg(unix)]
async fn socket(path: &str) -> HostState {
    match timeout(TIMEOUT, UnixStream::connect(path)).await {
        Ok(Ok(_)) => HostState::Takes,
        Ok(Err(error)) if error.kind() == Io::NotFound => HostState::Missing,
        Ok(Err(error)) if error.kind() == Io::ConnectionRefused => HostState::Refuses,
        _ => HostState::Silent,
    }
}

/// There are none on other systems.
#[cfg(not(unix))]
async fn socket(_: &str) -> HostState {
    std::future::ready(HostState::Missing).await
}

fn words(states: &[(String, HostState)]) -> String {
    let words = states.iter().map(|(host, state)| match state {
        HostState::Takes => format!("{host} takes connections but does not answer as it should"),
        HostState::Refuses => {
            format!("{host}: connection refused; is the server running, and the address right?")
        }
        HostState::Unknown => format!("{host}: host name unknown; is it spelt right?"),
        HostState::NotLookedUp => format!("{host}: host name unknown now: no name server answers"),
        HostState::Missing => {
            format!("{host}: there is no such socket; is the server running, and the path right?")
        }
        HostState::Silent => format!("{host} takes no connections; is a firewall in between?"),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The port that a backend uses where the address names none. `None` for addresses without hosts, and for
/// those of backends from elsewhere.
fn usual_port(scheme: &str) -> Option<u16> {
    match scheme {
        "postgres" | "postgresql" => Some(5432),
        "mysql" | "mariadb" => Some(3306),
        "zk" => Some(2181),
        "etcd" | "etcds" => Some(2379),
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redlock" | "redlocks" => Some(6379),
        "redis+sentinel" | "rediss+sentinel" => Some(26379),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> Error {
        Error::new(ErrorKind::Unreachable, "no majority")
    }

    #[tokio::test]
    async fn hosts_are_told_apart() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let url: ServerUrl =
            format!("redlock://ann:hunter2@{open},127.0.0.1:1,-no-such-host.invalid").parse().unwrap();
        let error = explained(unreachable(), &url).await;
        let parts: Vec<_> = error.message().split("; ").collect();
        assert_eq!(parts[0], "no majority");
        assert!(parts[1].starts_with(&format!("{open} takes connections")), "{error}");
        assert!(parts[2].contains("127.0.0.1:1: connection refused"), "{error}");
        assert!(error.message().contains("-no-such-host.invalid:6379: host name unknown"), "{error}");
        assert!(!format!("{error:#?}").contains("hunter2"), "{error:#?}");
        // One that may be there is waited for.
        assert!(timeout(MOMENT * 4, no_server(&url)).await.is_err());
        // A server that takes connections is not blamed for what has a reason.
        let error = explained(unreachable().with_source("it is full"), &url).await;
        assert!(!error.message().contains(&open.to_string()), "{error}");
        // What the backend has said is not said again, and what no host has to do with has no hosts.
        let said = Error::new(ErrorKind::Unreachable, "127.0.0.1:1: connection refused");
        let error = explained(said, &url).await;
        assert_eq!(error.message().matches("127.0.0.1:1").count(), 1, "{error}");
        let refused = explained(Error::new(ErrorKind::Refused, "wrong password"), &url).await;
        assert_eq!(refused.message(), "wrong password");
    }

    #[tokio::test]
    async fn a_wrong_name_stays_wrong_and_a_server_may_be_started() {
        for (host, for_good) in [("127.0.0.1:1", false), ("-no-such-host.invalid", true)] {
            let url: ServerUrl = format!("postgres://{host}/app").parse().unwrap();
            let error = timeout(MOMENT * 10, no_server(&url)).await.unwrap();
            assert_eq!(error.is_retryable(), !for_good, "{error}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn sockets_are_checked_as_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("redis.sock").display().to_string();
        let url: ServerUrl = format!("redis+unix://{path}").parse().unwrap();
        let error = silent(&url, Duration::from_secs(5)).await;
        assert!(error.message().contains(&format!("5s; {path}: there is no such socket")), "{error}");
    }
}
