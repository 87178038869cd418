//! Faults of a Redis Cluster: slots that are moved, and replicas that take over.

use std::time::Duration;

use testbed::{Redis, RedisCluster};

use super::super::servers::failed;
use super::Stage;
use super::data::tell;
use crate::error::{Error, Result};

/// What the names of all keys begin with.
const NAMESPACE: &str = "lockwell:";

/// For how long a key is asked to move, and a replica to take over.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How many keys are moved at a time.
const PORTION: &str = "100";

impl Stage {
    fn cluster(&self) -> Result<&RedisCluster> {
        self.servers.cluster.as_ref().ok_or_else(|| Error::failed("there is no cluster"))
    }

    /// Moves the slot of a lock to the next master, as the tool of Redis does it.
    pub(super) async fn move_slot(&self, lock: u32, millis: u64) -> Result<()> {
        let masters = self.cluster()?.nodes();
        let key = format!("{NAMESPACE}{}", self.names[lock as usize]);
        let slot = tell(&masters[0], &["CLUSTER", "KEYSLOT", &key])?;
        let slot = slot.trim_start_matches(':').trim_end();
        let from = owner(masters, slot)?;
        let (from, to) = (&masters[from], &masters[(from + 1) % masters.len()]);
        let (old, new) = (id(from)?, id(to)?);
        tell(to, &["CLUSTER", "SETSLOT", slot, "IMPORTING", &old])?;
        tell(from, &["CLUSTER", "SETSLOT", slot, "MIGRATING", &new])?;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let keys = keys_in(from, slot)?;
            if keys.is_empty() {
                break;
            }
            let port = to.addr().port().to_string();
            for key in keys {
                let moved =
                    from.command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]).map_err(failed)?;
                // On a busy machine the other may not answer in time.
                if moved.starts_with('-') && tokio::time::Instant::now() > end {
                    return Err(Error::failed(moved));
                }
            }
        }
        // First the new owner, which takes no keys otherwise.
        for node in std::iter::once(to).chain(masters) {
            tell(node, &["CLUSTER", "SETSLOT", slot, "NODE", &new])?;
        }
        Ok(())
    }

    /// The replica of the first master takes its place.
    pub(super) async fn promote_in_cluster(&self, planned: bool) -> Result<()> {
        if planned {
            return self.take_over(0, &["CLUSTER", "FAILOVER"]).await;
        }
        self.cluster()?.nodes()[0].kill().map_err(failed)?;
        until_master(self.partner(0)?).await
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

fn id(node: &Redis) -> Result<String> {
    let answer = tell(node, &["CLUSTER", "MYID"])?;
    answer.split("\r\n").nth(1).map(str::to_owned).ok_or_else(|| Error::failed("a node has no id"))
}

/// Which of the masters has the slot.
fn owner(masters: &[Redis], slot: &str) -> Result<usize> {
    let slot: u32 = slot.parse().map_err(|_| Error::failed(format!("{slot} is no slot")))?;
    for (number, master) in masters.iter().enumerate() {
        let nodes = tell(master, &["CLUSTER", "NODES"])?;
        // A line is: id, address, flags, master, ping, pong, epoch, state of the link, slots ...
        let own = nodes.lines().find(|line| line.contains("myself,")).unwrap_or_default();
        let has = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let numbers = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
            numbers.is_some_and(|(first, last)| (first..=last).contains(&slot))
        };
        if own.split(' ').skip(8).any(has) {
            return Ok(number);
        }
    }
    Err(Error::failed(format!("no master has the slot {slot}")))
}

/// Some keys of the slot.
fn keys_in(node: &Redis, slot: &str) -> Result<Vec<String>> {
    let answer = tell(node, &["CLUSTER", "GETKEYSINSLOT", slot, PORTION])?;
    // A line with the number of keys, and before each key one with its length.
    let lines = answer.split("\r\n").skip(1);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('$')).map(str::to_owned).collect())
}
