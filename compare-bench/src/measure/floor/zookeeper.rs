//! The floor of ZooKeeper: the two operations that every recipe for a lock on it begins and ends with.

use std::collections::BTreeSet;
use std::time::Duration;

use lockwell::ServerUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;
use zookeeper_client::{self as zk, Acls, Client, CreateMode};

use super::{Owners, Server, refused};
use crate::error::Result;
use crate::measure::cycles::{cycles, together};
use crate::measure::stats::Sample;

const BASE: &str = "/lockwell_compare_floor";

/// As long as what the backend writes.
const DATA: &[u8] = b"compare-bench-00000\nlockwell ttl=30000";

const DEFAULT_PORT: u16 = 2181;

/// How long an answer to a command of four letters may take.
const WORD: Duration = Duration::from_secs(10);

/// A bare session.
#[derive(Debug)]
pub(crate) struct ZooKeeperFloor {
    client: Client,
    owners: Owners,
    counter: Counter,
    /// The folders that were made.
    folders: BTreeSet<usize>,
}

impl ZooKeeperFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let hosts = url.hosts()?.into_iter();
        let hosts: Vec<_> = hosts.map(|host| (host.name, host.port.unwrap_or(DEFAULT_PORT))).collect();
        let servers: Vec<_> = hosts.iter().map(server).collect();
        let mut connector = Client::connector().with_fail_eagerly();
        if let (Some(user), Some(password)) = (url.user(), url.password()) {
            connector = connector.with_auth("digest", format!("{user}:{}", password.expose()).as_bytes());
        }
        let client = connector.connect(&servers.join(",")).await?;
        make_folder(&client, BASE).await?;
        Ok(Self { client, owners: Owners::default(), counter: Counter { hosts }, folders: BTreeSet::new() })
    }

    pub(super) async fn cycle(&mut self, name: usize) -> Result<()> {
        if self.folders.insert(name) {
            make_folder(&self.client, &folder(name)).await?;
        }
        cycle(&self.client, name, self.owners.next()).await
    }

    /// As many tasks as there are names, all of them on the same session. The folders are there.
    pub(super) async fn crowd(&mut self, length: Duration, names: usize) -> Result<Sample> {
        together(names, |name| {
            let (client, mut owners) = (self.client.clone(), Owners::default());
            async move { cycles(length, || cycle(&client, name, owners.next())).await }
        })
        .await
    }

    /// A request that changes nothing, and that the server answers by itself.
    pub(super) async fn trip(&mut self) -> Result<()> {
        self.client.check_stat("/").await?.map(drop).ok_or_else(refused)
    }

    pub(super) async fn server(&mut self) -> Result<Server> {
        let mut answers = Vec::new();
        for word in ["srvr", "conf"] {
            // Where that is not allowed, the answer says so and no more.
            answers.push(self.counter.ask(&self.counter.hosts[0], word).await?);
        }
        let field = |name: &str| {
            let mut lines = answers.iter().flat_map(|answer| answer.lines());
            lines.find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim()
        };
        let version = field("Zookeeper version:").split('-').next().unwrap_or("?");
        let settings = [("mode", "Mode:"), ("tickTime", "tickTime=")];
        Ok(Server {
            version: format!("ZooKeeper {version}"),
            settings: settings.map(|(name, prefix)| (name, field(prefix).to_owned())).into(),
        })
    }

    pub(super) fn counter(&self) -> Counter {
        self.counter.clone()
    }

    pub(super) async fn finish(self) -> Result<()> {
        for path in self.folders.into_iter().map(folder).chain([BASE.to_owned()]) {
            match self.client.delete(&path, None).await {
                // Another run may be using the same server.
                Ok(()) | Err(zk::Error::NotEmpty | zk::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// How many requests the servers have received, as they count themselves.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    hosts: Vec<(String, u16)>,
}

impl Counter {
    /// Does some work, and says how many requests the servers received meanwhile. `None` if they do not tell.
    pub(crate) async fn over<T>(
        this: Option<&Self>,
        work: impl Future<Output = T>,
    ) -> Result<(T, Option<u64>)> {
        let Some(this) = this else { return Ok((work.await, None)) };
        let before = this.read().await?;
        let done = work.await;
        let after = this.read().await?;
        Ok((done, after.zip(before).map(|(after, before)| after.saturating_sub(before))))
    }

    async fn read(&self) -> Result<Option<u64>> {
        let mut sum = 0;
        for host in &self.hosts {
            let Some(received) = received(&self.ask(host, "srvr").await?) else { return Ok(None) };
            sum += received;
        }
        Ok(Some(sum))
    }

    /// The answer to a command of four letters, on a connection of its own, as they want it.
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

fn server((name, port): &(String, u16)) -> String {
    let (open, close) = if name.contains(':') { ("[", "]") } else { ("", "") };
    format!("{open}{name}{close}:{port}")
}

fn folder(name: usize) -> String {
    format!("{BASE}/{name}")
}

async fn make_folder(client: &Client, path: &str) -> Result<()> {
    // Not a container, as those of the backend are: the server would remove it while the others are measured.
    match client.create(path, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn cycle(client: &Client, name: usize, owner: Uuid) -> Result<()> {
    let path = format!("{}/{owner}-lock-", folder(name));
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(&path, DATA, &ephemeral).await?;
    Ok(client.delete(&format!("{path}{sequence}"), None).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_or_missing() {
        assert_eq!(received("Zookeeper version: 3.8.0\nReceived: 42\nSent: 41\n"), Some(42));
        assert_eq!(received("srvr is not executed because it is not in the whitelist.\n"), None);
    }

    #[test]
    fn addresses_are_written_as_the_client_wants_them() {
        assert_eq!(server(&("h".to_owned(), 1)), "h:1");
        assert_eq!(server(&("::1".to_owned(), 1)), "[::1]:1");
    }
}
