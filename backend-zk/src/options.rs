//! What an address may say.

use std::time::Duration;

use lockcore::{Error, ErrorKind, Result, Secret, ServerUrl};
use zookeeper_client::Acls;

use crate::child::Form;
use crate::names::base_path;

const DEFAULT_PORT: u16 = 2181;

/// How many places the list of servers has when it is repeated for a session.
const PLACES: usize = 24;

/// How claims exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// A queue of ephemeral sequential nodes.
    Queue(Form),
    /// One ephemeral node that everybody wants and watches: for comparison.
    Simple,
}

/// What an address says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Hosts and ports as the client crate wants them.
    pub(crate) servers: String,
    /// Each server for itself.
    pub(crate) hosts: Vec<(String, u16)>,
    /// The path under which the locks are, without a slash at its end.
    pub(crate) base: String,
    /// `user:password`, for the scheme `digest`.
    pub(crate) digest: Option<Secret>,
    /// Whether only the creator may touch the nodes.
    pub(crate) private: bool,
    pub(crate) recipe: Recipe,
    /// Whether a missing base path is created.
    pub(crate) create: bool,
    /// How long a call may take that has no wait of its own.
    pub(crate) timeout: Duration,
    /// The shortest session to ask for.
    pub(crate) session: Duration,
    /// Refuse leases that are not longer than a server may be cut off from its leader without noticing.
    pub(crate) strict: bool,
    /// PEM file with the certificates to trust; makes all connections TLS.
    pub(crate) ca: Option<String>,
}

impl Options {
    pub(crate) fn read(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&["acl", "ca", "create", "recipe", "session", "strict", "timeout"])?;
        let hosts: Vec<(String, u16)> =
            url.hosts()?.into_iter().map(|host| (host.name, host.port.unwrap_or(DEFAULT_PORT))).collect();
        let ca = url.option("ca").map(str::to_owned);
        if ca.is_some() && !cfg!(feature = "tls") {
            return Err(Error::new(ErrorKind::Unsupported, "the option ca needs the feature \"tls\""));
        }
        let digest = match (url.user(), url.password()) {
            (None, None) => None,
            (Some(user), Some(password)) => Some(Secret::new(format!("{user}:{}", password.expose()))),
            _ => return Err(bad("credentials are USER:PASSWORD, for the scheme digest")),
        };
        let private = match url.option("acl") {
            None | Some("open") => false,
            Some("creator") if digest.is_some() => true,
            Some("creator") => return Err(bad("acl=creator needs USER:PASSWORD in the address")),
            Some(_) => return Err(bad("acl is open or creator")),
        };
        let recipe = match url.option("recipe") {
            None | Some("curator") => Recipe::Queue(Form::Mutex),
            Some("curator-rw") => Recipe::Queue(Form::Writer),
            Some("simple") => Recipe::Simple,
            Some(_) => return Err(bad("recipe is curator, curator-rw or simple")),
        };
        Ok(Self {
            servers: servers(&hosts, ca.is_some()),
            hosts,
            base: base_path(url.path())?,
            digest,
            private,
            recipe,
            create: url.parsed("create", "true or false")?.unwrap_or(true),
            timeout: url.timeout()?,
            session: bounded(url, "session", 100, 86_400_000)?.unwrap_or(Duration::from_secs(1)),
            strict: url.parsed("strict", "true or false")?.unwrap_or(false),
            ca,
        })
    }

    /// The servers for a session, again and again.
    ///
    /// A session that has lost its server tries the list, and after each time through waits for twice as long, without
    /// an upper bound: after an election of some seconds it would stay away for as long again. On a long list the
    /// pauses are those between its places, a second at most.
    pub(crate) fn servers_for_long(&self) -> String {
        vec![self.servers.as_str(); PLACES.div_ceil(self.hosts.len())].join(",")
    }

    /// Who may touch the nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.private { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

fn servers(hosts: &[(String, u16)], tls: bool) -> String {
    let scheme = if tls { "tcp+tls://" } else { "" };
    let one = |(name, port): &(String, u16)| {
        let (open, close) = if name.contains(':') { ("[", "]") } else { ("", "") };
        format!("{scheme}{open}{name}{close}:{port}")
    };
    hosts.iter().map(one).collect::<Vec<_>>().join(",")
}

fn bounded(url: &ServerUrl, name: &str, least: u64, most: u64) -> Result<Option<Duration>> {
    let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
    match url.duration(name)? {
        Some(value) if value < least || value > most => {
            Err(bad(format!("{name} must be between {least:?} and {most:?}")))
        }
        value => Ok(value),
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options> {
        Options::read(&text.parse().unwrap())
    }

    #[test]
    fn an_address_is_read() {
        let options =
            read("zk://ann:s%40cret@h1,h2:2182,[::1]:9/app/locks?acl=creator&recipe=curator-rw").unwrap();
        assert_eq!(options.servers, "h1:2181,h2:2182,[::1]:9");
        assert_eq!(options.base, "/app/locks");
        assert_eq!(options.digest.as_ref().unwrap().expose(), "ann:s@cret");
        assert!(options.private && options.create && !options.strict);
        assert_eq!(options.recipe, Recipe::Queue(Form::Writer));
        assert!(!format!("{options:?}").contains("s@cret"));
        assert_eq!(read("zk://h").unwrap().base, "/lockwell");
    }

    #[test]
    fn bad_addresses_are_refused() {
        for text in [
            "zk://h?acl=creator",
            "zk://h?acl=x",
            "zk://ann@h",
            "zk://h?recipe=x",
            "zk://h?timeout=1ms",
            "zk://h?session=0s",
            "zk://h/a/../b",
            "zk://h?strict=perhaps",
            "zk://h?chroot=/a",
            "zk://",
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        }
    }
}
