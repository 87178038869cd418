//! One connection, and the requests on it.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Auth, AuthError, Client, ConnectErrorKind, ConnectOptions, HeaderMap, Request, Subscriber};
use lockwell::backend::{Error, ErrorKind, Failure, ServerUrl};
use serde_json::Value;

/// A request without an answer for this time is repeated on a new connection.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// A client, and whether it is known to have replaced another one.
#[derive(Clone)]
pub(crate) struct Connection(Client, Arc<AtomicBool>);

impl Connection {
    pub(crate) async fn open(url: &ServerUrl) -> Result<Self, Failure> {
        let mut auth = Auth::new();
        auth.username = url.user().map(str::to_owned);
        if let Some(passwords) = url.passwords() {
            auth.password = Some(passwords.current().await.map_err(Failure::Refused)?.expose().to_owned());
        }
        // By itself the client would connect again and send what it has kept, which could be late. If it cannot
        // log in, it ends instead, and whoever waits for an answer learns that at once.
        let is_open = Arc::new(AtomicBool::new(false));
        let was_open = Arc::clone(&is_open);
        let log_in = move |_| {
            let ended = was_open.load(Ordering::Relaxed);
            ready(if ended { Err(AuthError::new("the connection has ended")) } else { Ok(auth.clone()) })
        };
        let servers = url.servers(4222);
        let servers: Vec<_> = servers.split(',').collect();
        let options = ConnectOptions::with_auth_callback(log_in).max_reconnects(servers.len());
        // A host that does not answer leaves the others their time.
        let patience = if servers.len() > 1 { SILENCE / 4 } else { SILENCE };
        let options = options.ignore_discovered_servers().connection_timeout(patience).ping_interval(SILENCE);
        let client = options.connect(&servers[..]).await.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation => refused(ErrorKind::Refused, "NATS refuses the user"),
            _ => Failure::Doubtful(unreachable("NATS is not there").with_source(error)),
        })?;
        is_open.store(true, Ordering::Relaxed);
        if client.is_server_compatible(2, 11, 0) {
            return Ok(Self(client, Arc::default()));
        }
        let version = client.server_info().version;
        Err(refused(ErrorKind::Unsupported, format!("NATS is {version}: update it to 2.11 or later")))
    }

    /// Whether the first request is repeated on this connection.
    pub(crate) fn is_replacement(&self) -> bool {
        !self.1.swap(true, Ordering::Relaxed)
    }

    /// What JetStream answers. It may be an `error`.
    pub(crate) async fn request(
        &self,
        subject: &str,
        headers: HeaderMap,
        body: String,
    ) -> Result<Value, Failure> {
        let request = Request::new().headers(headers).payload(body.into()).timeout(None);
        let reply = self.0.send_request(subject.to_owned(), request).await;
        let reply = reply.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => {
                Failure::Busy(unreachable("JetStream is starting, or not enabled"))
            }
            _ => Failure::Doubtful(unreachable("the connection has ended").with_source(error)),
        })?;
        let answer: Value = serde_json::from_slice(&reply.payload)
            .map_err(|_| refused(ErrorKind::Internal, "an answer of another kind"))?;
        // There is no leader now, for instance.
        if answer["error"]["code"] == 503 {
            return Err(Failure::Busy(unreachable("JetStream is not ready").adding(&answer["error"])));
        }
        Ok(answer)
    }

    /// The messages end with the connection.
    pub(crate) async fn subscribe(&self, subject: &str) -> Result<Subscriber, Failure> {
        let ended = |error| Failure::NotSent(unreachable("the connection has ended").with_source(error));
        self.0.subscribe(subject.to_owned()).await.map_err(ended)
    }
}

fn refused(kind: ErrorKind, text: impl Into<String>) -> Failure {
    Failure::Refused(Error::new(kind, text))
}

fn unreachable(text: &str) -> Error {
    Error::new(ErrorKind::Unreachable, text)
}
