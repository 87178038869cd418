//! Carries out batches of requests, on one connection for each route.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{
    Attempt, Batcher, CallOutcome, Heartbeat, Service, SharedRuntime, Waiters, note_reconnection,
};
use lockwell_core::{Claim, Moment, Result};

use crate::client::batch;
use crate::client::idle::{Idle, IdleConnection};
use crate::client::requests::{
    Done, JobContext, Request, RequestReply, Route, Work, blocked, is_about_one, unexpected,
};
use crate::dialect::Dialect;
use crate::dialect::error::{class_of, fatal, no_answer};
use crate::ids::AsUuid;
use crate::words::{ErrorClass, Sign};

/// How long a claim for a group repeats its request while the row is locked. Other claims lock it only for a
/// moment.
const BLOCKED_RETRY_LIMIT: Duration = Duration::from_millis(500);

/// The shortest time after which a connection without an answer is replaced. A statement may wait for a row
/// for a second.
const SHORTEST_TRY: Duration = Duration::from_secs(2);

/// Carries requests out, on one connection for each route.
pub(crate) struct Statements<D: Dialect> {
    dialect: Arc<D>,
    waiters: Arc<Waiters>,
    idle: Arc<Idle<D>>,
}

impl<D: Dialect> Statements<D> {
    pub(crate) fn new(dialect: Arc<D>, waiters: Arc<Waiters>) -> Self {
        Self { idle: Idle::new(Arc::clone(&dialect)), dialect, waiters }
    }

    /// Looks at the connection for this route, if it is idle.
    pub(crate) fn look<T>(&self, route: Route, look: impl FnOnce(&D::Conn) -> T) -> Option<T> {
        self.idle.on(route).as_ref().map(|idle| look(&idle.conn))
    }

    /// Closes the connection for this route, if it is idle.
    pub(crate) fn close(&self, route: Route) {
        drop(self.idle.on(route).take());
    }

    /// The same, and waits until it has ended.
    pub(crate) async fn shut(&self, route: Route) {
        let idle = self.idle.on(route).take();
        if let Some(idle) = idle {
            self.dialect.shut(idle.conn).await;
        }
    }
}

/// Runs some work on the connection for requests. The work is repeated until it has an answer.
pub(crate) async fn job<D: Dialect, T: Send + 'static>(
    requests: &Batcher<Statements<D>>,
    route: Route,
    limit: Duration,
    work: impl for<'c> Fn(JobContext<'c, D>) -> Done<'c, T> + Send + Sync + 'static,
) -> Result<T> {
    let work: Work<D> = Arc::new(move |context| {
        let work = work(context);
        Box::pin(async move { Ok(Box::new(work.await?) as Box<dyn Any + Send>) })
    });
    match requests.call(route, Request::Job(work), limit).await?.into_answer() {
        (RequestReply::Done(value), _) => value.downcast().map(|value| *value).map_err(|_| unexpected()),
        _ => Err(unexpected()),
    }
}

impl<D: Dialect> Service for Statements<D> {
    type Key = Route;
    type Request = Request<D>;
    /// With the time at which the statement was sent.
    type Answer = (RequestReply, Moment);

    const PARTS: u8 = D::PARTS;

    fn shares(&self, first: &Request<D>, other: &Request<D>) -> bool {
        first.is_shared() && std::mem::discriminant(first) == std::mem::discriminant(other)
    }

    fn is_about_one(&self, first: &Request<D>, other: &Request<D>) -> bool {
        is_about_one(first, other)
    }

    /// Requests of different kinds may overtake each other, since a claim has only one request at a time.
    /// Renewals go first, because their leases are running out; then the requests that free locks; then those
    /// that take them.
    fn urgency(&self, request: &Request<D>) -> u8 {
        match request {
            Request::Renew(_) => 0,
            Request::ForgetPlace(_) => 1,
            Request::Release(_) => 2,
            Request::LeaveGroup(_) => 3,
            // In the order in which they came, so that none of them waits for ever.
            Request::Job(_)
            | Request::KeepPlace(..)
            | Request::Take(_)
            | Request::Claim(_)
            | Request::PollWaiters(_)
            | Request::Enter(..)
            | Request::Leave(_) => 4,
        }
    }

    fn is_wanted(&self, request: &Request<D>) -> bool {
        match request {
            Request::Enter(claim, _) => !claim.is_cancelled(),
            other => other.taker().is_none_or(|claim| !claim.is_cancelled()),
        }
    }

    /// A connection is opened by a task.
    fn is_light(&self, route: &Route, request: &Request<D>) -> bool {
        let Some(request) = request.lone() else { return false };
        self.look(*route, |conn| self.dialect.is_light(conn, request)).unwrap_or(false)
    }

    fn note_in_doubt(&self, request: &Request<D>) {
        if let Some(claim) = request.taker() {
            claim.note_in_doubt();
        }
    }

