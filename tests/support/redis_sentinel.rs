//! A Redis master with a replica and three sentinels, by TLS.

use std::sync::Arc;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Line, Link, Need};
use lockwell::{Locks, Result};
use testbed::{Certificates, Proxy, RedisSentinel, Release};

use super::servers::{KEEPS, credentials, options};
use super::targets::Started;

/// The master is not stopped: another would take its place, and not all locks with it. Failover has tests of
/// its own.
pub(crate) fn offers() -> Vec<Need> {
    let mut offers = super::redis::offers();
    offers.retain(|need| *need != Need::Server);
    offers
}

pub(crate) async fn start(release: &'static Release) -> Started {
    let files = Certificates::make()?;
    let options = options().release(release).tls(&files);
    let group = RedisSentinel::start_with(&options).await?;
    Ok(Arc::new(Group { group, files }))
}

#[derive(Debug)]
struct Group {
    group: RedisSentinel,
    files: Certificates,
}

impl Group {
    /// The options of the address.
    fn options(&self) -> String {
        format!("{}&{KEEPS}", credentials(&self.files))
    }
}

#[async_trait]
impl Harness for Group {
    fn offers(&self) -> Vec<Need> {
        offers()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(self.group.url() + &self.options()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.group.url() + &self.options())
    }

    /// A proxy before the master, and one before a sentinel that names the first proxy.
    async fn link(&self) -> Option<Box<dyn Link>> {
        let to_master = Proxy::start(self.group.master().peer_addr()).await.expect("a proxy");
        let (guide, master) = self.group.start_guide(to_master.addr()).await.expect("a sentinel");
        let to_guide = Proxy::start(guide.peer_addr()).await.expect("a proxy");
        let url = format!("rediss+sentinel://{}/{master}{}", to_guide.addr(), self.options());
        let line = Line::new(vec![to_master, to_guide], url, lockwell::connect);
        Some(Box::new(line.keeping(testbed::Server::clone(&guide))))
    }
}
