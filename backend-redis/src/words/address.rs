//! The addresses of Redis servers.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;

use lockwell_core::tls::TlsFiles;
use lockwell_core::{Error, ErrorKind, Host, Passwords, Result, Secret, ServerUrl};
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::error::NO_PASSWORD;

/// The port of Redis, and that of its sentinels.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The login at the sentinels.
pub(crate) const SENTINEL_OPTIONS: [&str; 3] =
    ["sentinel_user", "sentinel_password", "sentinel_password_file"];

/// How long the kernel waits for the other side to acknowledge what was sent before it resets the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The kind of installation, and its servers.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    Node(ConnectionAddr),
    Sentinel { sentinels: Vec<ConnectionAddr>, master: String },
    Cluster(Vec<ConnectionAddr>),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |nodes: &[ConnectionAddr]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Sentinel { sentinels, master } => write!(f, "{master} behind {}", list(sentinels)),
            Self::Cluster(nodes) => f.write_str(&list(nodes)),
        }
    }
}

/// Where the servers are and how to log in.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) topology: Topology,
    user: Option<String>,
    passwords: Option<Passwords>,
    /// The password for connections that are made now: see [`logging_in`](Self::logging_in).
    password: Option<Secret>,
    /// The login at the sentinels, where the address gives one.
    sentinel_user: Option<String>,
    sentinel_passwords: Option<Passwords>,
    /// As `password`.
    sentinel_password: Option<Secret>,
    pub(crate) db: i64,
    /// With TLS: the certificates to trust, and our own. Without a file, the certificate authorities of
    /// Mozilla are trusted.
    pub(crate) tls: Option<TlsFiles>,
}

impl Address {
    /// Reads an address of one server, of sentinels or of a cluster.
    pub(crate) fn read(url: &ServerUrl) -> Result<Self> {
        let (scheme, tls) = match url.scheme() {
            "rediss" => ("redis", true),
            "rediss+sentinel" => ("redis+sentinel", true),
            "rediss+cluster" => ("redis+cluster", true),
            other => (other, false),
        };
        require_tls_feature(url, tls)?;
        let path = url.path().trim_matches('/');
        let mut db = db_option(url)?;
        let topology = match scheme {
            "redis+unix" => {
                let location = url.location();
                if !location.starts_with('/') {
                    return Err(bad(format!("{url} names no socket: write redis+unix:///PATH/OF/SOCKET")));
                }
                Topology::Node(ConnectionAddr::Unix(PathBuf::from(location)))
            }
            "redis+sentinel" => {
                if path.is_empty() || path.contains('/') {
                    return Err(bad(format!("{url} must name the master: {scheme}://SENTINELS/MASTER")));
                }
                Topology::Sentinel { sentinels: nodes(url, SENTINEL_PORT, tls)?, master: path.to_owned() }
            }
            "redis+cluster" => {
                if !path.is_empty() || db.unwrap_or(0) != 0 {
                    return Err(bad("a cluster has no numbered databases"));
                }
                Topology::Cluster(nodes(url, PORT, tls)?)
            }
            _ => {
                db = db_in_path(url, db)?;
                let mut nodes = nodes(url, PORT, tls)?;
                if nodes.len() > 1 {
                    return Err(bad(format!(
                        "{scheme}:// takes one host; for several there are redis+cluster://, redis+sentinel:// \
                         and redlock://"
                    )));
                }
                Topology::Node(nodes.remove(0))
            }
        };
        let of_sentinels = SENTINEL_OPTIONS.iter().find(|name| url.option(name).is_some());
        if let Some(name) = of_sentinels
            && scheme != "redis+sentinel"
        {
            return Err(bad(format!("{name} makes sense with redis+sentinel:// only")));
        }
        let new = Self::new(url, topology, db, tls_files(url, tls)?);
        Ok(Self { sentinel_passwords: sentinel_passwords(url)?, ..new })
    }

    /// Reads the addresses of independent nodes.
    pub(crate) fn read_nodes(url: &ServerUrl) -> Result<Vec<Self>> {
        let tls = url.scheme() == "redlocks";
        require_tls_feature(url, tls)?;
        let db = db_in_path(url, db_option(url)?)?;
        let nodes = nodes(url, PORT, tls)?;
        let files = tls_files(url, tls)?;
        let one = |node| Self::new(url, Topology::Node(node), db, files.clone());
        Ok(nodes.into_iter().map(one).collect())
    }

