//! Faults of groups of servers: who leads, who takes over, and who cannot reach the others.

use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Duration;

use testbed::{MariaDb, Proxy, Redis, RedisSentinel, ZooKeeperEnsemble};
use zookeeper_client::{Client, Error as ZooKeeperError};

use super::super::servers::{Node, failed};
use super::data::tell;
use super::{Stage, etcd};
use crate::error::{Error, Result};

/// Where the backend has the locks if nothing else is said.
const FOLDER: &str = "/lockwell";

/// What the sentinels call the master.
const MASTER: &str = "mymaster";

/// For so long nodes are deleted at most.
const LONGEST: Duration = Duration::from_secs(1);

/// How long a server of an ensemble may take to say that it leads, and a replica to have all that was
/// written.
const TIMEOUT: Duration = Duration::from_secs(20);

/// For so long the replica of a Redis without sentinels gets nothing before the server is killed, in
/// milliseconds.
const AHEAD: u64 = 500;

impl Stage {
    fn ensemble(&self) -> Result<&ZooKeeperEnsemble> {
        self.servers.ensemble.as_ref().ok_or_else(|| Error::failed("there is no ensemble"))
    }

    fn choose(&self, server: usize) {
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }

    fn take_chosen(&self) -> Result<usize> {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner).take();
        chosen.ok_or_else(|| Error::failed("no server was chosen"))
    }

    /// The server that leads the others. Shortly after another fault there may be none.
    async fn leader(&self) -> Result<usize> {
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let found = match &self.servers.etcd {
                Some(cluster) => cluster.leader().await,
                None => self.ensemble()?.leader().await,
            };
            match found {
                Ok(leader) => return Ok(leader),
                Err(error) if tokio::time::Instant::now() > end => return Err(failed(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(super) async fn kill_leader(&self) -> Result<()> {
        let leader = if self.has_masters() { self.master().await? } else { self.leader().await? };
        self.choose(leader);
        self.servers.nodes[leader].server().kill().map_err(failed)
    }

    /// Lets the replica take over when it has received nothing for so long, and kills the old master. Nobody
    /// waits until others notice a dead master: by then the leases have ended.
    pub(super) async fn kill_ahead(&self, ahead: u64) -> Result<()> {
        let leader = self.master().await?;
        let Node::Redis(master) = &self.servers.nodes[leader] else {
            return Err(Error::failed("the master is no Redis"));
        };
        get_ahead(master, ahead).await?;
        match &self.servers.sentinels {
            Some(group) => change_master(group).await?,
            None => self.take_over(leader, &["CLUSTER", "FAILOVER", "FORCE"]).await?,
        }
        self.choose(leader);
        master.kill().map_err(failed)
    }

    /// Whether a master of Redis can be replaced by its replica.
    fn has_masters(&self) -> bool {
        self.servers.sentinels.is_some() || self.servers.cluster.is_some()
    }

    /// The master, whose replica has all that it has. Of a cluster each of the masters in turn.
    async fn master(&self) -> Result<usize> {
        match &self.servers.sentinels {
            Some(group) => {
                group.ready().await.map_err(failed)?;
                let addr = group.present_master().await.map_err(failed)?;
                let leader = self.servers.nodes.iter().position(|node| node.server().addr() == addr);
                leader.ok_or_else(|| Error::failed("nobody leads"))
            }
            None => self.next_master().await,
        }
    }

    pub(super) async fn restart_chosen(&self) -> Result<()> {
        let chosen = self.take_chosen()?;
        self.servers.nodes[chosen].server().restart().await.map_err(failed)
    }

    /// The syncs of the server that leads hang.
    pub(super) async fn hang_leader(&self) -> Result<()> {
        let Node::Etcd(leader) = &self.servers.nodes[self.leader().await?] else {
            return Err(Error::failed("it is no etcd"));
        };
        let hung = leader.hang_log().map_err(failed)?;
        *self.hung.lock().unwrap_or_else(PoisonError::into_inner) = Some(hung);
        Ok(())
    }

    pub(super) fn hang_no_more(&self) {
        self.hung.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(super) async fn isolate(&self, of_leader: bool) -> Result<()> {
        let leader = self.leader().await?;
        let server = if of_leader { leader } else { (leader + 1) % self.servers.nodes.len() };
        self.choose(server);
        self.ensemble()?.isolate(server).map_err(failed)
    }

    pub(super) fn rejoin(&self) -> Result<()> {
        self.ensemble()?.rejoin(self.take_chosen()?).map_err(failed)
    }

    /// The replica takes over, and clients find it at the same address.
    pub(super) async fn promote(&self, planned: bool) -> Result<()> {
        if let Some(group) = &self.servers.sentinels {
            return change_master(group).await;
        }
        let old = self.servers.nodes[0].server();
        // One that ends in good order has sent everything to its replica before.
        match (&self.servers.nodes[0], &self.servers.standby) {
            (Node::MariaDb(old), Some(Node::MariaDb(new))) if planned => catch_up(old, new).await?,
            _ if planned => old.stop().await.map_err(failed)?,
            // Otherwise its replica has everything: it lags by less than a millisecond here.
            (Node::Redis(old), Some(_)) => {
                get_ahead(old, AHEAD).await?;
                old.kill().map_err(failed)?;
            }
            _ => old.kill().map_err(failed)?,
        }
        let new: SocketAddr = match &self.servers.standby {
            Some(Node::Postgres(standby)) => {
                standby.promote().await.map_err(failed)?;
                standby.addr()
            }
            Some(Node::MariaDb(standby)) => {
                standby.admin_sql("STOP SLAVE; RESET SLAVE ALL").await.map_err(failed)?;
                standby.addr()
            }
            Some(Node::Redis(standby)) => {
                standby.command(&["REPLICAOF", "NO", "ONE"]).map_err(failed)?;
                standby.addr()
            }
            _ => return Err(Error::failed("there is no replica")),
        };
        self.servers.moved(new);
        for proxy in self.lines.iter().flat_map(|line| &line.proxies) {
            proxy.redirect(new);
            Proxy::cut_existing(proxy);
        }
        Ok(())
    }

    /// Deletes the folder of all locks with all that is in it, while clients go on making nodes there.
    pub(super) async fn remove_folder(&self) -> Result<()> {
        if let Some(Node::Etcd(member)) = self.servers.nodes.first() {
            return etcd::remove_keys(member);
        }
        let addrs: Vec<_> = self.servers.nodes.iter().map(|node| node.server().addr().to_string()).collect();
        let client = Client::connector().connect(&addrs.join(",")).await.map_err(failed)?;
        let (mut left, mut is_deleted) = (vec![FOLDER.to_owned()], false);
        // Clients make new ones all the time.
        let end = tokio::time::Instant::now() + LONGEST;
        while tokio::time::Instant::now() < end
            && let Some(path) = left.pop()
        {
            match client.delete(&path, None).await {
                Ok(()) => is_deleted = true,
                Err(ZooKeeperError::NotEmpty) => {
                    let children = client.list_children(&path).await.unwrap_or_default();
                    left.push(path.clone());
                    left.extend(children.into_iter().map(|child| format!("{path}/{child}")));
                }
                Err(ZooKeeperError::NoNode) => (),
                Err(error) => return Err(failed(error)),
            }
        }
        if is_deleted { Ok(()) } else { Err(Error::failed("there was no folder of locks")) }
    }
}

/// The master sends its replica nothing for so long. The replica connects again, and is refused. The process
/// that starts later knows nothing of this.
async fn get_ahead(master: &Redis, millis: u64) -> Result<()> {
    let refuse = ["ACL", "SETUSER", "default", "-psync", "-sync"];
    for command in [&refuse[..], &["CLIENT", "KILL", "TYPE", "replica"]] {
        tell(master, command)?;
    }
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(())
}

/// Tells the sentinels to change the master, and waits until they have done so.
async fn change_master(group: &RedisSentinel) -> Result<()> {
    let old = group.present_master().await.map_err(failed)?;
    tell(&group.sentinels()[0], &["SENTINEL", "FAILOVER", MASTER])?;
    let end = tokio::time::Instant::now() + TIMEOUT;
    // For a moment they do not agree.
    while !group.present_master().await.is_ok_and(|now| now != old) {
        if tokio::time::Instant::now() > end {
            return Err(Error::failed("the replica does not take over"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The server takes no more writes of clients, and its replica has all that it has taken.
async fn catch_up(old: &MariaDb, new: &MariaDb) -> Result<()> {
    old.admin_sql("SET GLOBAL read_only = 1").await.map_err(failed)?;
    let position = old.admin_sql("SELECT @@gtid_binlog_pos").await.map_err(failed)?;
    let wait = format!("SELECT MASTER_GTID_WAIT('{}', {})", position.trim(), TIMEOUT.as_secs());
    match new.admin_sql(&wait).await.map_err(failed)?.trim() {
        "0" => Ok(()),
        _ => Err(Error::failed("the replica does not catch up")),
    }
}
