//! The options of an address.

use std::fmt;
use std::time::Duration;

use lockwell_core::tls::TlsFiles;
use lockwell_core::{Error, ErrorKind, Passwords, Result, ServerUrl};
use zookeeper_client::{Acls, CreateMode};

use crate::names::base_path;
use crate::queue::child::Form;

const DEFAULT_PORT: u16 = 2181;

/// Our identity at the servers.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    /// The scheme `digest`: the user need not exist at the servers.
    Digest(String, Passwords),
    /// A user that exists at the servers, by SASL with DIGEST-MD5.
    #[cfg(feature = "sasl")]
    Sasl(String, Passwords),
}

/// What to do about leases that are shorter than the time for which a server without its leader serves its
/// clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    /// Warn.
    No,
    /// Refuse them.
    Yes,
    /// Refuse leases that are shorter than this time and a tick. It replaces the report of the servers.
    Above(Duration),
}

/// A server.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.name.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.name, self.port)
    }
}

/// The contents of an address.
#[derive(Clone, Debug)]
pub(crate) struct ZkOptions {
    /// Hosts and ports in the form of the client crate.
    pub(crate) servers: String,
    /// Each server separately.
    pub(crate) hosts: Vec<Host>,
    /// The parent path of the locks, without a slash at its end.
    pub(crate) base: String,
    pub(crate) login: Option<Login>,
    /// Whether only the creator has access to the nodes.
    pub(crate) private: bool,
    /// The form of the nodes of exclusive claims.
    pub(crate) form: Form,
    /// Whether a missing base path is created.
    pub(crate) create: bool,
    /// Whether the folders of locks stay when they are empty.
    pub(crate) lasting: bool,
    /// The time limit of calls that have no wait.
    pub(crate) timeout: Duration,
    /// The shortest session timeout to request.
    pub(crate) session: Duration,
    pub(crate) strict: Strict,
    /// The tick of servers that do not report it.
    pub(crate) tick: Option<Duration>,
    /// Uses TLS for all connections.
    pub(crate) tls: Option<TlsFiles>,
}

impl ZkOptions {
    pub(crate) fn read(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&[
            "acl", "auth", "ca", "cert", "create", "folders", "key", "recipe", "session", "strict", "tick",
            "timeout",
        ])?;
        let hosts: Vec<Host> = url
            .hosts()?
            .into_iter()
            .map(|host| Host { name: host.name().to_owned(), port: host.port().unwrap_or(DEFAULT_PORT) })
            .collect();
        let (login, tls) = (login(url)?, tls_files(url)?);
        // A client certificate is an identity, too.
        let known = login.is_some() || tls.as_ref().is_some_and(|files| files.identity().is_some());
        let private = choice(url, "acl", [("open", false), ("creator", true)])?;
        if private && !known {
            return Err(bad("acl=creator needs USER:PASSWORD in the address, or cert and key"));
        }
        Ok(Self {
            servers: servers(&hosts, tls.is_some()),
            hosts,
            base: base_path(url.path())?,
            login,
            private,
            form: choice(url, "recipe", [("curator", Form::Mutex), ("curator-rw", Form::Writer)])?,
            create: url.parsed("create", "true or false")?.unwrap_or(true),
            lasting: choice(url, "folders", [("container", false), ("persistent", true)])?,
            timeout: url.timeout()?,
            session: bounded(url, "session", 100, 86_400_000)?.unwrap_or(Duration::from_secs(1)),
            strict: strict(url)?,
            tick: bounded(url, "tick", 10, 60_000)?,
            tls,
        })
    }

    /// The type of the folder of a lock. Usually it is a container, which the server deletes when it has been
    /// empty for a while.
    pub(crate) fn folder_mode(&self) -> CreateMode {
        if self.lasting { CreateMode::Persistent } else { CreateMode::Container }
    }

    /// Who has access to the nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.private { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

