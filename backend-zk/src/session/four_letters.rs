//! Reads settings of servers with ZooKeeper's four-letter commands: over plain TCP, without a session.
//!
//! `srvr` is allowed by default, `conf` and `dump` only where they are configured (`4lw.commands.whitelist`).

use std::io::ErrorKind as Io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_ok};
use lockwell_core::backend::addresses_of;
use lockwell_core::{Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::options::{Host, ZkOptions};
use crate::session::places::addresses;
use crate::session::runtime::SESSIONS;

/// How long a server may take to answer.
const LIMIT: Duration = Duration::from_millis(500);

/// How long a server may take to list all ephemeral nodes.
const LONG: Duration = Duration::from_secs(5);

/// More than any answer except a list of many ephemeral nodes, of which the rest is not read.
const LONGEST: u64 = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    UnknownHost,
    Refused,
    Unreachable,
    NoAnswer,
}

/// The tick and `syncLimit` of the servers, the longest if they differ; `None` if no server reports them.
pub(crate) async fn ask_conf(options: &ZkOptions) -> Option<(Duration, u32)> {
    if options.tls.is_some() {
        return None;
    }
    let hosts = options.hosts.clone();
    let asking = SESSIONS.spawn(async move {
        let places = addresses(&hosts).await;
        let asking =
            places.into_iter().map(async |place| read_conf(&ask_at(place, b"conf", LIMIT).await.ok()?));
        let found = join_all(asking).await.into_iter().flatten();
        found.reduce(|(tick, limit), (other, others)| (tick.max(other), limit.max(others)))
    });
    asking.await.ok().flatten()
}

/// The session whose ephemeral nodes have the longest paths together; `None` if no server lists them.
pub(crate) async fn ask_dump(options: &ZkOptions) -> Option<Fullest> {
    if options.tls.is_some() {
        return None;
    }
    let hosts = options.hosts.clone();
    let asking = SESSIONS.spawn(async move {
        for place in addresses(&hosts).await {
            if let Some(found) = ask_at(place, b"dump", LONG).await.ok().and_then(|text| read_dump(&text)) {
                return Some(found);
            }
        }
        None
    });
    asking.await.ok().flatten()
}

/// Whether the server is alone. `None` if it does not say so, or the address names several servers.
pub(crate) async fn is_alone(options: &ZkOptions) -> Option<bool> {
    let [host] = &options.hosts[..] else { return None };
    if options.tls.is_some() {
        return None;
    }
    let host = host.clone();
    let asking = SESSIONS.spawn(async move { ask(&host, b"srvr").await });
    match mode(&asking.await.ok()?.ok()?)? {
        "standalone" => Some(true),
        "leader" | "follower" | "observer" | "read-only" => Some(false),
        _ => None,
    }
}

/// Adds the answer of each server to the error of a client that can reach no server, since the client crate
/// does not return the reason.
///
/// Not with TLS: such servers may not accept plain TCP.
pub(crate) async fn say_why(options: &ZkOptions, error: Error) -> Error {
    if error.kind() != ErrorKind::Unreachable || options.tls.is_some() {
        return error;
    }
    let hosts = options.hosts.clone();
    let asking = SESSIONS.spawn(async move {
        let asking = hosts.iter().map(async |host| format!("{host}{}", state(&ask(host, b"srvr").await)));
        join_all(asking).await
    });
    let Ok(states) = asking.await else { return error };
    let said = Error::new(error.kind(), format!("{}: {}", error.message(), states.join("; ")));
    match std::error::Error::source(&error) {
        Some(source) => said.with_source(source.to_string()),
        None => said,
    }
}

/// The first answer of the addresses of a host.
async fn ask(host: &Host, word: &[u8; 4]) -> Result<String, Silence> {
    let looking = tokio::time::timeout(LIMIT, addresses_of(&host.name, host.port)).await;
    let Ok(Ok(places)) = looking else { return Err(Silence::UnknownHost) };
    let asking = places.into_iter().map(|place| ask_at(place, word, LIMIT).boxed());
    Ok(select_ok(asking).await?.0)
}

async fn ask_at(place: SocketAddr, word: &[u8; 4], limit: Duration) -> Result<String, Silence> {
    // The error if the time is over.
    let mut blame = Silence::Unreachable;
    let asking = async {
        let mut stream = TcpStream::connect(place).await.map_err(|error| match error.kind() {
            Io::ConnectionRefused => Silence::Refused,
            _ => Silence::Unreachable,
        })?;
        blame = Silence::NoAnswer;
        stream.write_all(word).await.map_err(|_| Silence::NoAnswer)?;
        let mut text = Vec::new();
        match stream.take(LONGEST).read_to_end(&mut text).await {
            Err(_) | Ok(0) => Err(Silence::NoAnswer),
            Ok(_) => Ok(String::from_utf8_lossy(&text).into_owned()),
        }
    };
    let answer = tokio::time::timeout(limit, asking).await;
    answer.unwrap_or(Err(blame))
}

/// What a server is, by its answer to `srvr`.
fn mode(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::trim)
}

