//! The settings in an address of Redlock.

use std::collections::HashSet;
use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Result, ServerUrl};

use crate::words::address::Address;
use crate::words::options::RedisOptions;

/// The most nodes: every one costs a request for each operation.
const MOST_NODES: usize = 63;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) options: RedisOptions,
    pub(crate) nodes: Vec<Address>,
    /// How long one node may take to answer; by default it follows from the lease.
    node_timeout: Option<Duration>,
    /// The longest lease. A node that may have forgotten grants has no vote for as long after its start.
    pub(crate) longest_ttl: Duration,
    /// Whether to note at a node, on connecting, that it has its token counters, and to restore them where it
    /// has not.
    pub(crate) create: bool,
}

impl Settings {
    pub(crate) fn read(url: &ServerUrl) -> Result<Self> {
        let options = RedisOptions::read(url, &["node_timeout", "longest_ttl", "create"])?;
        let nodes = Address::read_nodes(url)?;
        let mut seen = HashSet::new();
        for node in &nodes {
            let place = format!("{:?}", node.topology);
            if !seen.insert(place) {
                return Err(bad(format!(
                    "{url} names a node twice: each vote must be that of another server"
                )));
            }
        }
        match nodes.len() {
            count @ (1 | 2) => {
                return Err(bad(format!(
                    "Redlock needs at least 3 nodes, to survive the loss of one; {count} {} given",
                    if count == 1 { "is" } else { "are" }
                )));
            }
            count if count % 2 == 0 => {
                return Err(bad(format!(
                    "Redlock needs an odd number of nodes: {count} survive the loss of no more than {} do",
                    count - 1
                )));
            }
            count if count > MOST_NODES => {
                return Err(bad(format!("Redlock takes at most {MOST_NODES} nodes")));
            }
            _ => (),
        }
        let node_timeout = url.duration("node_timeout")?;
        if node_timeout.is_some_and(|limit| limit < Duration::from_millis(1) || limit > options.timeout) {
            return Err(bad("node_timeout must be between 1ms and the timeout of a whole request"));
        }
        let longest_ttl = url.duration("longest_ttl")?.unwrap_or(Duration::from_secs(60));
        if longest_ttl < Duration::from_secs(1) || longest_ttl > Duration::from_secs(86_400) {
            return Err(bad("longest_ttl must be between 1s and 24h"));
        }
        let create = url.parsed("create", "true or false")?.unwrap_or(true);
        Ok(Self { options, nodes, node_timeout, longest_ttl, create })
    }

    /// How long one node may take to answer a request of a claim with this lease: a small part of it, since
    /// the time of the slowest node is missing from the validity.
    pub(crate) fn node_timeout(&self, ttl: Duration) -> Duration {
        let usual = (ttl / 20).clamp(Duration::from_millis(100), Duration::from_millis(250)).min(ttl / 4);
        self.node_timeout.unwrap_or(usual)
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_nodes_is_odd_and_three_or_more() {
        let read = |url: &str| Settings::read(&url.parse().unwrap());
        assert_eq!(read("redlock://a,b,c").unwrap().nodes.len(), 3);
        for (url, part) in [
            ("redlock://a", "at least 3"),
            ("redlock://a,b", "at least 3"),
            ("redlock://a,b,c,d", "odd number"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,b,c?node_timeout=1h", "node_timeout"),
            ("redlock://a,b,c?longest_ttl=1ms", "longest_ttl"),
            ("redlock://a,b,c?create=no", "create"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_node_gets_little_of_the_lease() {
        let settings = Settings::read(&"redlock://a,b,c".parse().unwrap()).unwrap();
        assert_eq!(settings.node_timeout(Duration::from_millis(300)), Duration::from_millis(75));
        assert_eq!(settings.node_timeout(Duration::from_secs(2)), Duration::from_millis(100));
        assert_eq!(settings.node_timeout(Duration::from_secs(300)), Duration::from_millis(250));
    }
}
