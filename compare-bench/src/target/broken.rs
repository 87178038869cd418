//! Servers and lines that are broken on purpose.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockwell::backend::{GraceOptions, grace_period};
use testbed::{Direction, Proxy, Server};

use crate::error::{Error, Result};
use crate::target::Target;
use crate::target::kind::Kind;
use crate::target::server::{Running, failed};

/// What a client may need after a server is back, or after it has gone on: its connection may have been
/// replaced meanwhile, and is replaced again.
const AGAIN: Duration = Duration::from_secs(1);

/// The settings of the sentinels of testbed: how long a master is silent, and how long a failover may take.
const SENTINEL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// The `cluster-node-timeout` of its clusters. A node asks another at the latest when half of it is over,
/// waits for all of it, and hears from the others, for which as much is counted again.
const CLUSTER: Duration = Duration::from_secs(2);

/// What a replica waits before it asks for votes: half a second, and half a second more at random.
const BEFORE_THE_VOTE: Duration = Duration::from_secs(1);

/// `initLimit` of its ensembles, in ticks: how long an election and what follows it may take.
const INIT_LIMIT: u32 = 10;

/// The `election-timeout` of etcd, which is the default. The servers look for leases that have ended twice a
/// second.
const ELECTION: Duration = Duration::from_secs(1);

/// One unit of time of the ensembles that we start.
const TICK: Duration = Duration::from_secs(2);

/// A server that is to fail, and what is known about that.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) server: Server,
    /// What it is: "the server", "the leader".
    pub(crate) role: &'static str,
    /// Whether nobody else can do its work, so that it is started again at once.
    pub(crate) is_alone: bool,
}

/// How long it may take from a fault to the next grant.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) time: Duration,
    pub(crate) of: String,
}

impl Bound {
    /// After the death of a holder or of its line.
    pub(crate) fn of_holder(kind: Option<Kind>, lease: Duration) -> Self {
        let shown = humantime::format_duration(lease);
        match kind {
            // The end of a session is rounded up to the next tick.
            Some(Kind::ZooKeeper) => {
                let of = format!("the session of {shown}, just kept alive, and a tick");
                return Self { time: lease + TICK, of };
            }
            // The leader asks the others twice in a tick which sessions were alive, and counts from then.
            Some(Kind::ZooKeeper3 | Kind::ZooKeeper3Leader) => {
                let of = format!("the session of {shown}, just kept alive, and one and a half ticks");
                return Self { time: lease + TICK + TICK / 2, of };
            }
            // A lease has whole seconds there.
            Some(Kind::Etcd | Kind::Etcd3) => {
                let of =
                    format!("the lease of {shown}, just renewed, in whole seconds, and 1 s until it is seen");
                return Self { time: lease + Duration::from_secs(2), of };
            }
            _ => {}
        }
        let of = format!("the lease of {shown}, just renewed, and 1.3 s until waiters poll");
        Self { time: lease + Duration::from_millis(1300), of }
    }

    /// When a server is stopped for this time, and goes on.
    pub(crate) fn of_freeze(freeze: Duration) -> Self {
        let of = format!("the stop of {}, and 1 s", humantime::format_duration(freeze));
        Self { time: freeze + AGAIN, of }
    }
}

impl Victim {
    /// After its death. `None` where the time that it takes to start again decides, which is known only then.
    pub(crate) fn bound(kind: Kind) -> Option<Bound> {
        let all = |parts: [Duration; 2], of: &str| {
            Some(Bound { time: parts.into_iter().sum::<Duration>() + AGAIN, of: of.to_owned() })
        };
        match kind {
            Kind::Sentinel => all(SENTINEL, "down-after-milliseconds, failover-timeout, and 1 s"),
            Kind::Cluster => all(
                [CLUSTER * 5 / 2, BEFORE_THE_VOTE],
                "2.5 times cluster-node-timeout, 1 s before the vote, and 1 s",
            ),
            Kind::Redlock | Kind::Redlock3 => {
                all([Duration::ZERO; 2], "the others are a majority: 1 s for the request that was under way")
            }
            Kind::ZooKeeper3 | Kind::ZooKeeper3Leader => {
                all([TICK * INIT_LIMIT, Duration::ZERO], "initLimit x tickTime, and 1 s")
            }
            Kind::Etcd3 => all([ELECTION * 4, Duration::ZERO], "four times the election timeout, and 1 s"),
            _ => None,
        }
    }

