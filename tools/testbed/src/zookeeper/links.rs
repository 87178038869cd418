//! The connections between the members of an ensemble, and how they are cut.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{Direction, Error, Proxy, port};

/// The two ports of a member on which the others connect to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    quorum: u16,
    election: u16,
}

impl Ports {
    pub(super) fn choose() -> Result<Self, Error> {
        let free = || port::free().map(|addr| addr.port()).map_err(Error::io("a free port"));
        Ok(Self { quorum: free()?, election: free()? })
    }

    fn at(self, host: Ipv4Addr) -> String {
        format!("{host}:{}:{}", self.quorum, self.election)
    }
}

/// The settings `server.N` of all members, without anything between them.
pub(super) fn direct(ports: &[Ports]) -> Vec<(String, String)> {
    settings(ports.iter().map(|ports| ports.at(Ipv4Addr::LOCALHOST)))
}

fn settings(places: impl Iterator<Item = String>) -> Vec<(String, String)> {
    places.enumerate().map(|(index, place)| (format!("server.{}", index + 1), place)).collect()
}

/// A proxy for each of the two connections that each member can make to each other one.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Link>,
    isolated: Mutex<BTreeSet<usize>>,
}

#[derive(Debug)]
struct Link {
    from: usize,
    to: usize,
    quorum: Proxy,
    election: Proxy,
}

impl Links {
    /// Blocks.
    pub(super) fn start(ports: &[Ports]) -> Result<Self, Error> {
        let proxy = |port| Proxy::start_blocking(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut all = Vec::new();
        for (to, place) in ports.iter().enumerate() {
            for from in (0..ports.len()).filter(|from| *from != to) {
                all.push(Link { from, to, quorum: proxy(place.quorum)?, election: proxy(place.election)? });
            }
        }
        Ok(Self { all, isolated: Mutex::default() })
    }

    /// The settings `server.N` as the member `of` has to see them.
    ///
    /// A member tells the others on which address it takes connections, and they prefer that to what their
    /// own settings say, past our proxies. Unless it is the address that stands for all: then they can not
    /// use it.
    pub(super) fn settings(&self, of: usize, ports: &[Ports]) -> Vec<(String, String)> {
        settings(ports.iter().enumerate().map(|(to, own)| {
            match self.all.iter().find(|link| (link.from, link.to) == (of, to)) {
                Some(link) => link.entry().at(Ipv4Addr::LOCALHOST),
                None => own.at(Ipv4Addr::UNSPECIFIED),
            }
        }))
    }

    /// Cuts a member off from all others, or lets it back, except to those that are cut off themselves.
    pub(super) fn set_isolated(&self, member: usize, isolate: bool) {
        let mut isolated = self.isolated.lock().unwrap_or_else(PoisonError::into_inner);
        if isolate {
            isolated.insert(member);
        } else {
            isolated.remove(&member);
        }
        for link in self.all.iter().filter(|link| link.from == member || link.to == member) {
            if isolate {
                link.proxies().for_each(|proxy| proxy.blackhole(Direction::Both));
            } else if !isolated.contains(&link.from) && !isolated.contains(&link.to) {
                link.proxies().for_each(Proxy::heal);
            }
        }
    }

    /// How long the members' words to each other take, each way.
    pub(super) fn delay(&self, each_way: Duration) {
        self.all.iter().for_each(|link| link.quorum.delay(each_way));
    }
}

impl Link {
    /// Where its two proxies take connections.
    fn entry(&self) -> Ports {
        Ports { quorum: self.quorum.addr().port(), election: self.election.addr().port() }
    }

    fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        [&self.quorum, &self.election].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sees_the_others_behind_proxies() {
        let ports = [1, 3, 5].map(|quorum| Ports { quorum, election: quorum + 1 });
        assert_eq!(direct(&ports)[2], ("server.3".to_owned(), "127.0.0.1:5:6".to_owned()));
        let links = Links::start(&ports).expect("proxies");
        let mut seen = BTreeSet::new();
        for member in 0..3 {
            let settings = links.settings(member, &ports);
            assert_eq!(settings[member].1, ports[member].at(Ipv4Addr::UNSPECIFIED));
            seen.extend(settings.into_iter().map(|(_, place)| place));
        }
        assert_eq!(seen.len(), 9, "{seen:?}");
    }
}
