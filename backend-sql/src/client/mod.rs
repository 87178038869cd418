//! The part of a lock that belongs to one runtime: a connection, its requests, its waiters and their
//! notifications.

pub(crate) mod batch;
pub(crate) mod idle;
pub(crate) mod kinds;
pub(crate) mod notifier;
pub(crate) mod places;
pub(crate) mod requests;
pub(crate) mod service;
mod silent;
mod sweeper;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::{Batcher, Waiters};
use lockwell_core::{Claim, Grant, Moment, Result};

use crate::client::kinds::{Leave, Renew};
use crate::client::notifier::Notifier;
use crate::client::places::HandOverPlaces;
use crate::client::requests::{AnyRequest, Done, JobContext, Kind, Route};
use crate::client::service::{Answered, Statements, answer, ask, job};
use crate::dialect::Dialect;
use crate::words::{Extension, Freed, TakeRequest, TryAcquire};

/// The connection, requests and waiters of one runtime. Requests that arrive together share a statement.
/// Every statement is idempotent for its owner, so it can be repeated after a lost reply.
pub(crate) struct Client<D: Dialect> {
    pub(crate) dialect: Arc<D>,
    batcher: Batcher<Statements<D>>,
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(crate) places: Arc<HandOverPlaces>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) notifier: Notifier<D>,
    timeout: Duration,
    /// The record of each grant, for `verify_in`.
    pub(crate) record: Arc<dyn Any + Send + Sync>,
}

impl<D: Dialect> Client<D> {
    pub(crate) fn new(dialect: &Arc<D>, timeout: Duration, record: &Arc<dyn Any + Send + Sync>) -> Self {
        let waiters = Waiters::new();
        let statements = Statements::new(Arc::clone(dialect), Arc::clone(&waiters));
        let batcher = Batcher::new(statements, dialect.bounds());
        let places = Arc::<HandOverPlaces>::default();
        let notifier = Notifier::new(
            Arc::clone(dialect),
            Arc::clone(&waiters),
            Arc::clone(&places),
            batcher.clone(),
            timeout,
        );
        let (dialect, record) = (Arc::clone(dialect), Arc::clone(record));
        Self { dialect, batcher, places, waiters, notifier, timeout, record }
    }

    /// Sends a request, and waits for its answer.
    pub(crate) async fn ask<K: Kind<D>>(&self, route: Route, request: K) -> Result<Answered<K::Answer>> {
        Ok(ask(&self.batcher, route, self.timeout, request).await?.0)
    }

    /// Sends a request. Nobody waits for its answer.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn send(&self, route: Route, request: impl Kind<D>) {
        self.batcher.send(route, Arc::new(request), self.timeout);
    }

    /// Takes those locks that are free, in one statement.
    pub(crate) async fn take_each(
        &self,
        requests: impl Iterator<Item = TakeRequest>,
    ) -> Vec<Result<Answered<TryAcquire>>> {
        let requests = requests.map(|request| (Route::Main, Arc::new(request) as AnyRequest<D>));
        let calls = self.batcher.call_each(requests, self.timeout);
        let answers = join_all(calls.into_iter().map(answer::<D, TakeRequest>)).await;
        answers.into_iter().map(|answered| Ok(answered?.0)).collect()
    }

    /// Frees a lock, or leaves a group or the queue.
    pub(crate) async fn free(&self, route: Route, request: impl Kind<D, Answer = Freed>) -> Result<Freed> {
        let ((freed, _), in_doubt) = ask(&self.batcher, route, self.timeout, request).await?;
        // The first try may have freed the lock, and another may have taken it since.
        Ok(Freed { in_doubt: in_doubt || freed.in_doubt, ..freed })
    }

    /// Extends leases.
    pub(crate) async fn renew(&self, grants: &[Grant], until: Moment) -> Result<Answered<Vec<Extension>>> {
        let limit = until.remaining().min(self.timeout);
        Ok(ask(&self.batcher, Route::Main, limit, Renew(grants.to_vec())).await?.0)
    }

    /// Runs some work on the connection. The work is repeated until it has an answer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        route: Route,
        work: impl for<'c> Fn(JobContext<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
    ) -> Result<T> {
        job(&self.batcher, route, self.timeout, work).await
    }

    /// Looks at the connection for the usual requests, if it is idle.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&D::Conn) -> T) -> Option<T> {
        self.batcher.service().look(Route::Main, look)
    }

    /// Leaves the queue. Returns whether there was a place.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let freed = self.free(Route::Main, Leave(claim.clone())).await?;
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