    /// Kills it. One that is alone is started again, and this returns when it takes connections.
    pub(crate) async fn kill(&self) -> Result<()> {
        self.server.kill().map_err(failed)?;
        if self.is_alone {
            self.server.restart().await.map_err(failed)?;
        }
        Ok(())
    }

    /// How long it takes to start again, of one that is alone: by another restart, before it counts.
    pub(crate) async fn time_to_start(&self) -> Result<Duration> {
        let began = Instant::now();
        self.kill().await?;
        Ok(began.elapsed())
    }

    /// After time for it to start again.
    pub(crate) fn bound_of_restart(start: Duration) -> Bound {
        let shown = Duration::from_millis(u64::try_from(start.as_millis()).unwrap_or(u64::MAX));
        let of = format!("a restart, which took {} before, and 1 s", humantime::format_duration(shown));
        Bound { time: start + AGAIN, of }
    }

    /// The same of `PostgreSQL`, which answers a release before it is on the disk. A release that dies with
    /// the server leaves the lock to its lease.
    pub(crate) fn bound_of_lost_release(start: Duration, lease: Duration) -> Bound {
        let Bound { time, of } = Self::bound_of_restart(start);
        let shown = humantime::format_duration(lease);
        let of = format!("{of}; then the lease of {shown}, if the last release was not on the disk");
        Bound { time: time + lease, of }
    }

    /// The same of `PostgreSQL` with `durability=grace`, whose address names no `longest_ttl`. It grants
    /// nothing for a grace period after a crash. The lease of a release that was lost ends before that.
    pub(crate) fn bound_of_grace(start: Duration) -> Bound {
        let Bound { time, of } = Self::bound_of_restart(start);
        let grace = Self::grace(Kind::PostgresGrace);
        let of = format!("{of}; then the grace period of {}", humantime::format_duration(grace));
        Bound { time: time + grace, of }
    }

    /// For how long nothing is granted after each crash, beside the restart.
    pub(crate) fn grace(kind: Kind) -> Duration {
        if kind == Kind::PostgresGrace {
            grace_period(GraceOptions { is_grace: Some(true), longest: None }.longest())
        } else {
            Duration::ZERO
        }
    }
}

impl Running {
    /// The server on which most depends now.
    pub(crate) async fn victim(&self) -> Result<Victim> {
        if let Some(ensemble) = &self.ensemble {
            let leader = ensemble.leader().await.map_err(failed)?;
            let server = Server::clone(&ensemble.servers()[leader]);
            return Ok(Victim { server, role: "the leader", is_alone: false });
        }
        if let Some(cluster) = &self.members {
            let leader = cluster.leader().await.map_err(failed)?;
            let server = Server::clone(&cluster.members()[leader]);
            return Ok(Victim { server, role: "the leader", is_alone: false });
        }
        if let Some(group) = &self.sentinel {
            let addr = group.present_master().await.map_err(failed)?;
            let nodes = [group.master(), group.replica()].into_iter();
            let server = nodes.into_iter().find(|node| node.addr() == addr);
            let server = server.ok_or_else(|| Error::failed("the master is nobody"))?;
            return Ok(Victim { server: Server::clone(server), role: "the master", is_alone: false });
        }
        if let Some(cluster) = &self.cluster {
            let masters = cluster.nodes().iter().chain(cluster.replicas());
            let mut masters =
                masters.filter(|node| node.command(&["ROLE"]).is_ok_and(|role| role.contains("master")));
            let server = masters.next().ok_or_else(|| Error::failed("no node is a master"))?;
            return Ok(Victim {
                server: Server::clone(server),
                role: "one of three masters",
                is_alone: false,
            });
        }
        let mut servers = self.servers();
        match servers.len() {
            0 => Err(Error::failed("there is no server")),
            1 => Ok(Victim { server: servers.remove(0), role: "the server", is_alone: true }),
            _ => Ok(Victim { server: servers.remove(0), role: "one of the nodes", is_alone: false }),
        }
    }

