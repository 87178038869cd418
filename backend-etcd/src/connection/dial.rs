//! How a channel dials: once.
//!
//! A channel of tonic whose connection has ended dials again by itself, whenever something is sent. Such a
//! connection would be counted by nobody, and would be used without a login of its own and without the
//! question whether its server belongs to a majority. So it fails instead, and a new channel is opened.

use std::error::Error;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use hyper_util::client::legacy::connect::HttpConnector;
use tonic::codegen::http::Uri;
use tower_service::Service;

use crate::error::Ended;

/// When the kernel asks for the first time whether the peer of an idle connection is still there. Routers and
/// firewalls that forget idle connections after some minutes keep it then.
const IDLE: Duration = Duration::from_mins(1);

/// How often it asks again without an answer, and how long it waits for each.
const AGAIN: (u32, Duration) = (3, Duration::from_secs(10));

type BoxError = Box<dyn Error + Send + Sync>;
type Stream = <HttpConnector as Service<Uri>>::Response;
type Dialing = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

/// Connects the first time: to this address of the server's name.
pub(super) struct DialOnce(Option<HttpConnector>, SocketAddr);

impl DialOnce {
    pub(super) fn new(patience: Duration, place: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        // TLS, where it is used, is above this.
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // A request on a connection that the other side has forgotten has no answer, and is in doubt.
        connector.set_keepalive(Some(IDLE));
        connector.set_keepalive_retries(Some(AGAIN.0));
        connector.set_keepalive_interval(Some(AGAIN.1));
        connector.set_connect_timeout(Some(patience));
        Self(Some(connector), place)
    }
}

impl Service<Uri> for DialOnce {
    type Response = Stream;
    type Error = BoxError;
    type Future = Either<Dialing, std::future::Ready<Result<Stream, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.0 {
            Some(connector) => connector.poll_ready(context).map_err(BoxError::from),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        match self.0.take() {
            Some(mut connector) => {
                // TLS verifies the name all the same.
                let dialing = Uri::try_from(format!("http://{}", self.1)).map(|uri| connector.call(uri));
                Either::Left(Box::pin(async move { dialing?.await.map_err(BoxError::from) }))
            }
            None => Either::Right(ready(Err(Ended.into()))),
        }
    }
}