fn login(url: &ServerUrl) -> Result<Option<Login>> {
    let (user, passwords) = match (url.user(), url.passwords()) {
        (None, None) if url.option("auth").is_some() => {
            return Err(bad("auth needs USER:PASSWORD in the address"));
        }
        (None, None) => return Ok(None),
        (Some(user), Some(passwords)) => (user.to_owned(), passwords),
        _ => return Err(bad("credentials are USER:PASSWORD")),
    };
    match url.option("auth") {
        None | Some("digest") => Ok(Some(Login::Digest(user, passwords))),
        #[cfg(feature = "sasl")]
        Some("sasl") => Ok(Some(Login::Sasl(user, passwords))),
        #[cfg(not(feature = "sasl"))]
        Some("sasl") => Err(Error::new(ErrorKind::Unsupported, "auth=sasl needs the feature \"sasl\"")),
        Some(_) => Err(bad("auth is digest or sasl")),
    }
}

fn tls_files(url: &ServerUrl) -> Result<Option<TlsFiles>> {
    let files = TlsFiles::of(url, TlsFiles::OPTIONS)?;
    if files.ca().is_none() && files.identity().is_some() {
        return Err(bad("cert and key need ca, the certificates to trust"));
    }
    Ok(Some(files).filter(|files| !files.is_empty()))
}

fn strict(url: &ServerUrl) -> Result<Strict> {
    match url.option("strict") {
        None | Some("false") => Ok(Strict::No),
        Some("true") => Ok(Strict::Yes),
        Some(_) => url
            .duration("strict")
            .map(|bound| bound.map_or(Strict::No, Strict::Above))
            .map_err(|_| bad("strict is true, false, or the time of syncLimit x tickTime, such as 10s")),
    }
}

fn servers(hosts: &[Host], tls: bool) -> String {
    let scheme = if tls { "tcp+tls://" } else { "" };
    hosts.iter().map(|host| format!("{scheme}{host}")).collect::<Vec<_>>().join(",")
}

/// One of two words, of which the first is the default.
fn choice<T>(url: &ServerUrl, name: &str, [(usual, first), (other, second)]: [(&str, T); 2]) -> Result<T> {
    match url.option(name) {
        Some(word) if word == other => Ok(second),
        Some(word) if word != usual => Err(bad(format!("{name} is {usual} or {other}"))),
        _ => Ok(first),
    }
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

    fn read(text: &str) -> Result<ZkOptions> {
        ZkOptions::read(&text.parse().unwrap())
    }

    #[test]
    fn an_address_is_read() {
        let options =
            read("zk://ann:s%40cret@h1,h2:2182,[::1]:9/app/locks?acl=creator&recipe=curator-rw").unwrap();
        assert_eq!(options.servers, "h1:2181,h2:2182,[::1]:9");
        assert_eq!(options.base, "/app/locks");
        assert!(matches!(&options.login, Some(Login::Digest(user, _)) if user == "ann"));
        assert!(options.private && options.create && options.strict == Strict::No);
        assert_eq!(options.form, Form::Writer);
        assert!(!format!("{options:?}").contains("s@cret"));
        assert_eq!(read("zk://h").unwrap().base, "/lockwell");
        assert_eq!(read("zk://h?strict=true").unwrap().strict, Strict::Yes);
        assert_eq!(read("zk://h?strict=10s").unwrap().strict, Strict::Above(Duration::from_secs(10)));
    }

    #[test]
    #[cfg(feature = "tls")]
    fn tls_needs_files() {
        let options = read("zk://h?ca=c.pem&cert=a.pem&key=b.pem&acl=creator").unwrap();
        assert_eq!(options.servers, "tcp+tls://h:2181");
        assert!(options.private);
        assert_eq!(read("zk://h?ca=c.pem&acl=creator").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn bad_addresses_are_refused() {
        for text in [
            "zk://h?acl=creator",
            "zk://h?acl=x",
            "zk://ann@h",
            "zk://h?recipe=x",
            "zk://h?recipe=simple",
            "zk://h?timeout=1ms",
            "zk://h?session=0s",
            "zk://h?folders=x",
            "zk://h?tick=1ms",
            "zk://h/a/../b",
            "zk://h?strict=perhaps",
            "zk://h?chroot=/a",
            "zk://h?auth=sasl",
            "zk://a:b@h?auth=plain",
            "zk://h?cert=a.pem",
            "zk://h?cert=a.pem&key=b.pem",
            "zk://",
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        }
    }
}
