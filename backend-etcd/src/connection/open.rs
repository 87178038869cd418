//! How a connection is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockwell_core::backend::{Failure, PerRuntime, note_reconnection};
use lockwell_core::{Error, ErrorKind, Passwords, Result, Secret};
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;

use super::Connection;
use super::dial::DialOnce;
use super::line::Line;
use crate::BACKEND;
use crate::error::explain;
use crate::messages::{Authenticate, Token, Txn, one};
use crate::options::EtcdOptions;

/// If a server has not answered by then, the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(300);

/// How long one server may take to connect.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes connections to the servers of an address.
pub(crate) struct Opener {
    options: Arc<EtcdOptions>,
    /// With which server to begin.
    next: AtomicUsize,
    /// Whether a runtime has had a connection, which the next one replaces.
    connected: PerRuntime<AtomicBool>,
}

impl Opener {
    /// Refuses addresses and files that cannot be used.
    pub(crate) fn new(options: &Arc<EtcdOptions>) -> Result<Self> {
        options.endpoints.iter().try_for_each(|uri| endpoint(uri, options).map(drop))?;
        Ok(Self {
            options: Arc::clone(options),
            next: AtomicUsize::new(rand::random_range(0..1024)),
            connected: PerRuntime::new(),
        })
    }

    /// A connection to a server that belongs to a majority. It begins with another server each time, and does
    /// not wait long for one before it asks the next one, too.
    pub(crate) async fn open(&self) -> Result<Connection, Failure> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut opening, count) = (FuturesUnordered::new(), self.options.endpoints.len());
        let mut left = (0..count).map(|at| &self.options.endpoints[(first + at) % count]);
        let mut failure = None;
        loop {
            if let Some(uri) = left.next() {
                opening.push(self.open_at(uri));
            } else if opening.is_empty() {
                let nobody =
                    || Failure::Doubtful(Error::new(ErrorKind::Internal, "an address without servers"));
                return Err(failure.unwrap_or_else(nobody));
            }
            let pause = if left.len() == 0 { PATIENCE } else { STAGGER };
            match tokio::time::timeout(pause, opening.next()).await {
                Ok(Some(Ok(connection))) => {
                    let before = self.connected.get(AtomicBool::default).map_err(Failure::Refused)?;
                    if before.swap(true, Ordering::Relaxed) {
                        note_reconnection(BACKEND);
                        tracing::debug!(servers = self.options.servers, "a new connection");
                    }
                    return Ok(connection);
                }
                // What one server refuses, all do.
                Ok(Some(Err(Failure::Refused(error)))) => return Err(Failure::Refused(error)),
                Ok(Some(Err(other))) => failure = Some(other),
                Ok(None) | Err(_) => (),
            }
        }
    }

    async fn open_at(&self, uri: &str) -> Result<Connection, Failure> {
        let opening = async {
            let endpoint = self.endpoint(uri).await?;
            let unreachable = |error: tonic::transport::Error| {
                let text = "etcd cannot be reached";
                Failure::Doubtful(Error::new(ErrorKind::Unreachable, text).with_source(error))
            };
            let channel =
                endpoint.connect_with_connector(DialOnce::new(PATIENCE)).await.map_err(unreachable)?;
            let mut line = Line { channel, token: None };
            if let Some((name, passwords)) = &self.options.login {
                line.token = Some(log_in(&line, name, passwords).await?);
            }
            let connection = Connection::new(line.channel, line.token);
            // A read that needs a majority. A server that is cut off from it does not answer.
            let key = format!("{}/", self.options.prefix);
            connection.txn(Txn::reads([one(&key)])).await.map_err(|status| explain(&status))?;
            Ok(connection)
        };
        match tokio::time::timeout(PATIENCE, opening).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Doubtful(Error::new(
                ErrorKind::Unreachable,
                "etcd does not answer, or belongs to no majority",
            ))),
        }
    }

    /// Reads the files for each connection, so that renewed certificates are used. A file that cannot be used
    /// at this moment may just be written, so it is read again.
    async fn endpoint(&self, uri: &str) -> Result<Endpoint, Failure> {
        if self.options.tls.is_none() {
            return endpoint(uri, &self.options).map_err(Failure::Refused);
        }
        let (uri, options) = (uri.to_owned(), Arc::clone(&self.options));
        // Reading files can block.
        let reading = tokio::task::spawn_blocking(move || endpoint(&uri, &options));
        let failed = |error: tokio::task::JoinError| {
            let text = "reading the files for TLS has failed";
            Failure::Doubtful(Error::new(ErrorKind::Internal, text).with_source(error))
        };
        let unusable = |error: Error| {
            let text = "etcd cannot be reached without the files for TLS";
            Failure::Doubtful(Error::new(ErrorKind::Unreachable, text).with_source(error))
        };
        reading.await.map_err(failed)?.map_err(unusable)
    }
}

/// With the present password. If the server refuses it, and there is another by now, with that one.
async fn log_in(line: &Line, name: &str, passwords: &Passwords) -> Result<MetadataValue<Ascii>, Failure> {
    let with = |password: &Secret| {
        let login = Authenticate { name: name.to_owned(), password: password.expose().to_owned() };
        line.ask("/etcdserverpb.Auth/Authenticate", login)
    };
    let password = passwords.current().await.map_err(Failure::Doubtful)?;
    let mut answer: Result<Token, Status> = with(&password).await;
    if let Err(status) = &answer
        && matches!(explain(status), Failure::Refused(_))
        && let Some(other) = passwords.other_than(&password).await
    {
        answer = with(&other).await;
    }
    let token = answer.map_err(|status| explain(&status))?.token;
    let no_text = |_| Failure::Refused(Error::new(ErrorKind::Internal, "the server's token is no text"));
    let mut token: MetadataValue<Ascii> = token.parse().map_err(no_text)?;
    // Whoever prints the metadata of a request does not print it.
    token.set_sensitive(true);
    Ok(token)
}

fn endpoint(uri: &str, options: &EtcdOptions) -> Result<Endpoint> {
    let bad = |error: tonic::transport::Error| {
        Error::new(ErrorKind::InvalidInput, format!("{uri} is no address of a server")).with_source(error)
    };
    let endpoint = Endpoint::from_shared(uri.to_owned()).map_err(bad)?.connect_timeout(PATIENCE);
    let Some(files) = &options.tls else { return Ok(endpoint) };
    tls::encrypted(endpoint, files).map_err(|error| error.on_backend(BACKEND))
}

#[cfg(feature = "tls")]
mod tls {
    use lockwell_core::Result;
    use lockwell_core::tls::{TlsFiles, choose_provider, read_certificates, read_key, unusable};
    use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

    pub(super) fn encrypted(endpoint: Endpoint, files: &TlsFiles) -> Result<Endpoint> {
        choose_provider();
        let mut config = ClientTlsConfig::new();
        if let Some(ca) = files.ca() {
            config = config.ca_certificate(Certificate::from_pem(read_certificates(ca)?));
        }
        if let Some((cert, key)) = files.identity() {
            config = config.identity(Identity::from_pem(read_certificates(cert)?, read_key(key)?));
        }
        endpoint.tls_config(config).map_err(|error| unusable("a file of the address", &error))
    }
}

#[cfg(not(feature = "tls"))]
mod tls {
    use lockwell_core::tls::TlsFiles;
    use lockwell_core::{Error, ErrorKind, Result};
    use tonic::transport::Endpoint;

    pub(super) fn encrypted(_: Endpoint, _: &TlsFiles) -> Result<Endpoint> {
        Err(Error::new(ErrorKind::Unsupported, "etcds:// needs the feature \"tls\""))
    }
}
