//! Carries out batches of requests, on one connection for each route.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{Attempt, CallOutcome, Service, SharedRuntime, Waiters, note_reconnection};
use lockwell_core::{Claim, Error, ErrorKind, Moment, Result};

use crate::client::batch::carry_out;
use crate::client::idle::{Idle, IdleConnection};
use crate::client::silent::Silent;
use crate::dialect::Dialect;
use crate::dialect::answers::meaning;
use crate::dialect::error::{caused_by, class_of, fatal, no_answer};
use crate::dialect::requests::{Answer, Request, Route, blocked};
use crate::words::{ErrorClass, Hold};

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
    silent: Silent,
}

impl<D: Dialect> Statements<D> {
    pub(crate) fn new(dialect: Arc<D>, waiters: Arc<Waiters>) -> Self {
        Self { idle: Idle::new(Arc::clone(&dialect)), dialect, waiters, silent: Silent::default() }
    }

    /// A connection of which it is known whether it may be used.
    async fn connect(&self) -> sqlx_core::Result<IdleConnection<D>> {
        let since = Moment::now();
        let mut conn = self.dialect.connect(&self.waiters).await?;
        let is_named = self.silent.names_connections();
        let session = if is_named { self.dialect.session(&mut conn).await? } else { None };
        Ok(IdleConnection { conn, since, session })
    }

    /// Looks at the connection for this route, if it is idle.
    pub(crate) fn look<T>(&self, route: Route, look: impl FnOnce(&D::Conn) -> T) -> Option<T> {
        self.idle.on(route).as_ref().map(|idle| look(&idle.conn))
    }

    /// Closes the connection for this route, if it is idle.
    pub(crate) fn close(&self, route: Route) {
        drop(self.idle.on(route).take());
    }

    /// Closes the connection for this route, and waits until it has ended.
    pub(crate) async fn shut(&self, route: Route) {
        let idle = self.idle.on(route).take();
        if let Some(idle) = idle {
            self.dialect.shut(idle.conn).await;
        }
    }
}

/// An answer, and when its statement was sent.
pub(crate) type Answered<T> = (T, Moment);

impl<D: Dialect> Service for Statements<D> {
    type Key = Route;
    type Request = Arc<Request<D>>;
    type Answer = Answered<Answer>;

    const PARTS: u8 = D::PARTS;

    fn shares(&self, first: &Arc<Request<D>>, other: &Arc<Request<D>>) -> bool {
        first.shares(other)
    }

    fn is_about_one(&self, first: &Arc<Request<D>>, other: &Arc<Request<D>>) -> bool {
        let names = (first.taker().map(Claim::name), other.taker().map(Claim::name));
        matches!(names, (Some(one), Some(other)) if one == other)
    }

    fn urgency(&self, request: &Arc<Request<D>>) -> u8 {
        request.urgency()
    }

    fn is_wanted(&self, request: &Arc<Request<D>>) -> bool {
        request.is_wanted()
    }

    /// A connection is opened by a task.
    fn is_light(&self, route: &Route, request: &Arc<Request<D>>) -> bool {
        let is_light = |conn: &D::Conn| self.dialect.is_light(conn, request);
        request.is_about_one_lock() && self.look(*route, is_light).unwrap_or(false)
    }

    fn note_in_doubt(&self, request: &Arc<Request<D>>) {
        if let Some(claim) = request.taker() {
            claim.note_in_doubt();
        }
    }

    async fn prepare(&self, route: &Route, attempt: Attempt) -> Result<()> {
        let idle = {
            let mut idle = self.idle.on(*route);
            if idle.is_some() && !self.silent.may_be_busy(*route) {
                return Ok(());
            }
            idle.take()
        };
        let ready = async {
            let mut idle = match idle {
                Some(idle) => idle,
                None => self.connect().await?,
            };
            let is_busy = self.silent.is_busy(*route, &*self.dialect, &mut idle.conn).await?;
            *self.idle.on(*route) = Some(idle);
            Ok(is_busy)
        };
        match tokio::time::timeout(time_for_one_try::<D>(attempt), ready).await {
            Ok(Ok(false)) => Ok(()),
            Ok(Ok(true)) => Err(no_answer(None).with_source(
                "the database has not ended an earlier statement of this client; does its commit wait for a replica?",
            )),
            Ok(Err(error)) if class_of(&*self.dialect, &error) == ErrorClass::Fatal => Err(fatal(&error)),
            Ok(Err(error)) => Err(silence::<D>(Some(&error))),
            Err(_) => Err(silence::<D>(None)),
        }
    }

