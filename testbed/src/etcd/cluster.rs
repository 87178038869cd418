//! A throwaway cluster of etcd.

use std::{net::SocketAddr, sync::Arc};

use super::{
    Etcd, member_and_leader,
    program::{Member, Program},
};
use crate::{
    Error, Options,
    group::{Readiness, hosts, logs, start_all, until_ready},
    port,
    server::blocking,
};

/// How often a start is tried again because somebody else took a port.
const ATTEMPTS: u32 = 8;

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
        let mut attempt = 1;
        loop {
            match Self::attempt(members, options).await {
                // With other ports for all: each knows those of all others.
                Err(error) if attempt < ATTEMPTS && error.port_taken() => attempt += 1,
                done => return done,
            }
        }
    }

    async fn attempt(size: usize, options: &Options) -> Result<Self, Error> {
        let free = || port::free().map(|addr| addr.port()).map_err(Error::io("a free port"));
        let peers: Vec<u16> = (0..size).map(|_| free()).collect::<Result<_, _>>()?;
        let mut starts = Vec::new();
        for index in 0..size {
            let program = Program::find(Some(Member { index, peers: peers.clone() }), options)?;
            let options = options.clone();
            starts.push(async move { Etcd::launch(program, &options).await });
        }
        let this = Self { members: start_all(starts).await?.into() };
        this.ready().await?;
        Ok(this)
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
