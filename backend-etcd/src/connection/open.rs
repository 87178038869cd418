//! How a connection is made.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockwell_core::backend::{Failure, PerRuntime, at_each_address, note_reconnection, run_blocking};
use lockwell_core::{Error, ErrorKind, Result};
use tonic::Status;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::Connection;
use super::dial::DialOnce;
use super::line::{Line, Token};
use super::login::Logins;
use crate::BACKEND;
use crate::error::{explain, is_expired, no_channel};
use crate::messages::{Txn, one};
use crate::options::EtcdOptions;

/// If a server has not answered by then, the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(300);

/// How long one server may take to connect, and to answer a read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes connections to the servers of an address.
pub(crate) struct Opener {
    options: Arc<EtcdOptions>,
    /// With which server to begin.
    next: AtomicUsize,
    /// Whether a runtime has had a connection, which the next one replaces.
    connected: PerRuntime<AtomicBool>,
    logins: Option<Arc<Logins>>,
}

impl Opener {
    /// Refuses addresses and files that cannot be used.
    pub(crate) fn new(options: &Arc<EtcdOptions>) -> Result<Self> {
        options.endpoints.iter().try_for_each(|uri| endpoint(uri, options).map(drop))?;
        Ok(Self {
            options: Arc::clone(options),
            next: AtomicUsize::new(rand::random_range(0..1024)),
            connected: PerRuntime::new(),
            logins: Logins::of(options),
        })
    }

    /// A connection to a server that belongs to a majority. It begins with another server each time, and does
    /// not wait long for one before it asks the next one, too.
    pub(crate) async fn open(&self) -> Result<Connection, Failure> {
        self.logins.as_ref().map_or(Ok(()), |logins| logins.may_go_on())?;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut opening, count) = (FuturesUnordered::new(), self.options.endpoints.len());
        let mut left = (0..count).map(|at| &self.options.endpoints[(first + at) % count]);
        let (mut failure, mut may_pass) = (None, false);
        loop {
            if let Some(uri) = left.next() {
                opening.push(self.open_by(uri));
            } else if opening.is_empty() {
                return Err(match failure {
                    // No server has a certificate that is trusted.
                    Some(Failure::Doubtful(error)) if !may_pass => Failure::Refused(error),
                    Some(failure) => failure,
                    None => Failure::Refused(Error::new(ErrorKind::Internal, "an address without servers")),
                });
            }
            let pause = if left.len() == 0 { PATIENCE } else { STAGGER };
            match tokio::time::timeout(pause, opening.next()).await {
                Ok(Some(Ok(connection))) => {
                    let before = self.connected.get(AtomicBool::default).map_err(Failure::Refused)?;
                    if before.swap(true, Ordering::Relaxed) {
                        note_reconnection(BACKEND);
                        tracing::debug!(lockwell.servers = self.options.servers, "a new connection");
                    }
                    return Ok(connection);
                }
                // What one server refuses, all do.
                Ok(Some(Err(Failure::Refused(error)))) => return Err(Failure::Refused(error)),
                Ok(Some(Err(other))) => {
                    may_pass |= !matches!(&other, Failure::Doubtful(error) if !error.is_retryable());
                    failure = Some(other);
                }
                Ok(None) | Err(_) => (),
            }
        }
    }

    async fn open_by(&self, uri: &str) -> Result<Connection, Failure> {
        let parts = uri.parse::<Uri>().ok();
        let (host, port) =
            parts.as_ref().and_then(|uri| Some((uri.host()?, uri.port_u16()?))).unwrap_or_default();
        let opened = at_each_address(host, port, |place| async move {
            match self.open_at(uri, place).await {
                Err(Failure::Refused(error)) => Ok(Err(Failure::Refused(error))),
                opened => opened.map(Ok),
            }
        });
        opened.await?
    }

    async fn open_at(&self, uri: &str, place: SocketAddr) -> Result<Connection, Failure> {
        let connecting = async {
            let endpoint = self.endpoint(uri).await?;
            endpoint.connect_with_connector(DialOnce::new(PATIENCE, place)).await.map_err(no_channel)
        };
        let late = |_| Err(Failure::Doubtful(Error::new(ErrorKind::Unreachable, "etcd does not answer")));
        let channel = tokio::time::timeout(PATIENCE, connecting).await.unwrap_or_else(late)?;
        let Some(logins) = &self.logins else {
            return self.checked(channel, None).await.map_err(|status| explain(&status));
        };
        // Without a token, too: only a server that answers, and be it by a refusal, is asked for a login.
        let token = logins.token();
        match self.checked(channel.clone(), token.clone()).await {
            Ok(connection) if token.is_some() => return Ok(connection),
            Err(status) if !is_expired(&status) => match explain(&status) {
                Failure::Refused(_) if token.is_none() => (),
                failure => return Err(failure),
            },
            Ok(_) | Err(_) => (),
        }
        let line = Line { channel: channel.clone(), token: None };
        let token = logins.log_in(&line, token.as_ref()).await?;
        self.checked(channel, Some(token)).await.map_err(|status| explain(&status))
    }

    /// A connection whose server belongs to a majority: one that is cut off from it does not answer this read.
    async fn checked(&self, channel: Channel, token: Option<Token>) -> Result<Connection, Status> {
        let connection = Connection::new(channel, token);
        let read = connection.txn(Txn::reads([one(&format!("{}/", self.options.prefix))]));
        let late = |_| Err(Status::unavailable("etcd does not answer, or belongs to no majority"));
        tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(late)?;
        Ok(connection)
    }

    /// Reads the files for each connection, so that renewed certificates are used. A file that cannot be used
    /// at this moment may just be written, so it is read again.
    async fn endpoint(&self, uri: &str) -> Result<Endpoint, Failure> {
        if self.options.tls.is_none() {
            return endpoint(uri, &self.options).map_err(Failure::Refused);
        }
        let (uri, options) = (uri.to_owned(), Arc::clone(&self.options));
        // Reading files can block.
        let reading = run_blocking("lockwell-tls", move || endpoint(&uri, &options));
        let unusable = |error: Error| {
            let text = "etcd cannot be reached without the files for TLS";
            Failure::Doubtful(Error::new(ErrorKind::Unreachable, text).with_source(error))
        };
        reading.await.map_err(Failure::Doubtful)?.map_err(unusable)
    }
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
