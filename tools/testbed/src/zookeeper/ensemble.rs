//! A throwaway ensemble of `ZooKeeper`s.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{
    ZooKeeper,
    java::{BINDING, Java, Member},
    links::{Links, Ports, direct},
};
use crate::{
    Error, Options,
    group::{Readiness, hosts, logs, start_all, until_ready},
    server::blocking,
    wire::{SHORT, exchange},
};

/// How often a start is tried again because somebody else took a port.
const ATTEMPTS: u32 = 8;

/// A throwaway ensemble of `ZooKeeper`s. Members are numbered from 0 here, and from 1 in their own words.
///
/// A cheap handle: clones are the same ensemble. A member that is restarted answers, but serves nobody before
/// it has found the others: wait for [`ZooKeeperEnsemble::ready`].
#[derive(Debug, Clone)]
pub struct ZooKeeperEnsemble {
    members: Arc<Members>,
}

/// What is particular about an ensemble.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    /// There is a proxy in every connection between its members.
    links: bool,
    /// The last member observes.
    observer: bool,
}

#[derive(Debug)]
struct Members {
    servers: Vec<ZooKeeper>,
    links: Option<Links>,
}

impl ZooKeeperEnsemble {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        ZooKeeper::installed()
    }

    /// Starts this number of servers, usually three. The options apply to each of them.
    pub async fn start(servers: usize, options: &Options) -> Result<Self, Error> {
        Self::attempts(servers, options, Shape::default()).await
    }

    /// The same, with a proxy in every connection between them, for [`ZooKeeperEnsemble::isolate`]. They
    /// listen for each other on all interfaces of the machine then, and not only on loopback.
    pub async fn start_with_links(servers: usize, options: &Options) -> Result<Self, Error> {
        Self::attempts(servers, options, Shape { links: true, ..Shape::default() }).await
    }

    /// Starts this number of servers that vote, and one more that observes, which is the last.
    pub async fn start_with_observer(voters: usize, options: &Options) -> Result<Self, Error> {
        Self::attempts(voters + 1, options, Shape { observer: true, ..Shape::default() }).await
    }

    async fn attempts(servers: usize, options: &Options, shape: Shape) -> Result<Self, Error> {
        if !(2..=20).contains(&servers) {
            return Err(Error::State(format!("no ensemble of {servers} servers")));
        }
        let mut attempt = 1;
        loop {
            match Self::attempt(servers, options, shape).await {
                // With other ports for all: each knows those of all others.
                Err(error) if attempt < ATTEMPTS && error.port_taken() => attempt += 1,
                done => return done,
            }
        }
    }

    async fn attempt(size: usize, options: &Options, shape: Shape) -> Result<Self, Error> {
        let ports: Vec<Ports> = (0..size).map(|_| Ports::choose()).collect::<Result<_, _>>()?;
        let links = if shape.links {
            let ports = ports.clone();
            Some(blocking(move || Links::start(&ports)).await?)
        } else {
            None
        };
        let mut starts = Vec::new();
        for index in 0..size {
            let mut members =
                links.as_ref().map_or_else(|| direct(&ports), |links| links.settings(index, &ports));
            if shape.observer {
                members[size - 1].1 += ":observer";
                if index == size - 1 {
                    members.push(("peerType".to_owned(), "observer".to_owned()));
                }
            }
            let java = Java::find(Some(Member { id: index + 1, members }), options)?;
            let options = options.clone();
            starts.push(async move { ZooKeeper::start_java(java, &options).await });
        }
        let servers = start_all(starts).await?;
        let this = Self { members: Members { servers, links }.into() };
        this.ready().await?;
        Ok(this)
    }

    /// The servers.
    pub fn servers(&self) -> &[ZooKeeper] {
        &self.members.servers
    }

    /// The addresses of the servers for clients, in the same order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.servers.iter().map(|server| server.addr()).collect()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_via(&self.addresses())
    }

    /// The same URL through other addresses, those of a [`Proxy`](crate::Proxy) each.
    pub fn url_via(&self, servers: &[SocketAddr]) -> String {
        format!("zk://{}", hosts(servers))
    }

    /// Which server says that it is the leader. An error if none does, or two.
    pub async fn leader(&self) -> Result<usize, Error> {
        let leaders = self.with_role("leader").await?;
        match *leaders {
            [leader] => Ok(leader),
            _ => Err(Error::State(format!("the leaders are {leaders:?}"))),
        }
    }

    /// Which servers say that they follow a leader.
    pub async fn followers(&self) -> Result<Vec<usize>, Error> {
        self.with_role("follower").await
    }

    async fn with_role(&self, role: &'static str) -> Result<Vec<usize>, Error> {
        let members = self.members.clone();
        blocking(move || {
            let all = members.servers.iter().enumerate();
            let found = all.filter(|(_, server)| self::role(server).is_some_and(|its| its == role));
            Ok(found.map(|(index, _)| index).collect())
        })
        .await
    }

    /// Waits until one server leads and all others follow or observe. For use after a restart or
    /// [`ZooKeeperEnsemble::rejoin`]; at the start it has been done.
    pub async fn ready(&self) -> Result<(), Error> {
        let (members, witness) = (self.members.clone(), self.members.clone());
        let logs = move || logs(witness.servers.iter().map(|server| &server.server));
        until_ready("zookeeper", move || readiness(&members.servers), logs).await
    }

    /// Cuts a server off from all others: bytes between them are swallowed in both directions. Clients still
    /// reach it. It, or its followers, notice after two seconds of silence, unless settings say otherwise.
    ///
    /// Only for an ensemble with links, and blocks some milliseconds.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn isolate(&self, server: usize) -> Result<(), Error> {
        self.set_isolated(server, true)
    }

    /// Ends [`ZooKeeperEnsemble::isolate`] for a server. Connections that have lost something are reset.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn rejoin(&self, server: usize) -> Result<(), Error> {
        self.set_isolated(server, false)
    }

    fn set_isolated(&self, server: usize, isolate: bool) -> Result<(), Error> {
        assert!(server < self.members.servers.len(), "there is no server {server}");
        self.links()?.set_isolated(server, isolate);
        Ok(())
    }

    /// From now on what the servers say to each other takes this long, each way: the followers lag behind
    /// their leader. Zero ends it. It must be less than what `syncLimit` allows.
    ///
    /// Only for an ensemble with links. [`ZooKeeperEnsemble::rejoin`] ends it, too, for the connections of a
    /// server.
    pub fn delay(&self, each_way: Duration) -> Result<(), Error> {
        self.links()?.delay(each_way);
        Ok(())
    }

    fn links(&self) -> Result<&Links, Error> {
        let links = self.members.links.as_ref();
        links.ok_or_else(|| Error::State("the ensemble was not started with links".into()))
    }
}

/// `None` while it does not serve.
fn role(server: &ZooKeeper) -> Option<String> {
    let answer = exchange(server.addr(), b"srvr", SHORT).ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

fn readiness(servers: &[ZooKeeper]) -> Result<Readiness, Error> {
    let roles: Vec<Option<String>> = servers.iter().map(role).collect();
    let count = |role| roles.iter().filter(|its| its.as_deref() == Some(role)).count();
    if count("leader") == 1 && count("follower") + count("observer") == servers.len() - 1 {
        return Ok(Readiness::Ready);
    }
    // A member whose other ports are taken does not always end. The leader binds one of them when it is
    // elected.
    for log in servers.iter().map(|server| server.log()) {
        // Only what it has written since its last start.
        let log = log.rsplit(BINDING).next().unwrap_or_default();
        if log.contains("Address already in use") {
            let log = log.to_owned();
            return Err(Error::Startup { server: "zookeeper", why: "a port is taken".into(), log });
        }
    }
    Ok(Readiness::NotYet(format!("{roles:?}")))
}
