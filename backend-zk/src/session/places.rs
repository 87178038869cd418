//! Where the servers of an address are at present.
//!
//! The client crate connects to a name by the first of its addresses that accepts the connection. A server
//! that hangs accepts it, too. So the crate gets each address of such a name, and the name beside them: the
//! addresses may change while a session lives, such as those of a headless service of Kubernetes.

use std::net::SocketAddr;

use futures_util::future::join_all;
use lockwell_core::backend::addresses_of;

use crate::options::{Host, ZkOptions};
use crate::session::runtime::SESSIONS;

/// The number of entries in the server list of a session if there is one server, and the number of entries
/// for each of several servers.
const ONE: usize = 24;
const COPIES: usize = 2;

/// Servers in the form of the client crate.
pub(crate) struct Places {
    /// Each server separately.
    pub(crate) each: Vec<String>,
    /// The names that stand for several of them.
    pub(crate) names: Vec<String>,
}

impl Places {
    pub(crate) fn one(server: String) -> Self {
        Self { each: vec![server], names: Vec::new() }
    }

    /// With TLS each name is one server: the certificate must be for the name, and the crate takes what it
    /// connects to for that.
    pub(crate) async fn find(options: &ZkOptions) -> Self {
        let mut places = Self { each: Vec::new(), names: Vec::new() };
        let hosts = if options.tls.is_some() { Vec::new() } else { options.hosts.clone() };
        // The application may have taken all threads of its runtime that may block.
        let finding = SESSIONS.spawn(async move {
            join_all(hosts.iter().map(|host| addresses_of(&host.name, host.port))).await
        });
        let mut found = finding.await.unwrap_or_default().into_iter();
        for name in options.servers.split(',') {
            let addresses = found.next().and_then(Result::ok).unwrap_or_default();
            if addresses.len() > 1 {
                places.each.extend(addresses.iter().map(ToString::to_string));
                places.names.push(name.to_owned());
            } else {
                places.each.push(name.to_owned());
            }
        }
        places.each.sort_unstable();
        places.each.dedup();
        places
    }

    /// The list of servers for a session, with repetitions.
    ///
    /// When a session has lost its server, the client crate goes through the list. After each pass it doubles
    /// its pause, without an upper bound: after an election of some seconds the session would stay
    /// disconnected for the same time again. With a long list only the pauses between its entries matter,
    /// which are a second at most. The order is random. With more copies of each server, a silent server
    /// could be tried several times before another one is tried.
    pub(crate) fn for_long(&self) -> String {
        let copies = if self.each.len() == 1 { ONE } else { COPIES };
        let each = std::iter::repeat_n(&self.each, copies).flatten();
        each.chain(&self.names).map(String::as_str).collect::<Vec<_>>().join(",")
    }
}

/// The addresses of all servers whose names can be resolved at present.
pub(crate) async fn addresses(hosts: &[Host]) -> Vec<SocketAddr> {
    let found = join_all(hosts.iter().map(|host| addresses_of(&host.name, host.port))).await;
    found.into_iter().flatten().flatten().collect()
}
