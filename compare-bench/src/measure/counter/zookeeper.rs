//! `ZooKeeper`: by its commands of four letters, on a connection each, as they want it.

use std::time::Duration;

use lockwell::backend::ServerUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Result;
use crate::measure::counter::count::Count;

const DEFAULT_PORT: u16 = 2181;

/// How long an answer may take.
const WORD: Duration = Duration::from_secs(10);

/// The servers that are asked.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    hosts: Vec<(String, u16)>,
}

/// The servers of an address.
pub(crate) fn servers(url: &ServerUrl) -> Result<Vec<(String, u16)>> {
    let hosts = url.hosts()?.into_iter();
    Ok(hosts.map(|host| (host.name().to_owned(), host.port().unwrap_or(DEFAULT_PORT))).collect())
}

impl Words {
    pub(crate) fn of(url: &ServerUrl) -> Result<Self> {
        Ok(Self { hosts: servers(url)? })
    }

    /// What all servers have counted. `None` if they do not answer.
    pub(super) async fn count(&self) -> Result<Option<Count>> {
        let mut sum = Count { requests: 0, wakeups: Some(0) };
        for host in &self.hosts {
            let Some(requests) = received(&self.ask(host, "srvr").await?) else { return Ok(None) };
            let wakeups = fired(&self.ask(host, "mntr").await?);
            sum = sum.and(Count { requests, wakeups });
        }
        Ok(Some(sum))
    }

    /// The answer of the first server.
    pub(crate) async fn first(&self, word: &str) -> Result<String> {
        match self.hosts.first() {
            Some(host) => self.ask(host, word).await,
            None => Ok(String::new()),
        }
    }

    async fn ask(&self, (name, port): &(String, u16), word: &str) -> Result<String> {
        let exchange = async {
            let mut stream = TcpStream::connect((name.as_str(), *port)).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        tokio::time::timeout(WORD, exchange).await.map_err(std::io::Error::from)?
    }
}

fn received(srvr: &str) -> Option<u64> {
    srvr.lines().find_map(|line| line.strip_prefix("Received:"))?.trim().parse().ok()
}

/// The watches that fired: for nodes that were made, changed or deleted, and for lists of children. Each is
/// counted as the mean of how many an operation fired, and as their sum.
fn fired(mntr: &str) -> Option<u64> {
    let fields = ["node_created", "node_deleted", "node_changed", "node_children"];
    let value = |name: &str| {
        let prefix = format!("zk_sum_{name}_watch_count");
        let line = mntr.lines().find_map(|line| line.strip_prefix(&*prefix))?;
        line.trim().split('.').next()?.parse::<u64>().ok()
    };
    fields.into_iter().map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_or_missing() {
        assert_eq!(received("Zookeeper version: 3.8.0\nReceived: 42\nSent: 41\n"), Some(42));
        assert_eq!(received("srvr is not executed because it is not in the whitelist.\n"), None);
        let mntr = "zk_sum_node_created_watch_count\t1\nzk_sum_node_deleted_watch_count\t20\n\
                    zk_sum_node_changed_watch_count\t300\nzk_sum_node_children_watch_count\t4000\n";
        assert_eq!(fired(mntr), Some(4321));
        assert_eq!(fired("mntr is not executed because it is not in the whitelist.\n"), None);
    }
}