    async fn prepare(&self, route: &Route, attempt: Attempt) -> Result<()> {
        if self.idle.on(*route).is_some() {
            return Ok(());
        }
        let since = Moment::now();
        match tokio::time::timeout(time_for_one_try::<D>(attempt), self.dialect.connect()).await {
            Ok(Ok(conn)) => *self.idle.on(*route) = Some(IdleConnection { conn, since }),
            Ok(Err(error)) if class_of(&*self.dialect, &error) == ErrorClass::Fatal => {
                return Err(fatal(&error));
            }
            Ok(Err(error)) => return Err(no_answer(Some(&error))),
            Err(_) => return Err(no_answer(None)),
        }
        Ok(())
    }

    async fn call(&self, route: &Route, batch: &[&Request<D>], attempt: Attempt) -> Outcomes {
        // The guard is dropped first, so that it is not held while the statement runs.
        let idle = self.idle.on(*route).take();
        let Some(IdleConnection { conn, since }) = idle else {
            return of_all(batch, || CallOutcome::Unavailable(no_answer(None)));
        };
        let sent = Moment::now();
        // This future owns the connection until it has answered. If the future is dropped, or has no answer
        // in time, the connection is closed, since its state is unknown.
        let is_long = matches!(batch[0], Request::Job(_));
        let limit = if is_long { attempt.until().remaining() } else { time_for_one_try::<D>(attempt) };
        let Ok((answers, conn)) = tokio::time::timeout(limit, self.run(conn, batch)).await else {
            tracing::debug!("a connection does not answer and is replaced");
            note_reconnection(self.dialect.capabilities().backend());
            return of_all(batch, || CallOutcome::Unknown(no_answer(None)));
        };
        let idle = conn.map(|conn| IdleConnection { conn, since });
        match answers {
            Ok(answers) => {
                *self.idle.on(*route) = idle;
                answers.into_iter().map(|answer| CallOutcome::Answered((answer, sent))).collect()
            }
            Err(error) => {
                // It may have been carried out in part. A claim that is cancelled before the next try is to
                // be released then.
                if batch.len() > 1 {
                    batch.iter().filter_map(|one| one.taker()).for_each(Claim::note_queued);
                }
                let (outcomes, is_good) = self.failed(&error, batch, attempt, since);
                if is_good {
                    *self.idle.on(*route) = idle;
                } else {
                    note_reconnection(self.dialect.capabilities().backend());
                    if let Some(idle) = idle.filter(|_| !D::IS_REMOTE) {
                        // At its end it moves what a removed log has into the file: before the next one reads
                        // the file.
                        self.dialect.shut(idle.conn).await;
                    }
                }
                outcomes
            }
        }
    }
}

impl<D: Dialect> Statements<D> {
    /// Carries out a batch. Returns the connection with the answers.
    async fn run(
        &self,
        mut conn: D::Conn,
        batch: &[&Request<D>],
    ) -> (sqlx::Result<Vec<RequestReply>>, Option<D::Conn>) {
        if D::IS_REMOTE || matches!(batch, [one] if one.is_one_statement()) {
            let answers = carry_out(&*self.dialect, &self.waiters, &mut conn, batch).await;
            return (answers, Some(conn));
        }
        let Ok(files) = FILES.get() else { return (Err(sqlx::Error::WorkerCrashed), None) };
        let (dialect, waiters) = (Arc::clone(&self.dialect), Arc::clone(&self.waiters));
        let batch: Vec<Request<D>> = batch.iter().copied().cloned().collect();
        let done = files.spawn(async move {
            let batch: Vec<_> = batch.iter().collect();
            let answers = carry_out(&*dialect, &waiters, &mut conn, &batch).await;
            (answers, Some(conn))
        });
        done.await.unwrap_or((Err(sqlx::Error::WorkerCrashed), None))
    }

    /// The outcome of an error for the whole batch, and whether the connection can be used again.
    ///
    /// A server that has become a replica goes on answering on old connections, and on new ones until the
    /// address leads to another server. So a connection to a read-only server is never kept. Only a
    /// connection that was opened for this batch shows where the address leads now.
    fn failed(
        &self,
        error: &sqlx::Error,
        batch: &[&Request<D>],
        attempt: Attempt,
        since: Moment,
    ) -> (Outcomes, bool) {
        match class_of(&*self.dialect, error) {
            ErrorClass::Again => (of_all(batch, || CallOutcome::Again(fatal(error))), true),
            ErrorClass::Blocked if batch[1..].iter().any(|one| !is_about_one(batch[0], one)) => {
                (of_all(batch, || CallOutcome::Blocked), true)
            }
            ErrorClass::Blocked
                if batch.iter().all(|one| one.retries_while_blocked())
                    && !attempt.began().after(BLOCKED_RETRY_LIMIT).has_passed() =>
            {
                (of_all(batch, || CallOutcome::Again(blocked(Some(error)))), true)
            }
            ErrorClass::Blocked => (batch.iter().map(|one| one.blocked(error)).collect(), true),
            ErrorClass::Broken => {
                tracing::debug!(%error, "a connection failed and is replaced");
                (of_all(batch, || CallOutcome::Unknown(no_answer(Some(error)))), false)
            }
            ErrorClass::ReadOnly if since < attempt.began() => {
                tracing::info!(%error, "the server takes no writes any more: the connection is replaced");
                (of_all(batch, || CallOutcome::Unavailable(fatal(error))), false)
            }
            ErrorClass::ReadOnly => (of_all(batch, || CallOutcome::Failed(fatal(error))), false),
            ErrorClass::Fatal => (of_all(batch, || CallOutcome::Failed(fatal(error))), true),
        }
    }
}

