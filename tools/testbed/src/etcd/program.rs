//! How etcd is run.

use std::net::{Ipv4Addr, SocketAddr};

use crate::{
    Error, Options,
    kind::{Kind, Site},
    release::{Family, Release},
};

/// The file in the server's folder that says that a member joins a cluster which is there already.
pub(super) const JOINS: &str = "joins";

/// What it writes when it has found a leader and takes requests.
const READY: &str = "ready to serve client requests";

/// A member of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) index: usize,
    /// The ports at which the members reach each other.
    pub(super) peers: Vec<u16>,
    /// The port on which this one listens for the others, if that is another.
    pub(super) listens: Option<u16>,
}

#[derive(Debug)]
pub(super) struct Program {
    path: String,
    member: Option<Member>,
}

impl Program {
    pub(super) fn find(member: Option<Member>, options: &Options) -> Result<Self, Error> {
        Ok(Self { path: path(options.release_of(Family::Etcd)?)?, member })
    }
}

/// The program of a release.
pub(super) fn path(release: &Release) -> Result<String, Error> {
    release.program("etcd", "etcd-server")
}

impl Kind for Program {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn more_ports(&self) -> usize {
        usize::from(self.member.is_none())
    }

    fn prepare(&self, _: &Site<'_>) -> Result<Vec<Vec<String>>, Error> {
        Ok(Vec::new())
    }

    fn command(&self, site: &Site<'_>, addr: SocketAddr) -> Result<Vec<String>, Error> {
        let alone = Member { index: 0, peers: site.more_ports.to_vec(), listens: None };
        let member = self.member.as_ref().unwrap_or(&alone);
        let peer = |port: &u16| format!("http://{}:{port}", Ipv4Addr::LOCALHOST);
        let members = member.peers.iter().enumerate();
        let cluster = members.map(|(index, port)| format!("m{index}={}", peer(port)));
        let (own, scheme) = (
            member.peers.get(member.index).map(peer).unwrap_or_default(),
            if site.options.tls.is_some() { "https" } else { "http" },
        );
        let clients = format!("{scheme}://{addr}");
        let mut settings = vec![
            ("name", format!("m{}", member.index)),
            ("data-dir", site.path("data")?),
            ("listen-client-urls", clients.clone()),
            ("advertise-client-urls", clients),
            ("listen-peer-urls", member.listens.as_ref().map_or_else(|| own.clone(), peer)),
            ("initial-advertise-peer-urls", own),
            ("initial-cluster", cluster.collect::<Vec<_>>().join(",")),
        ];
        // It counts only where there are no data.
        if site.folder.join(JOINS).exists() {
            settings.push(("initial-cluster-state", "existing".to_owned()));
        }
        if let Some([ca, certificate, key]) = &site.options.tls {
            settings.extend([
                ("trusted-ca-file", ca.clone()),
                ("cert-file", certificate.clone()),
                ("key-file", key.clone()),
                ("client-cert-auth", "true".to_owned()),
            ]);
        }
        let extra = site.options.settings.iter().map(|(name, value)| (&**name, value.clone()));
        let flags = settings.into_iter().chain(extra).map(|(name, value)| format!("--{name}={value}"));
        Ok(std::iter::once(self.path.clone()).chain(flags).collect())
    }

    /// Only our process writes into the log, and only when the port is its own.
    fn ready(&self, _: &Site<'_>, _: SocketAddr, _: u32, log: &str) -> bool {
        log.contains(READY)
    }
}
