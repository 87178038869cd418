//! The floor of ZooKeeper: the two operations that every recipe for a lock on it begins and ends with.

use std::collections::BTreeSet;
use std::time::Duration;

use lockwell::backend::{ServerUrl, async_trait};
use uuid::Uuid;
use zookeeper_client::{self as zk, Acls, Client, CreateMode};

use crate::error::Result;
use crate::measure::cycles::{cycles, together};
use crate::measure::floor::raw::{CONTRAST, Owners, Raw, Server};
use crate::measure::floor::words::{Words, servers};
use crate::stats::Sample;

const BASE: &str = "/lockwell_compare_floor";

/// As long as what the backend writes.
const DATA: &[u8] = b"compare-bench-00000\nlockwell ttl=30000";

/// A bare session.
#[derive(Debug)]
pub(crate) struct ZooKeeperFloor {
    client: Client,
    owners: Owners,
    words: Words,
    /// The folders that were made.
    folders: BTreeSet<usize>,
}

impl ZooKeeperFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let servers: Vec<_> = servers(url)?.iter().map(server).collect();
        let mut connector = Client::connector().with_fail_eagerly();
        if let (Some(user), Some(password)) = (url.user(), url.password()) {
            connector = connector.with_auth("digest", format!("{user}:{}", password.expose()).as_bytes());
        }
        let client = connector.connect(&servers.join(",")).await?;
        make_folder(&client, BASE).await?;
        Ok(Self { client, owners: Owners::default(), words: Words::of(url)?, folders: BTreeSet::new() })
    }
}

#[async_trait]
impl Raw for ZooKeeperFloor {
    fn what(&self) -> &'static str {
        "create of an ephemeral sequential node, then delete; one bare zookeeper-client session"
    }

    fn shares(&self) -> bool {
        true
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        if self.folders.insert(name) {
            make_folder(&self.client, &folder(name)).await?;
        }
        cycle(&self.client, name, self.owners.next()).await
    }

    /// As many tasks as there are names, all of them on the same session. The folders are there.
    async fn crowd(&self, length: Duration, names: usize) -> Result<Sample> {
        together(names, |name| {
            let (client, mut owners) = (self.client.clone(), Owners::default());
            async move { cycles(length, || cycle(&client, name, owners.next())).await }
        })
        .await
    }

    async fn server(&mut self) -> Result<Server> {
        let mut answers = Vec::new();
        for word in ["srvr", "conf"] {
            // Where that is not allowed, the answer says so and no more.
            answers.push(self.words.first(word).await?);
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

    async fn finish(self: Box<Self>) -> Result<()> {
        for path in self.folders.into_iter().map(folder).chain([BASE.to_owned(), format!("/{CONTRAST}")]) {
            match self.client.delete(&path, None).await {
                // Another run may be using the same server.
                Ok(()) | Err(zk::Error::NotEmpty | zk::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
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
    fn addresses_are_written_as_the_client_wants_them() {
        assert_eq!(server(&("h".to_owned(), 1)), "h:1");
        assert_eq!(server(&("::1".to_owned(), 1)), "[::1]:1");
    }
}
