//! Faults of a Redis Cluster: replicas that take over.

use std::time::Duration;

use testbed::{Redis, RedisCluster};

use super::super::servers::failed;
use super::Stage;
use super::data::tell;
use crate::error::{Error, Result};

/// For how long a replica is asked to take over.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Stage {
    fn cluster(&self) -> Result<&RedisCluster> {
        self.servers.cluster.as_ref().ok_or_else(|| Error::failed("there is no cluster"))
    }

    /// The other server of this one's slots takes them over, as it is told to.
    pub(super) async fn take_over(&self, master: usize, words: &[&str]) -> Result<()> {
        let replica = self.partner(master)?;
        tell(replica, words)?;
        until_master(replica).await
    }

    /// One of the masters, another one each time, when the cluster is in order.
    pub(super) async fn next_master(&self) -> Result<usize> {
        let cluster = self.cluster()?;
        cluster.ready().await.map_err(failed)?;
        let done = self.happened.lock().map_err(|_| Error::failed("a fault panicked"))?.len();
        let first = done % cluster.nodes().len();
        let replica = self.partner(first)?;
        Ok(if is_master(replica)? { first + cluster.nodes().len() } else { first })
    }

    /// The server that has the slots of this one, or had them, or takes them over.
    fn partner(&self, server: usize) -> Result<&Redis> {
        let cluster = self.cluster()?;
        let count = cluster.nodes().len();
        Ok(if server < count { &cluster.replicas()[server] } else { &cluster.nodes()[server - count] })
    }
}

/// Waits until this server is a master.
async fn until_master(server: &Redis) -> Result<()> {
    let end = tokio::time::Instant::now() + TIMEOUT;
    while !is_master(server)? {
        if tokio::time::Instant::now() > end {
            return Err(Error::failed("the replica does not take over"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn is_master(node: &Redis) -> Result<bool> {
    Ok(tell(node, &["ROLE"])?.contains("master"))
}