    async fn call(&self, route: &Route, batch: &[&Arc<Request<D>>], attempt: Attempt) -> Outcomes {
        // The guard is dropped first, so that it is not held while the statement runs.
        let idle = self.idle.on(*route).take();
        let Some(IdleConnection { conn, since, session }) = idle else {
            return of_all(batch, || CallOutcome::Unavailable(silence::<D>(None)));
        };
        let sent = Moment::now();
        let unanswered = self.silent.call(*route, session);
        // This future owns the connection until it has answered. If the future is dropped, or has no answer
        // in time, the connection is closed, since its state is unknown.
        let limit = if let Request::Job(_) = &**batch[0] {
            attempt.until().remaining()
        } else {
            time_for_one_try::<D>(attempt)
        };
        let Ok((answers, conn)) = tokio::time::timeout(limit, self.run(conn, batch)).await else {
            tracing::debug!("a connection does not answer and is replaced");
            note_reconnection(self.dialect.capabilities().backend());
            return of_all(batch, || CallOutcome::Unknown(silence::<D>(None)));
        };
        let session = unanswered.end();
        let idle = conn.map(|conn| IdleConnection { conn, since, session });
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
    async fn run(&self, mut conn: D::Conn, batch: &[&Arc<Request<D>>]) -> (Answers, Option<D::Conn>) {
        let all: Vec<_> = batch.iter().map(|one| Arc::clone(one)).collect();
        let (dialect, waiters) = (Arc::clone(&self.dialect), Arc::clone(&self.waiters));
        let done = async move {
            let answers = carry_out(&*dialect, &waiters, &mut conn, &all).await;
            (answers.and_then(|answers| dialect.intact(&conn).map(|()| answers)), Some(conn))
        };
        if D::IS_REMOTE || matches!(batch, [one] if one.is_one_statement()) {
            return done.await;
        }
        let Ok(files) = FILES.get() else { return (Err(sqlx_core::Error::WorkerCrashed), None) };
        files.spawn(done).await.unwrap_or((Err(sqlx_core::Error::WorkerCrashed), None))
    }

    /// The outcome of an error for the whole batch, and whether the connection can be used again.
    ///
    /// A server that has become a replica goes on answering on old connections, and on new ones until the
    /// address leads to another server. So a connection to a read-only server is never kept. Only a
    /// connection that was opened for this batch shows where the address leads now.
    fn failed(
        &self,
        error: &sqlx_core::Error,
        batch: &[&Arc<Request<D>>],
        attempt: Attempt,
        since: Moment,
    ) -> (Outcomes, bool) {
        match class_of(&*self.dialect, error) {
            ErrorClass::Again if !D::IS_REMOTE => {
                (of_all(batch, || CallOutcome::Again(silence::<D>(Some(error)))), true)
            }
            ErrorClass::Again => (of_all(batch, || CallOutcome::Again(fatal(error))), true),
            ErrorClass::Blocked if batch[1..].iter().any(|one| !self.is_about_one(batch[0], one)) => {
                (of_all(batch, || CallOutcome::Blocked), true)
            }
            ErrorClass::Blocked
                if batch.iter().all(|one| one.taker().is_some_and(is_for_group))
                    && !attempt.began().after(BLOCKED_RETRY_LIMIT).has_passed() =>
            {
                (of_all(batch, || CallOutcome::Again(blocked(Some(error)))), true)
            }
            ErrorClass::Blocked => {
                let outcome = |one: &&Arc<Request<D>>| match one.blocked(error) {
                    Some(answer) => CallOutcome::Answered((answer, Moment::now())),
                    None => CallOutcome::Failed(blocked(Some(error))),
                };
                (batch.iter().map(outcome).collect(), true)
            }
            ErrorClass::Broken => {
                tracing::debug!(%error, "a connection failed and is replaced");
                (of_all(batch, || CallOutcome::Unknown(silence::<D>(Some(error)))), false)
            }
            ErrorClass::ReadOnly if since < attempt.began() => {
                tracing::info!(%error, "the server takes no writes any more: the connection is replaced");
                (of_all(batch, || CallOutcome::Unavailable(fatal(error))), false)
            }
            ErrorClass::ReadOnly => (of_all(batch, || CallOutcome::Failed(fatal(error))), false),
            // It is not about one of the requests.
            ErrorClass::Fatal if fatal(error).kind() == ErrorKind::GracePeriod => {
                (of_all(batch, || CallOutcome::Failed(fatal(error))), true)
            }
            ErrorClass::Fatal => (of_all(batch, || CallOutcome::Refused(fatal(error))), true),
        }
    }
}

/// The runtime for requests of several statements on a file. On a runtime that is not driven, a transaction
/// of which a statement has failed could stay open and block all other users of the file, including other
/// processes.
static FILES: SharedRuntime = SharedRuntime::new("lockwell-files");

type Answers = sqlx_core::Result<Vec<Answer>>;

type Outcomes = Vec<CallOutcome<Answered<Answer>>>;

/// The error of a request without an answer. One to a file had no turn in time.
fn silence<D: Dialect>(cause: Option<&sqlx_core::Error>) -> Error {
    // SQLite may say itself what is wrong, such as that the file was moved.
    let said = cause.and_then(sqlx_core::Error::as_database_error).map(meaning);
    if D::IS_REMOTE || matches!(said, Some((_, ErrorKind::Unreachable, _))) {
        return no_answer(cause);
    }
    let text = "the database file stays locked: another program keeps a transaction open in it, or writes for long, or \
                its disk is slow";
    caused_by(Error::new(ErrorKind::Unreachable, text), cause)
}

/// What others say of a request without an answer is about a server, which a file has not.
pub(crate) fn about_file<D: Dialect>(error: Error) -> Error {
    if error.is_silence() && !D::IS_REMOTE { silence::<D>(None) } else { error }
}

/// One outcome for all of a batch.
fn of_all<T>(batch: &[T], outcome: impl Fn() -> CallOutcome<Answered<Answer>>) -> Outcomes {
    batch.iter().map(|_| outcome()).collect()
}

/// Whether to repeat the request of a claim for a while when a row is locked, instead of answering `Blocked`.
/// Claims that join or leave a group lock its row for a moment, and that must not refuse others.
fn is_for_group(claim: &Claim) -> bool {
    Hold::of(claim) == Hold::Together
}

/// The time limit of one try. A connection over a network that does not answer is replaced while there is
/// time for another try.
fn time_for_one_try<D: Dialect>(attempt: Attempt) -> Duration {
    let left = attempt.until().remaining();
    if D::IS_REMOTE { left.min((left / 2).max(SHORTEST_TRY)) } else { left }
}