/// The meaning of the answer to `srvr`, as text to follow the name of the server. The answer itself is not
/// quoted.
pub(crate) fn state(answer: &Result<String, Silence>) -> &'static str {
    let text = match answer {
        Err(Silence::UnknownHost) => return ": host name unknown; is it spelt right?",
        Err(Silence::Refused) => {
            return ": connection refused; is the server running, and the address right?";
        }
        Err(Silence::Unreachable) => return " takes no connections; is a firewall in between?",
        Err(Silence::NoAnswer) => return " takes connections but does not answer",
        Ok(text) => text,
    };
    match mode(text) {
        Some("read-only") => " is read-only: it has no quorum",
        // The server works. So the timeout was too short, or there are too many connections.
        Some("leader") => " serves as leader",
        Some("follower") => " serves as follower",
        Some("observer") => " serves as observer",
        Some("standalone") => " serves alone",
        _ if text.contains("not currently serving requests") => " is not serving: it has no quorum",
        _ if text.contains("not in the whitelist") => {
            " answers, but srvr is not in its 4lw.commands.whitelist"
        }
        _ => " answers, but not as ZooKeeper does",
    }
}

pub(crate) fn read_conf(text: &str) -> Option<(Duration, u32)> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.and_then(|value| value.trim().parse::<u32>().ok())
    };
    Some((Duration::from_millis(value("tickTime")?.into()), value("syncLimit")?))
}

/// The session with the most bytes of paths of ephemeral nodes, as the server counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fullest {
    pub(crate) session: String,
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
}

fn read_dump(text: &str) -> Option<Fullest> {
    let (_, listed) = text.split_once("Sessions with Ephemerals")?;
    let (mut fullest, mut of) = (Fullest::default(), Fullest::default());
    for line in listed.lines().skip(1) {
        match (line.strip_prefix('\t'), line.strip_suffix(':')) {
            (Some(path), _) => {
                of.nodes += 1;
                of.bytes += 4 + path.len();
            }
            (None, Some(session)) if session.starts_with("0x") => {
                of = Fullest { session: session.to_owned(), ..Fullest::default() };
            }
            // The connections follow.
            _ => break,
        }
        if of.bytes > fullest.bytes {
            fullest.clone_from(&of);
        }
    }
    Some(fullest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_read() {
        let text = "clientPort=2181\ntickTime=2000\nmaxClientCnxns=60\ninitLimit=10\nsyncLimit=5\n";
        assert_eq!(read_conf(text), Some((Duration::from_secs(2), 5)));
        assert_eq!(read_conf("conf is not executed because it is not in the whitelist."), None);
    }

    #[test]
    fn the_fullest_session_is_found() {
        let text = "SessionTracker dump:\nSession Sets (0)/(0):\nephemeral nodes dump:\nSessions with Ephemerals (3):\n\
                    0x1:\n\t/a\n\t/b\n0x2:\n0x3a:\n\t/long/path\n\t/c:\nConnections dump:\n\t/127.0.0.1:1\n";
        let of = |session: &str, nodes, bytes| Some(Fullest { session: session.to_owned(), nodes, bytes });
        assert_eq!(read_dump(text), of("0x3a", 2, 21));
        // It is cut.
        assert_eq!(read_dump(text.split_once("0x2").unwrap().0), of("0x1", 2, 12));
        assert_eq!(read_dump("Sessions with Ephemerals (0):\n"), of("", 0, 0));
        assert_eq!(read_dump("dump is not executed because it is not in the whitelist."), None);
    }

    #[test]
    fn states_are_read() {
        let srvr = |mode: &str| {
            format!(
                "Zookeeper version: 3.8.0\nLatency min/avg/max: 0/0.0/0\nZxid: 0x0\nMode: {mode}\nNode count: 5\n"
            )
        };
        for (answer, words) in [
            (srvr("read-only"), "read-only: it has no quorum"),
            (srvr("leader"), "serves as leader"),
            (srvr("follower"), "serves as follower"),
            (srvr("standalone"), "serves alone"),
            ("This ZooKeeper instance is not currently serving requests\n".to_owned(), "is not serving"),
            ("srvr is not executed because it is not in the whitelist.\n".to_owned(), "whitelist"),
            ("HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(), "not as ZooKeeper does"),
            (srvr("\u{1b}[31msecret"), "not as ZooKeeper does"),
        ] {
            assert!(state(&Ok(answer.clone())).contains(words), "{answer}: {}", state(&Ok(answer.clone())));
        }
        assert!(state(&Err(Silence::Refused)).starts_with(": connection refused; is the server running"));
    }

    /// A listener that answers with these bytes, or does not answer.
    async fn answering(bytes: Option<&'static [u8]>) -> Host {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            match bytes {
                Some(bytes) => stream.write_all(bytes).await.unwrap(),
                None => std::future::pending().await,
            }
        });
        Host { name: "127.0.0.1".to_owned(), port }
    }

    #[tokio::test]
    async fn every_silence_has_a_reason() {
        let nobody = Host { name: "-no-such-host.invalid".to_owned(), port: 2181 };
        assert_eq!(ask(&nobody, b"srvr").await, Err(Silence::UnknownHost));
        let closed = Host { name: "127.0.0.1".to_owned(), port: 1 };
        assert_eq!(ask(&closed, b"srvr").await, Err(Silence::Refused));
        assert_eq!(ask(&answering(None).await, b"srvr").await, Err(Silence::NoAnswer));
        assert_eq!(ask(&answering(Some(b"")).await, b"srvr").await, Err(Silence::NoAnswer));
        let talks = answering(Some(b"Mode: x\n")).await;
        assert_eq!(ask(&talks, b"srvr").await.as_deref(), Ok("Mode: x\n"));
    }
}
