//! One ephemeral node that all waiters watch: the herd.

use std::time::Duration;

use peer_common::{Library, Result};
use zookeeper_client::{self as zk, Acls, Client, CreateMode};

const BASE: &str = "/lockwell_compare_contrast";

/// Without a session end there is always a notification; this is for one that comes in between.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct NaiveNode {
    client: Client,
}

fn path(name: &str) -> String {
    format!("{BASE}/{}", name.replace('/', "_"))
}

impl Library for NaiveNode {
    type Held = String;

    async fn connect(servers: &[&str]) -> Result<Self> {
        let client = Client::connect(&servers.join(",")).await?;
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        match client.create(BASE, b"", &persistent).await {
            Ok(_) | Err(zk::Error::NodeExists) => Ok(Self { client }),
            Err(error) => Err(error.into()),
        }
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn setup(&self) -> String {
        "create of one ephemeral node; those who find it there watch it, and try again when it is gone; one session".to_owned()
    }

    fn lacks(&self) -> &'static str {
        "order, fencing tokens"
    }

    async fn acquire(&self, name: &str) -> Result<String> {
        let path = path(name);
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        loop {
            match self.client.create(&path, b"", &ephemeral).await {
                Ok(_) => return Ok(name.to_owned()),
                Err(zk::Error::NodeExists) => {}
                Err(error) => return Err(error.into()),
            }
            let (found, watch) = self.client.check_and_watch_stat(&path).await?;
            if found.is_some() {
                tokio::select! {
                    _ = watch.changed() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        }
    }

    async fn release(&self, name: String) -> Result<()> {
        Ok(self.client.delete(&path(&name), None).await?)
    }
}