/// The runtime for requests of several statements on a file. On a runtime that is not driven, a transaction
/// could stay open and block all other users of the file, including other processes.
static FILES: SharedRuntime = SharedRuntime::new("lockwell-files");

/// What the requests of a batch say, which are of one kind.
macro_rules! each {
    ($batch:expr, $request:pat => $says:expr) => {
        $batch
            .iter()
            .filter_map(|one| match *one {
                $request => Some($says),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
}

/// Carries out a batch of one kind of requests.
async fn carry_out<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    batch: &[&Request<D>],
) -> sqlx::Result<Vec<RequestReply>> {
    let mut signed = None;
    let sign = || {
        let sign = Sign { client: waiters.client().as_uuid(), number: waiters.next_heartbeat() };
        (sign, Moment::now())
    };
    let answers = match batch[0] {
        Request::Take(_) => {
            let requests = each!(batch, Request::Take(request) => request.clone());
            let took = batch::take(dialect, waiters, conn, &requests).await?;
            took.into_iter().map(RequestReply::TryAcquire).collect()
        }
        Request::Claim(_) => {
            let entries = each!(batch, Request::Claim(entry) => entry.clone());
            let (sign, sent) = sign();
            let (took, clock) = batch::claim(dialect, waiters, conn, &entries, sign).await?;
            signed = clock.map(|clock| (sign, sent, clock));
            took.into_iter().map(RequestReply::TryAcquire).collect()
        }
        Request::PollWaiters(places) => {
            let (sign, sent) = sign();
            let polled = dialect.poll_waiters(conn, &places.all(), sign).await?;
            signed = Some((sign, sent, polled.clock));
            let polled = places.note(polled, sent);
            batch.iter().map(|_| RequestReply::Polled(Arc::clone(&polled))).collect()
        }
        Request::Leave(_) => {
            let claims = each!(batch, Request::Leave(claim) => claim.clone());
            let freed = dialect.leave_each(conn, &claims, waiters).await?;
            freed.into_iter().map(RequestReply::Freed).collect()
        }
        Request::Release(_) => {
            let claims = each!(batch, Request::Release(claim) => claim.clone());
            let freed = dialect.release(conn, &claims, waiters).await?;
            freed.into_iter().map(RequestReply::Freed).collect()
        }
        Request::LeaveGroup(_) => {
            let claims = each!(batch, Request::LeaveGroup(claim) => claim.clone());
            let freed = dialect.leave_group(conn, &claims, waiters).await?;
            freed.into_iter().map(RequestReply::Freed).collect()
        }
        Request::Renew(grants) => vec![RequestReply::Extended(batch::renew(dialect, conn, grants).await?)],
        Request::KeepPlace(..) => {
            let places = each!(batch, Request::KeepPlace(ticket, owner) => (*ticket, *owner));
            dialect.keep(conn, &places).await?.into_iter().map(RequestReply::Kept).collect()
        }
        Request::ForgetPlace(_) => {
            let tickets = each!(batch, Request::ForgetPlace(ticket) => *ticket);
            dialect.forget_places(conn, &tickets).await?;
            batch.iter().map(|_| RequestReply::Forgotten).collect()
        }
        Request::Enter(..) => {
            let client = waiters.client().as_uuid();
            let mut entered = Vec::with_capacity(batch.len());
            for (claim, receives) in each!(batch, Request::Enter(claim, receives) => (claim, *receives)) {
                let place = dialect.enqueue(conn, claim, client, receives).await?;
                entered.push(RequestReply::Entered(place));
            }
            entered
        }
        Request::Job(work) => {
            vec![RequestReply::Done(work(JobContext { dialect, waiters, conn }).await?)]
        }
    };
    dialect.intact(conn)?;
    // Each try of a request has another number, so the answer belongs to the try with this number.
    if let Some((Sign { number, .. }, sent, clock)) = signed {
        waiters.note_heartbeat(Heartbeat::new(number, sent, clock));
    }
    Ok(answers)
}

type Outcomes = Vec<CallOutcome<(RequestReply, Moment)>>;

/// The same outcome for all of a batch.
fn of_all<D: Dialect>(
    batch: &[&Request<D>],
    outcome: impl Fn() -> CallOutcome<(RequestReply, Moment)>,
) -> Outcomes {
    batch.iter().map(|_| outcome()).collect()
}

/// The time limit of one try. A connection over a network that does not answer is replaced while there is
/// time for another try.
fn time_for_one_try<D: Dialect>(attempt: Attempt) -> Duration {
    let left = attempt.until().remaining();
    if D::IS_REMOTE { left.min((left / 2).max(SHORTEST_TRY)) } else { left }
}
