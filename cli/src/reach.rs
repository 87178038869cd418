//! Why a lock server cannot be reached.
//!
//! The backends try again when a server refuses connections, and their errors say little about why. So the
//! command checks the hosts itself, by plain connections, but only if there is no connection after a moment:
//! servers log connections without a request.

use std::io::ErrorKind as Io;
use std::time::Duration;

use lockwell::backend::{Host, ServerUrl};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{sleep, timeout};

/// How long a connection may take before the hosts are checked.
const MOMENT: Duration = Duration::from_millis(300);

/// How long a host is tried.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The outcome of a connection to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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

impl State {
    /// Whether it is clear that no server is there.
    fn is_clear(self) -> bool {
        matches!(self, Self::Refuses | Self::Unknown | Self::NotLookedUp | Self::Missing)
    }
}

/// Why it is clear that no server is there.
pub(crate) enum NoServer {
    /// There may be one soon.
    Now(String),
    /// None of the names exists: the address is wrong.
    Unknown(String),
}

/// Resolves, with the reason, when it is clear that none of the hosts has a server: all refuse connections,
/// or are unknown.
pub(crate) async fn no_server(url: &ServerUrl) -> NoServer {
    sleep(MOMENT).await;
    match states(url).await {
        Some(states) if states.iter().all(|(_, state)| *state == State::Unknown) => {
            NoServer::Unknown(words(&states))
        }
        Some(states) if states.iter().all(|(_, state)| state.is_clear()) => NoServer::Now(words(&states)),
        _ => std::future::pending().await,
    }
}

/// Which hosts take no connections. `None`: all that can be checked do.
pub(crate) async fn missing(url: &ServerUrl) -> Option<String> {
    let mut states = states(url).await?;
    states.retain(|(_, state)| *state != State::Takes);
    (!states.is_empty()).then(|| words(&states))
}

/// The result of a check of the hosts, for a server that did not answer in time.
pub(crate) async fn describe(url: &ServerUrl) -> String {
    match states(url).await {
        Some(states) => words(&states),
        None => "the lock server does not answer".to_owned(),
    }
}

async fn states(url: &ServerUrl) -> Option<Vec<(String, State)>> {
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
        looks.push(tokio::spawn(async move { (host.authority(port), state(&host, port).await) }));
    }
    let mut states = Vec::new();
    for look in looks {
        states.push(look.await.ok()?);
    }
    Some(states)
}

async fn state(host: &Host, port: u16) -> State {
    let found = match timeout(TIMEOUT, lookup_host((host.name(), port))).await {
        Ok(Ok(found)) => found.collect::<Vec<_>>(),
        // The standard library has the texts of the C library, and no kinds.
        Ok(Err(error)) if error.to_string().contains("emporary failure") => return State::NotLookedUp,
        Ok(Err(_)) => return State::Unknown,
        Err(_) => return State::Silent,
    };
    match timeout(TIMEOUT, TcpStream::connect(&found[..])).await {
        Ok(Ok(_)) => State::Takes,
        Ok(Err(error)) if error.kind() == Io::ConnectionRefused => State::Refuses,
        _ => State::Silent,
    }
}

/// The state of a socket in the file system.
async fn socket(path: &str) -> State {
    match timeout(TIMEOUT, UnixStream::connect(path)).await {
        Ok(Ok(_)) => State::Takes,
        Ok(Err(error)) if error.kind() == Io::NotFound => State::Missing,
        Ok(Err(error)) if error.kind() == Io::ConnectionRefused => State::Refuses,
        _ => State::Silent,
    }
}

fn words(states: &[(String, State)]) -> String {
    let words = states.iter().map(|(host, state)| match state {
        State::Takes => format!("{host} takes connections but does not answer as it should"),
        State::Refuses => {
            format!("{host}: connection refused; is the server running, and the address right?")
        }
        State::Unknown => format!("{host}: host name unknown; is it spelt right?"),
        State::NotLookedUp => format!("{host}: host name unknown now: no name server answers"),
        State::Missing => {
            format!("{host}: there is no such socket; is the server running, and the path right?")
        }
        State::Silent => format!("{host} takes no connections; is a firewall in between?"),
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
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redlock" | "redlocks" => Some(6379),
        "redis+sentinel" | "rediss+sentinel" => Some(26379),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hosts_are_told_apart() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let url: ServerUrl = format!("redlock://{open},127.0.0.1:1,no-such-host.invalid").parse().unwrap();
        let text = describe(&url).await;
        let parts: Vec<_> = text.split("; ").collect();
        assert!(parts[0].contains("takes connections"), "{text}");
        assert!(parts[1].contains("127.0.0.1:1: connection refused"), "{text}");
        assert!(text.contains("no-such-host.invalid:6379: host name unknown"), "{text}");
        // One that may be there is waited for.
        assert!(timeout(MOMENT * 4, no_server(&url)).await.is_err());
    }
}
