//! The connection to the lock server.

use std::fs;
use std::path::{Path, absolute};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell::backend::{DistributedLock, ServerUrl, lock};
use lockwell::{Error, ErrorKind, LockConfig, Locks, Operation, Registry};

use crate::args::Server;
use crate::exit::Failure;
use crate::patience::{Patience, may_pass};
use crate::say::Voice;
use crate::{nested, trace};

/// The backends that create tables, nodes or keys when they connect, unless the address forbids it.
const CREATING: [&str; 8] =
    ["sqlite", "postgres", "postgresql", "mysql", "mariadb", "redlock", "redlocks", "zk"];

/// All connections of the process.
static CONNECTED: Mutex<Vec<Arc<dyn DistributedLock>>> = Mutex::new(Vec::new());

/// How long the end of the process waits for the end of its connections.
const FAREWELL: Duration = Duration::from_secs(1);

/// Ends all connections in an orderly way, since servers log those that just break off. It is called last.
pub(crate) async fn close_all() {
    let connected = std::mem::take(&mut *lock(&CONNECTED));
    let closing = async {
        for backend in connected {
            backend.close().await;
        }
    };
    // What does not end in time breaks off with the process.
    drop(tokio::time::timeout(FAREWELL, closing).await);
}

/// The purpose of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To take locks. What is missing at the server is made, if the address does not forbid it.
    Locking,
    /// To read, and to change what is there. Nothing is made.
    Looking,
    /// To read only: the user may have no other rights.
    Reading,
}

/// The lock server that the command line or the environment names.
#[derive(Clone)]
pub(crate) struct Address {
    /// The address as it was given, for --pass-url.
    pub(crate) given: String,
    pub(crate) url: ServerUrl,
    /// Whether it was given as the path of a file from the working directory.
    is_relative: bool,
    /// The configuration beside the address.
    pub(crate) config: LockConfig,
}

/// A lock server that was reached.
pub(crate) struct Connection {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) config: LockConfig,
}

impl Connection {
    pub(crate) fn locks(&self) -> Result<Locks, Failure> {
        let locks = Locks::with_config(Arc::clone(&self.backend), &self.config)?;
        Ok(locks.traceparent_from(|| Some(trace::own().to_owned())))
    }
}

impl Address {
    pub(crate) fn of(server: &Server) -> Result<Self, Failure> {
        let config = read(server)?;
        let given = config.url.trim_ascii().to_owned();
        let (url, config) = config.resolve()?;
        if url.scheme() == "memory" {
            return Err(Failure::usage(
                "memory:// excludes nobody outside of this process: name a server or a file, as in \
                 sqlite:///var/lib/app/locks.db",
            ));
        }
        let location = url.location();
        let is_relative =
            url.scheme() == "sqlite" && !location.is_empty() && Path::new(&location).is_relative();
        let whole = absolute(&location).ok().and_then(|path| path.into_os_string().into_string().ok());
        let url = match whole {
            Some(whole) if is_relative => url.with_location(&whole),
            _ => url,
        };
        Ok(Self { given, url, is_relative, config })
    }

    /// Connects. A server that is away is tried again until the wait ends.
    pub(crate) async fn connect(
        mut self,
        registry: &Registry,
        purpose: Purpose,
        patience: &mut Patience,
    ) -> Result<Connection, Failure> {
        self.check_file(purpose, patience.voice())?;
        patience.or(self.config.wait);
        let scheme = self.url.scheme();
        let checks_rights = scheme.starts_with("redis") && purpose == Purpose::Reading;
        if purpose != Purpose::Locking && (CREATING.contains(&scheme) || checks_rights) {
            self.url = self.url.with_option("create", "false");
        }
        loop {
            // The backends wait for a server that is just restarting. The command does not, unless it was
            // told to, and then it says so.
            match registry.try_connect_backend(&self.url, patience.limit(self.url.timeout()?)).await {
                Ok(backend) => {
                    lock(&CONNECTED).push(Arc::clone(&backend));
                    return Ok(Connection { backend, config: self.config });
                }
                Err(error) if may_pass(&error) => patience.again(error.into()).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Checks the file of an SQLite address.
    fn check_file(&self, purpose: Purpose, voice: Voice) -> Result<(), Failure> {
        let location = self.url.location();
        let path = Path::new(&location);
        // What the backend refuses, it explains itself.
        if self.url.scheme() != "sqlite" || location.is_empty() || location.ends_with('/') {
            return Ok(());
        }
        if self.is_relative {
            voice.warn(&format!(
                "the lock file is {}; from another working directory it is another file, with other locks: write \
                 sqlite://{0}",
                path.display()
            ));
        }
        if purpose != Purpose::Locking && !path.exists() {
            let text = format!(
                "there is no lock file {}: nothing has been locked there yet, or the path is mistyped",
                path.display()
            );
            return Err(unreachable(text));
        }
        Ok(())
    }
}

fn unreachable(why: String) -> Failure {
    Error::new(ErrorKind::Unreachable, why).during(Operation::Connect).into()
}

/// The configuration that the command line or the environment gives.
fn read(server: &Server) -> Result<LockConfig, Failure> {
    if let Some(url) = server.url.as_deref().filter(|url| !url.trim_ascii().is_empty()) {
        return Ok(LockConfig::new(url));
    }
    if let Some(file) = &server.url_file {
        let text = text_of(file)?;
        let url = text.trim_ascii();
        if url.is_empty() || url.contains(['\n', '\r']) {
            return Err(Failure::usage(format!("{}: one line with an address is expected", file.display())));
        }
        return Ok(LockConfig::new(url));
    }
    if let Some(file) = &server.config {
        return Ok(LockConfig::from_toml(&text_of(file)?)?);
    }
    if std::env::var_os(LockConfig::ENV).is_none_or(|url| url.as_encoded_bytes().trim_ascii().is_empty()) {
        let removed = if std::env::var_os(nested::HELD).is_some() {
            "; the lockwell around this command keeps its address to itself, unless it has --pass-url"
        } else {
            ""
        };
        return Err(Failure::usage(format!(
            "no lock server is named: give --url, --url-file or --config, or set {} to an address such as \
             sqlite:///var/lib/app/locks.db{removed}",
            LockConfig::ENV
        )));
    }
    Ok(LockConfig::from_env()?)
}

fn text_of(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}
