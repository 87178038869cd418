//! What one runtime of a process has of a database: a connection with its requests, waiters, notifications.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Batcher, Bounds, Call, Waiters};
use lockcore::{Claim, Error, ErrorKind, Grant, Moment, Result};

use crate::dialect::{Ask, Dialect, Entry, Extension, Freed, Took};
use crate::places::{Looked, Places};
use crate::requests::{Answer, Context, Done, Job, Request, Route, Work};
use crate::service::Statements;
use crate::wake::Wake;

/// What one runtime has of a database. Requests that meet share a statement; every statement is idempotent for its
/// owner, so that repeating it after a lost reply does no harm.
pub(crate) struct Client<D: Dialect> {
    pub(crate) dialect: Arc<D>,
    batcher: Batcher<Statements<D>>,
    pub(crate) places: Arc<Places>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) wake: Wake<D>,
    timeout: Duration,
}

impl<D: Dialect> Client<D> {
    pub(crate) fn new(dialect: &Arc<D>, timeout: Duration) -> Self {
        let waiters = Waiters::new();
        let statements = Statements::new(Arc::clone(dialect), Arc::clone(&waiters));
        let batcher = Batcher::new(statements, Bounds::default());
        let wake = Wake::new(Arc::clone(dialect), Arc::clone(&waiters), batcher.clone(), timeout);
        Self { dialect: Arc::clone(dialect), batcher, places: Arc::default(), waiters, wake, timeout }
    }

    fn call(&self, route: Route, request: Request<D>) -> Call<Statements<D>> {
        self.batcher.call(route, request, self.timeout)
    }

    /// Takes a lock if it is free, and says when the statement was sent. The request is in the queue when this returns.
    pub(crate) fn take(&self, ask: Ask) -> impl Future<Output = Result<(Took, Moment)>> + use<D> {
        let call = self.call(Route::Main, Request::Take(ask));
        async move {
            match call.await?.into_answer() {
                (Answer::Took(took), sent) => Ok((took, sent)),
                _ => Err(unexpected()),
            }
        }
    }

    /// Takes a lock if it is free, or a place in its queue.
    pub(crate) async fn claim(&self, route: Route, entry: Entry) -> Result<(Took, Moment)> {
        match self.call(route, Request::Claim(entry)).await?.into_answer() {
            (Answer::Took(took), sent) => Ok((took, sent)),
            _ => Err(unexpected()),
        }
    }

    /// Whose turn it is, as somebody has asked since this time. It is a sign of life.
    pub(crate) async fn look(&self, since: Moment) -> Result<Arc<Looked>> {
        if let Some(looked) = self.places.last(since) {
            return Ok(looked);
        }
        match self.call(Route::Main, Request::Look(Arc::clone(&self.places))).await?.into_answer() {
            (Answer::Looked(looked), _) => Ok(looked),
            _ => Err(unexpected()),
        }
    }

    /// Frees a lock that is held alone, or leaves a group.
    pub(crate) async fn free(&self, route: Route, request: Request<D>) -> Result<Freed> {
        match self.call(route, request).await?.into_parts() {
            // The first try may have freed the lock, and another may have taken it since.
            ((Answer::Freed(freed), _), in_doubt) => Ok(Freed { in_doubt, ..freed }),
            _ => Err(unexpected()),
        }
    }

    /// Extends leases, and says when the statement was sent.
    pub(crate) async fn renew(&self, grants: &[Grant], until: Moment) -> Result<(Vec<Extension>, Moment)> {
        let limit = until.remaining().min(self.timeout);
        let reply = self.batcher.call(Route::Main, Request::Renew(grants.to_vec()), limit).await?;
        match reply.into_answer() {
            (Answer::Extended(extensions), sent) => Ok((extensions, sent)),
            _ => Err(unexpected()),
        }
    }

    /// Keeps a place in the queue; answers whether it is still there.
    pub(crate) async fn stay(&self, claim: &Claim, ticket: i64) -> Result<bool> {
        let stay = Request::Stay(ticket, claim.owner().as_uuid());
        match self.call(Route::Main, stay).await?.into_answer() {
            (Answer::Kept(kept), _) => Ok(kept),
            _ => Err(unexpected()),
        }
    }

    /// Forgets the place of a waiter that has got its lock. Nobody waits for the answer.
    pub(crate) fn tidy(&self, ticket: i64) {
        self.batcher.send(Route::Main, Request::Tidy(ticket), self.timeout);
    }

    /// Does something on the connection. It may be done several times, until it has an answer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        route: Route,
        work: impl for<'c> Fn(Context<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
    ) -> Result<T> {
        self.job(route, None, work).await
    }

    /// The same for a claim that queues by it: once that is cancelled, it is not begun any more.
    pub(crate) async fn queue<T: Send + 'static>(
        &self,
        claim: &Claim,
        work: impl for<'c> Fn(Context<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
    ) -> Result<T> {
        self.job(Route::Main, Some(claim.clone()), work).await
    }

    async fn job<T: Send + 'static>(
        &self,
        route: Route,
        queues: Option<Claim>,
        work: impl for<'c> Fn(Context<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
    ) -> Result<T> {
        job(&self.batcher, route, self.timeout, queues, work).await
    }

    /// Gives the place in the queue up; answers whether there was one.
    pub(crate) async fn leave(&self, claim: &Claim) -> Result<bool> {
        let freed = self.free(Route::Main, Request::Leave(claim.clone())).await?;
        let left = freed.released || freed.in_doubt;
        self.tell(freed);
        Ok(left)
    }

    /// Tells the waiters of this process what a release has answered for them.
    pub(crate) fn tell(&self, freed: Freed) {
        self.notify(freed.next);
        if let Some(told) = freed.handed {
            told.tell(&self.waiters);
        }
    }

    pub(crate) fn notify(&self, tickets: Vec<i64>) {
        for ticket in tickets {
            self.waiters.notify(ticket);
        }
    }

    /// Closes the connections that are idle.
    pub(crate) fn close(&self) {
        for route in [Route::Main, Route::BlockedRows, Route::Purge] {
            self.close_on(route);
        }
    }

    pub(crate) fn close_on(&self, route: Route) {
        self.batcher.service().close(route);
    }
}

/// Does something on the connection for requests. It may be done several times, until it has an answer; for a claim that
/// queues by it, it is not begun any more once that is cancelled.
pub(crate) async fn job<D: Dialect, T: Send + 'static>(
    requests: &Batcher<Statements<D>>,
    route: Route,
    limit: Duration,
    queues: Option<Claim>,
    work: impl for<'c> Fn(Context<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
) -> Result<T> {
    let work: Work<D> = Arc::new(move |context| {
        let work = work(context);
        Box::pin(async move { Ok(Box::new(work.await?) as Box<dyn Any + Send>) })
    });
    match requests.call(route, Request::Job(Job { work, queues }), limit).await?.into_answer() {
        (Answer::Done(value), _) => value.downcast().map(|value| *value).map_err(|_| unexpected()),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "an answer to another request")
}
