//! The part of a lock that belongs to one runtime: a connection, its requests, its waiters and their
//! notifications.

pub(crate) mod asker;
pub(crate) mod batch;
pub(crate) mod idle;
pub(crate) mod notifier;
pub(crate) mod service;
mod silent;
mod sweeper;

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::Reply;
use lockwell_core::{Claim, Grant, Moment, Result};

use crate::client::asker::Asker;
use crate::client::notifier::Notifier;
use crate::client::service::{Answered, about_file};
use crate::dialect::Dialect;
use crate::dialect::requests::{Answer, Request, Route, other_answer};
use crate::words::{Extension, TakeRequest, TryAcquire};

/// The connection, requests and waiters of one runtime. Every statement is idempotent for its owner, so it
/// can be repeated after a lost reply.
pub(crate) struct Client<D: Dialect> {
    asker: Arc<Asker<D>>,
    pub(crate) notifier: Notifier<D>,
    /// The record of each grant, for `verify_in`.
    pub(crate) record: Arc<dyn Any + Send + Sync>,
}

impl<D: Dialect> Deref for Client<D> {
    type Target = Asker<D>;

    fn deref(&self) -> &Asker<D> {
        &self.asker
    }
}

impl<D: Dialect> Client<D> {
    pub(crate) fn new(dialect: &Arc<D>, timeout: Duration, record: &Arc<dyn Any + Send + Sync>) -> Self {
        let asker = Arc::new(Asker::new(dialect, timeout));
        Self { notifier: Notifier::new(Arc::clone(&asker)), asker, record: Arc::clone(record) }
    }

    /// Asks for a lock, or for a place in its queue.
    pub(crate) async fn take(&self, route: Route, request: Request<D>) -> Result<Answered<TryAcquire>> {
        took(self.ask(route, request).await?)
    }

    /// Sends a request. Nobody waits for its answer.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn send(&self, route: Route, request: Request<D>) {
        self.batcher.send(route, Arc::new(request), self.limit);
    }

    /// Takes those locks that are free, in one statement.
    pub(crate) async fn take_each(
        &self,
        requests: impl Iterator<Item = TakeRequest>,
    ) -> Vec<Result<Answered<TryAcquire>>> {
        let requests = requests.map(|request| (Route::Main, Arc::new(Request::Take(request))));
        let answers = join_all(self.batcher.call_each(requests, self.limit)).await;
        let reply = |reply: Result<Reply<_>>| took(reply.map_err(about_file::<D>)?.into_answer());
        answers.into_iter().map(reply).collect()
    }

    /// Extends leases.
    pub(crate) async fn renew(&self, grants: &[Grant], until: Moment) -> Result<Answered<Vec<Extension>>> {
        let limit = until.remaining().min(self.limit);
        match self.ask_within(limit, Route::Main, Request::Renew(grants.to_vec())).await?.0 {
            (Answer::Renewed(renewed), sent) => Ok((renewed, sent)),
            _ => Err(other_answer()),
        }
    }

    /// Looks at the connection for the usual requests, if it is idle.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&D::Conn) -> T) -> Option<T> {
        self.batcher.service().look(Route::Main, look)
    }

    /// Leaves the queue. Returns whether there was a place.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let freed = self.free(Route::Main, Request::Leave(claim.clone())).await?;
        let left = freed.released || freed.in_doubt;
        freed.notify_next(&self.waiters);
        Ok(left)
    }

    pub(crate) fn notify(&self, tickets: Vec<i64>) {
        for ticket in tickets {
            self.waiters.notify(ticket);
        }
    }

    /// Closes the connections that are idle.
    pub(crate) async fn close(&self) {
        self.notifier.close().await;
        for route in [Route::Main, Route::BlockedRows, Route::Purge] {
            self.batcher.service().shut(route).await;
        }
    }

    pub(crate) fn close_on(&self, route: Route) {
        self.batcher.service().close(route);
    }
}

fn took((answer, sent): Answered<Answer>) -> Result<Answered<TryAcquire>> {
    match answer {
        Answer::Took(took) => Ok((took, sent)),
        _ => Err(other_answer()),
    }
}
