//! A throwaway cluster of etcd.

use std::{
    fs,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    Etcd, member_and_leader,
    program::{JOINS, Member, Program},
};
use crate::{
    Error, Options, Proxy,
    group::{Readiness, hosts, logs, start_all, until_ready},
    port,
    server::blocking,
};

/// How often a start is tried again because somebody else took a port.
const ATTEMPTS: u32 = 8;

/// How long a change of the members is tried: they elect a leader first, and refuse a new member until all
/// of them have been connected for five seconds.
const PATIENCE: Duration = Duration::from_mins(1);

/// A throwaway cluster of etcd. A cheap handle: clones are the same cluster.
///
/// A member that is restarted takes requests when it has found a majority, and not before.
#[derive(Debug, Clone)]
pub struct EtcdCluster {
    members: Arc<Vec<Etcd>>,
}

impl EtcdCluster {
    /// Whether the program is on this machine, and if not, why.
    pub fn installed() -> Result<(), Error> {
        Etcd::installed()
    }

    /// Starts this number of members, usually three. The options apply to each of them.
    pub async fn start(members: usize, options: &Options) -> Result<Self, Error> {
        Ok(Self::start_behind(members, options, false).await?.0)
    }

    /// The same with a proxy before each member, in their order, through which the others reach it, and
    /// clients do not: for members that are far from each other.
    pub async fn start_apart(members: usize, options: &Options) -> Result<(Self, Vec<Proxy>), Error> {
        Self::start_behind(members, options, true).await
    }

    async fn start_behind(
        members: usize,
        options: &Options,
        has_proxies: bool,
    ) -> Result<(Self, Vec<Proxy>), Error> {
        let mut attempt = 1;
        loop {
            match Self::attempt(members, options, has_proxies).await {
                // With other ports for all: each knows those of all others.
                Err(error) if attempt < ATTEMPTS && error.port_taken() => attempt += 1,
                done => return done,
            }
        }
    }

    async fn attempt(size: usize, options: &Options, has_proxies: bool) -> Result<(Self, Vec<Proxy>), Error> {
        let free: Vec<SocketAddr> =
            (0..size).map(|_| port::free().map_err(Error::io("a free port"))).collect::<Result<_, _>>()?;
        let mut proxies = Vec::new();
        for addr in free.iter().filter(|_| has_proxies) {
            proxies.push(Proxy::start(*addr).await.map_err(Error::io("a proxy"))?);
        }
        let peers: Vec<u16> = if has_proxies {
            proxies.iter().map(|proxy| proxy.addr().port()).collect()
        } else {
            free.iter().map(SocketAddr::port).collect()
        };
        let mut starts = Vec::new();
        for (index, addr) in free.iter().enumerate() {
            let listens = has_proxies.then(|| addr.port());
            let program = Program::find(Some(Member { index, peers: peers.clone(), listens }), options)?;
            let options = options.clone();
            starts.push(async move { Etcd::launch(program, &options).await });
        }
        let this = Self { members: start_all(starts).await?.into() };
        this.ready().await?;
        Ok((this, proxies))
    }

    /// The members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// The addresses of the members for clients, in the same order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.addr()).collect()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_via(&self.addresses())
    }

    /// The same URL through other addresses, those of a [`Proxy`](crate::Proxy) each.
    pub fn url_via(&self, members: &[SocketAddr]) -> String {
        format!("etcd://{}", hosts(members))
    }

    /// Kills a member, deletes its data, and puts an empty one in its place, as an operator does: the others
    /// remove it and add it anew. [`Server::restart`](crate::Server::restart) lets it begin.
    ///
    /// # Panics
    ///
    /// If there is no such member.
    pub async fn replace(&self, member: usize) -> Result<(), Error> {
        assert!(member < self.members.len(), "there is no member {member}");
        let members = Arc::clone(&self.members);
        blocking(move || replace(&members, member)).await
    }

    /// The member that most members say leads. An error if there is none.
    pub async fn leader(&self) -> Result<usize, Error> {
        let members = Arc::clone(&self.members);
        blocking(move || {
            let said: Vec<_> = members.iter().map(|member| member_and_leader(member.addr())).collect();
            let votes = |of: &str| said.iter().flatten().filter(|(_, leader)| leader == of).count();
            let id = |index: usize| said[index].as_ref().map(|(id, _)| id.as_str());
            let leads = |index: &usize| id(*index).is_some_and(|id| votes(id) > members.len() / 2);
            let found = (0..members.len()).find(leads);
            found.ok_or_else(|| Error::State(format!("no leader: {said:?}")))
        })
        .await
    }

    /// Waits until all members know the same leader. For use after a restart; at the start it has been done.
    pub async fn ready(&self) -> Result<(), Error> {
        let (members, witness) = (Arc::clone(&self.members), Arc::clone(&self.members));
        let logs = move || logs(witness.iter().map(|member| &member.server));
        let readiness = move || {
            let said: Vec<_> = members.iter().map(|member| member_and_leader(member.addr())).collect();
            let mut leaders = said.iter().map(|said| said.as_ref().map(|(_, leader)| leader.as_str()));
            let first = leaders.next().flatten().filter(|leader| *leader != "0");
            let all = first.is_some_and(|first| leaders.all(|leader| leader == Some(first)));
            Ok(if all { Readiness::Ready } else { Readiness::NotYet(format!("{said:?}")) })
        };
        until_ready("etcd", readiness, logs).await
    }
}

fn replace(members: &[Etcd], index: usize) -> Result<(), Error> {
    let member = &members[index];
    member.kill()?;
    fs::remove_dir_all(member.folder().join("data")).map_err(Error::io("the data of the member"))?;
    fs::write(member.folder().join(JOINS), "").map_err(Error::io(JOINS))?;
    let other = &members[(index + 1) % members.len()];
    let list = other.call("/v3/cluster/member/list", "{}")?;
    // Of the others each has started, and so tells its name.
    let told = list.split("\"ID\":\"").find(|told| told.contains(&format!("\"name\":\"m{index}\"")));
    let (id, peer) = told
        .and_then(|told| Some((told.split('"').next()?, text_between(told, "\"peerURLs\":[\"", '"')?)))
        .ok_or_else(|| Error::State(format!("no member m{index}: {list}")))?;
    // A change that is asked for while nobody leads has no answer.
    patiently(|| match member_and_leader(other.addr()) {
        Some((_, leader)) if leader != "0" && leader != id => Ok(()),
        said => Err(Error::State(format!("no other leader than m{index}: {said:?}"))),
    })?;
    change(other, "/v3/cluster/member/remove", &format!("{{\"ID\":\"{id}\"}}"), "member not found")?;
    change(
        other,
        "/v3/cluster/member/add",
        &format!("{{\"peerURLs\":[\"{peer}\"]}}"),
        "Peer URLs already exists",
    )
}

fn text_between<'a>(text: &'a str, before: &str, after: char) -> Option<&'a str> {
    text.split_once(before)?.1.split(after).next()
}

/// Repeats a change of the members until they take it, or say that it `is_made`.
fn change(member: &Etcd, path: &str, json: &str, is_made: &str) -> Result<(), Error> {
    patiently(|| {
        let answer = member.call(path, json)?;
        let is_done = answer.contains("\"members\"") || answer.contains(is_made);
        if is_done { Ok(()) } else { Err(Error::State(format!("{path}: {answer}"))) }
    })
}

/// Tries again and again, though not for ever.
fn patiently(attempt: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(200)),
            Ok(()) => return Ok(()),
        }
    }
}