    /// The server and the login of a client of the application. Another password of the address goes first.
    pub(crate) fn of_client(url: &ServerUrl, info: &ConnectionInfo) -> Result<Self> {
        let of_server = ["db"].iter().chain(&TlsFiles::OPTIONS).any(|name| url.option(name).is_some());
        if of_server || !url.location().is_empty() || url.user().is_some() {
            let text = format!(
                "the client of the application names server, user and database: write redis://?OPTIONS, not {url}"
            );
            return Err(bad(text));
        }
        let login = info.redis_settings();
        let of_client = login.password().map(|text| Passwords::fixed(Secret::new(text)));
        let mut new = Self::new(url, Topology::Node(info.addr().clone()), Some(login.db()), None);
        new.user = login.username().map(str::to_owned);
        new.passwords = new.passwords.or(of_client);
        Ok(new)
    }

    fn new(url: &ServerUrl, topology: Topology, db: Option<i64>, tls: Option<TlsFiles>) -> Self {
        Self {
            topology,
            user: url.user().map(str::to_owned),
            passwords: url.passwords(),
            password: None,
            sentinel_user: url.option("sentinel_user").map(str::to_owned),
            sentinel_passwords: None,
            sentinel_password: None,
            db: db.unwrap_or(0),
            tls,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Whether another server can take the place of one that fails.
    pub(crate) fn can_move(&self) -> bool {
        !matches!(self.topology, Topology::Node(_))
    }

    /// The address of one server of a group, with what all of them have in common.
    pub(crate) fn at(&self, addr: ConnectionAddr) -> Self {
        Self { topology: Topology::Node(addr), ..self.clone() }
    }

    /// The address of a host that another member of the group named.
    pub(crate) fn node(&self, host: String, port: u16) -> ConnectionAddr {
        node(host, port, self.tls.is_some())
    }

    /// This address with the present passwords.
    pub(crate) async fn logging_in(&self) -> redis::RedisResult<Self> {
        let password = present(self.passwords.as_ref()).await?;
        let sentinel_password = present(self.sentinel_passwords.as_ref()).await?;
        Ok(Self { password, sentinel_password, ..self.clone() })
    }

    /// This address with another password than the one that was refused, if there is one by now.
    pub(crate) async fn logging_in_anew(&self) -> Option<Self> {
        let (passwords, refused) = (self.passwords.as_ref()?, self.password.as_ref()?);
        let password = passwords.other_than(refused).await?;
        Some(Self { password: Some(password), ..self.clone() })
    }

    /// The login that sentinels get when they ask for one: their own, or else the master's.
    pub(crate) fn sentinel_login(&self, plain: RedisConnectionInfo) -> Option<RedisConnectionInfo> {
        let (user, password) = match &self.sentinel_password {
            Some(password) => (self.sentinel_user.as_deref(), password),
            None => (self.sentinel_user.as_deref().or(self.user()), self.password.as_ref()?),
        };
        let login = plain.set_password(password.expose());
        Some(match user {
            Some(user) => login.set_username(user),
            None => login,
        })
    }

    /// The connection settings of one server for the client crate.
    pub(crate) fn info(&self, addr: &ConnectionAddr) -> redis::RedisResult<ConnectionInfo> {
        let mut login = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            // `CLIENT SETINFO` would be one more right to ask for.
            .set_skip_set_lib_name()
            .set_db(self.db);
        if let Some(user) = self.user() {
            login = login.set_username(user);
        }
        if let Some(password) = self.password() {
            login = login.set_password(password);
        }
        let info = addr.clone().into_connection_info()?;
        Ok(info.set_redis_settings(login).set_tcp_settings(tcp()))
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::expose)
    }
}

async fn present(passwords: Option<&Passwords>) -> redis::RedisResult<Option<Secret>> {
    match passwords {
        Some(passwords) => passwords.current().await.map(Some).map_err(|error| no_password(&error)),
        None => Ok(None),
    }
}

/// The password for sentinels, in the address or in a file.
fn sentinel_passwords(url: &ServerUrl) -> Result<Option<Passwords>> {
    let [_, text, file] = SENTINEL_OPTIONS;
    match (url.option(text), url.option(file)) {
        (Some(_), Some(_)) => Err(bad(format!("the password is given twice: by {text} and by {file}"))),
        (Some(text), None) => Ok(Some(Passwords::fixed(Secret::new(text)))),
        (None, Some(path)) => Passwords::in_file(file, path).map(Some),
        (None, None) => Ok(None),
    }
}

/// It is tried again, as when the server cannot be reached.
fn no_password(error: &Error) -> redis::RedisError {
    let text = error
        .source()
        .map_or_else(|| error.message().to_owned(), |why| format!("{}: {why}", error.message()));
    redis::make_extension_error(NO_PASSWORD.to_owned(), Some(text))
}

/// Without these, a request waits for the acknowledgement of the one before, and a dead peer is noticed late.
pub(crate) fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn require_tls_feature(url: &ServerUrl, tls: bool) -> Result<()> {
    if tls && cfg!(not(feature = "tls")) {
        let text = format!("{}:// needs the feature \"tls\"", url.scheme());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// With TLS: the files, if they can be used.
fn tls_files(url: &ServerUrl, tls: bool) -> Result<Option<TlsFiles>> {
    let files = TlsFiles::of(url, TlsFiles::OPTIONS)?;
    if !tls && !files.is_empty() {
        return Err(bad(format!(
            "ca, cert and key make no sense with {}://, which is not TLS",
            url.scheme()
        )));
    }
    #[cfg(feature = "tls")]
    if tls {
        crate::words::tls::check(&files)?;
    }
    Ok(tls.then_some(files))
}

fn nodes(url: &ServerUrl, port: u16, tls: bool) -> Result<Vec<ConnectionAddr>> {
    let one = |host: Host| node(host.name().to_owned(), host.port().unwrap_or(port), tls);
    Ok(url.hosts()?.into_iter().map(one).collect())
}

fn node(host: String, port: u16, tls: bool) -> ConnectionAddr {
    if tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

fn db_option(url: &ServerUrl) -> Result<Option<i64>> {
    Ok(url.parsed::<u32>("db", "the number of a database")?.map(i64::from))
}

fn db_in_path(url: &ServerUrl, option: Option<i64>) -> Result<Option<i64>> {
    let path = url.path().trim_matches('/');
    if path.is_empty() {
        return Ok(option);
    }
    if option.is_some() {
        return Err(bad("the database is named twice, in the path and by db="));
    }
    let number: u32 = path
        .parse()
        .map_err(|_| bad(format!("the path of {url} is the number of a database, such as /0")))?;
    Ok(Some(number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Address> {
        Address::read(&url.parse().unwrap())
    }

    #[test]
    fn the_forms_of_an_address() {
        let address = read("redis://ann:s3cret@db/3").unwrap();
        assert!(matches!(&address.topology, Topology::Node(ConnectionAddr::Tcp(host, 6379)) if host == "db"));
        assert_eq!((address.user(), address.db), (Some("ann"), 3));
        assert!(!format!("{address:?}").contains("s3cret"));
        let address =
            read("redis+sentinel://ann:s3cret@a/m?sentinel_user=sue&sentinel_password=t0psecret").unwrap();
        assert!(!format!("{address:?}").contains("secret"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let url = format!("redis+sentinel://a/m?sentinel_password_file={}", file.path().display());
        let error = read(&url).unwrap_err();
        assert!(error.to_string().contains("sentinel_password_file: /"), "{error}");
        std::fs::write(&file, "t0psecret\n").unwrap();
        let address = read(&url).unwrap();
        assert!(address.sentinel_passwords.is_some() && !format!("{address:?}").contains("secret"));
        let address = read("redis+unix:///run/redis.sock?db=2").unwrap();
        assert!(
            matches!(&address.topology, Topology::Node(ConnectionAddr::Unix(path)) if path.ends_with("redis.sock"))
        );
        assert_eq!(address.db, 2);
        let address = read("redis+sentinel://a,b:1/mymaster").unwrap();
        assert!(matches!(&address.topology, Topology::Sentinel { sentinels, master }
            if sentinels.len() == 2 && master == "mymaster"));
        assert!(read("redis+cluster://a,b,c").unwrap().is_cluster());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (url, part) in [
            ("redis://a,b", "redlock"),
            ("redis://a/x", "number"),
            ("redis://a/1?db=2", "twice"),
            ("redis+unix://", "socket"),
            ("redis+sentinel://a", "master"),
            ("redis+cluster://a/1", "numbered"),
            ("redis://a?sentinel_password=x", "redis+sentinel"),
            ("redis://a?sentinel_password_file=x", "redis+sentinel"),
            ("redis+sentinel://a/m?sentinel_password=x&sentinel_password_file=x", "twice"),
            ("redis://", "no host"),
            ("redis://a?ca=file.pem", if cfg!(feature = "tls") { "not TLS" } else { "feature" }),
        ] {
            let error = read(url).unwrap_err();
            assert!(!error.is_retryable(), "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