    /// Starts this server again, and waits until all of them are as before.
    pub(crate) async fn restore(&self, victim: &Victim) -> Result<()> {
        if victim.server.pid().is_none() {
            victim.server.restart().await.map_err(failed)?;
        }
        if let Some(ensemble) = &self.ensemble {
            ensemble.ready().await.map_err(failed)?;
        }
        if let Some(cluster) = &self.members {
            cluster.ready().await.map_err(failed)?;
        }
        if let Some(group) = &self.sentinel {
            group.ready().await.map_err(failed)?;
        }
        if let Some(cluster) = &self.cluster {
            cluster.ready().await.map_err(failed)?;
        }
        Ok(())
    }
}

/// Lines before the servers of a target, which can be cut.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The address at their ends.
    pub(crate) url: String,
    proxies: Vec<Proxy>,
}

impl Lines {
    /// Whether the servers of such a backend can be reached over lines.
    pub(crate) fn can_be_before(kind: Kind) -> bool {
        !matches!(kind, Kind::Memory | Kind::Sqlite) && !kind.sends_clients_on()
    }

    pub(crate) async fn before(target: &Target) -> Result<Self> {
        let mut ends = BTreeMap::new();
        let mut proxies = Vec::new();
        for host in target.parsed.hosts()? {
            let port = host.port().ok_or_else(|| Error::failed("our own servers have ports"))?;
            let addr = format!("{}:{port}", host.name());
            let upstream = addr.parse().map_err(|_| Error::failed(format!("{addr} is no address")))?;
            let proxy = Proxy::start(upstream).await.map_err(|error| failed(error.into()))?;
            ends.insert(addr, proxy.addr().to_string());
            proxies.push(proxy);
        }
        // Longer ones first: one port may begin as another does.
        let mut url = target.url.clone();
        let mut addrs: Vec<_> = ends.keys().collect();
        addrs.sort_by_key(|addr| std::cmp::Reverse(addr.len()));
        for (number, addr) in addrs.iter().enumerate() {
            url = url.replacen(addr.as_str(), &format!("<{number}>"), 1);
        }
        for (number, addr) in addrs.iter().enumerate() {
            url = url.replacen(&format!("<{number}>"), &ends[*addr], 1);
        }
        Ok(Self { url, proxies })
    }

    /// From now on all bytes are swallowed, both ways.
    pub(crate) fn cut(&self) {
        for proxy in &self.proxies {
            proxy.blackhole(Direction::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_sums_of_what_is_set() {
        let lease = Duration::from_secs(4);
        assert_eq!(Bound::of_holder(Some(Kind::ZooKeeper), lease).time, Duration::from_secs(6));
        assert_eq!(Bound::of_holder(Some(Kind::ZooKeeper3), lease).time, Duration::from_secs(7));
        assert_eq!(Bound::of_holder(Some(Kind::Redis), lease).time, Duration::from_millis(5300));
        assert_eq!(Bound::of_freeze(Duration::from_millis(500)).time, Duration::from_millis(1500));
        assert!(Bound::of_holder(None, lease).of.contains("4s"));
    }

    #[test]
    fn a_crash_with_grace_periods_may_take_one_longer() {
        let start = Duration::from_millis(100);
        assert_eq!(Victim::bound_of_restart(start).time, Duration::from_millis(1100));
        let bound = Victim::bound_of_grace(start);
        // 30 s, 2 %, and 4 ms.
        assert_eq!(bound.time, Duration::from_millis(1100 + 30_604));
        assert!(bound.of.contains("took 100ms") && bound.of.contains("grace period"), "{}", bound.of);
    }
}
