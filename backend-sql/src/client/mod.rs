//! The part of a lock that belongs to one runtime: a connection, its requests, its waiters and their
//! notifications.

pub(crate) mod batch;
pub(crate) mod idle;
mod notifier;
pub(crate) mod places;
pub(crate) mod requests;
mod service;
mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::{Batcher, Call, PushedGrant, Reply, Waiters};
use lockwell_core::{Claim, Grant, Moment, Result};

use crate::client::notifier::Notifier;
use crate::client::places::{HandOverPlaces, PolledQueue};
use crate::client::requests::{Done, JobContext, Request, RequestReply, Route, unexpected};
use crate::client::service::{Statements, job};
use crate::dialect::Dialect;
use crate::ids::AsUuid;
use crate::words::{Entered, Extension, Freed, QueuedClaim, TakeRequest, TryAcquire};

/// The connection, requests and waiters of one runtime. Requests that arrive together share a statement.
/// Every statement is idempotent for its owner, so it can be repeated after a lost reply.
pub(crate) struct Client<D: Dialect> {
    pub(crate) dialect: Arc<D>,
    batcher: Batcher<Statements<D>>,
    pub(crate) places: Arc<HandOverPlaces>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) notifier: Notifier<D>,
    timeout: Duration,
}

impl<D: Dialect> Client<D> {
    pub(crate) fn new(dialect: &Arc<D>, timeout: Duration) -> Self {
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
        Self { dialect: Arc::clone(dialect), batcher, places, waiters, notifier, timeout }
    }

    fn call(&self, route: Route, request: Request<D>) -> Call<Statements<D>> {
        self.batcher.call(route, request, self.timeout)
    }

    /// Takes a lock if it is free, and says when the statement was sent.
    pub(crate) async fn take(&self, request: TakeRequest) -> Result<(TryAcquire, Moment)> {
        took(self.call(Route::Main, Request::Take(request)).await?)
    }

    /// Takes those locks that are free, in one statement, and says for each when it was sent.
    pub(crate) async fn take_each(
        &self,
        requests: impl Iterator<Item = TakeRequest>,
    ) -> Vec<Result<(TryAcquire, Moment)>> {
        let requests = requests.map(|request| (Route::Main, Request::Take(request)));
        let calls = self.batcher.call_each(requests, self.timeout);
        join_all(calls).await.into_iter().map(|reply| took(reply?)).collect()
    }

    /// Takes a lock if it is free, or a place in its queue.
    pub(crate) async fn claim(&self, route: Route, entry: QueuedClaim) -> Result<(TryAcquire, Moment)> {
        took(self.call(route, Request::Claim(entry)).await?)
    }

    /// Asks whose turn it is, and gives a heartbeat. A poll that another waiter has sent since this time
    /// serves as well.
    pub(crate) async fn poll_waiters(&self, since: Moment) -> Result<Arc<PolledQueue>> {
        if let Some(polled) = self.places.last(since) {
            return Ok(polled);
        }
        match self.call(Route::Main, Request::PollWaiters(Arc::clone(&self.places))).await?.into_answer() {
            (RequestReply::Polled(polled), _) => Ok(polled),
            _ => Err(unexpected()),
        }
    }

    /// Frees a lock that is held alone, or leaves a group.
    pub(crate) async fn free(&self, route: Route, request: Request<D>) -> Result<Freed> {
        match self.call(route, request).await?.into_parts() {
            // The first try may have freed the lock, and another may have taken it since.
            ((RequestReply::Freed(freed), _), in_doubt) => {
                Ok(Freed { in_doubt: in_doubt || freed.in_doubt, ..freed })
            }
            _ => Err(unexpected()),
        }
    }

    /// Extends leases, and says when the statement was sent.
    pub(crate) async fn renew(&self, grants: &[Grant], until: Moment) -> Result<(Vec<Extension>, Moment)> {
        let limit = until.remaining().min(self.timeout);
        let reply = self.batcher.call(Route::Main, Request::Renew(grants.to_vec()), limit).await?;
        match reply.into_answer() {
            (RequestReply::Extended(extensions), sent) => Ok((extensions, sent)),
            _ => Err(unexpected()),
        }
    }

    /// Keeps a place in the queue. Returns whether it still exists.
    pub(crate) async fn keep_place(&self, claim: &Claim, ticket: i64) -> Result<bool> {
        let keep = Request::KeepPlace(ticket, claim.owner().as_uuid());
        match self.call(Route::Main, keep).await?.into_answer() {
            (RequestReply::Kept(kept), _) => Ok(kept),
            _ => Err(unexpected()),
        }
    }

    /// Deletes the place of a waiter that has its lock. Nobody waits for the answer.
    pub(crate) fn forget_place(&self, ticket: i64) {
        self.batcher.send(Route::Main, Request::ForgetPlace(ticket), self.timeout);
    }

    /// Runs some work on the connection. The work is repeated until it has an answer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        route: Route,
        work: impl for<'c> Fn(JobContext<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
    ) -> Result<T> {
        job(&self.batcher, route, self.timeout, work).await
    }

    /// Takes a place at the end of the queue, and says when the statement was sent.
    pub(crate) async fn enter(&self, claim: &Claim) -> Result<(Entered, Moment)> {
        let enter = Request::Enter(claim.clone(), self.notifier.receives());
        match self.call(Route::Main, enter).await?.into_answer() {
            (RequestReply::Entered(entered), sent) => Ok((entered, sent)),
            _ => Err(unexpected()),
        }
    }

    /// From when until when a grant is valid that a release is said to have made for this claim. `None`: it
    /// must be read, for instance since the connection is in use.
    pub(crate) fn accept(&self, claim: &Claim, pushed: &PushedGrant) -> Option<(Moment, Moment)> {
        self.batcher.service().look(Route::Main, |conn| self.dialect.accept(conn, claim, pushed))?
    }

    /// Leaves the queue. Returns whether there was a place.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let freed = self.free(Route::Main, Request::Leave(claim.clone())).await?;
        let left = freed.released || freed.in_doubt;
        self.notify_next(freed);
        Ok(left)
    }

    /// Delivers to the waiters of this process what the answer to a release says about them.
    pub(crate) fn notify_next(&self, freed: Freed) {
        self.notify(freed.next);
        if let Some(notification) = freed.notification {
            notification.deliver(&self.waiters);
        }
    }

    pub(crate) fn notify(&self, tickets: Vec<i64>) {
        for ticket in tickets {
            self.waiters.notify(ticket);
        }
    }

    /// Closes the connections that are idle.
    pub(crate) async fn close(&self) {
        for route in [Route::Main, Route::BlockedRows, Route::Purge] {
            self.batcher.service().shut(route).await;
        }
    }

    pub(crate) fn close_on(&self, route: Route) {
        self.batcher.service().close(route);
    }
}

/// What the statement has done for a claim.
fn took(reply: Reply<(RequestReply, Moment)>) -> Result<(TryAcquire, Moment)> {
    match reply.into_answer() {
        (RequestReply::TryAcquire(took), sent) => Ok((took, sent)),
        _ => Err(unexpected()),
    }
}
