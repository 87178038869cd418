//! The requests of a client, and how a batch of them is carried out.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockcore::backend::{Attempt, Outcome, Service, SharedRuntime, Waiters};
use lockcore::{Claim, Error, ErrorKind, Grant, Moment, Result};
use uuid::Uuid;

use crate::batch;
use crate::database::Verdict;
use crate::dialect::{Ask, Dialect, Extension, Freed, Hold, Took};
use crate::error::{fatal, no_answer, verdict};
use crate::idle::{Idle, Line};

/// How long a claim insists that meets a locked row which its lock's holders do not lock for long.
const INSIST: Duration = Duration::from_millis(500);

/// The shortest time after which a silent connection is given up. A statement may wait for a row for a second.
const SHORTEST_TRY: Duration = Duration::from_secs(2);

type Outcomes = Vec<Outcome<(Answer, Moment)>>;

/// The same outcome for all of a batch.
fn of_all<D: Dialect>(batch: &[&Request<D>], outcome: impl Fn() -> Outcome<(Answer, Moment)>) -> Outcomes {
    batch.iter().map(|_| outcome()).collect()
}

/// Where what takes several statements is done in a file: a transaction that is left half-way, since its runtime is not
/// driven, would keep everybody out of the whole file, other processes included.
static FILES: SharedRuntime = SharedRuntime::new("lockwell-files");

/// One request.
pub(crate) enum Request<D: Dialect> {
    /// Takes a lock if it is free.
    Take(Ask),
    /// Frees a lock that is held alone.
    Release(Claim),
    /// Leaves a group. Not together with releases: what is tried again must not have been done in part.
    Part(Claim),
    /// Extends leases. A call by itself.
    Renew(Vec<Grant>),
    /// Keeps a place in the queue, by its ticket and owner; answers whether it is still there.
    Stay(i64, Uuid),
    /// Forgets the place of a waiter that has got its lock.
    Tidy(i64),
    /// Anything that is not worth to be batched. It may be done several times.
    Job(Job<D>),
}

/// Work on the connection.
pub(crate) struct Job<D: Dialect> {
    pub(crate) work: Work<D>,
    /// The claim that queues by it, if it does that.
    pub(crate) queues: Option<Claim>,
}

impl<D: Dialect> Clone for Request<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Take(ask) => Self::Take(ask.clone()),
            Self::Release(claim) => Self::Release(claim.clone()),
            Self::Part(claim) => Self::Part(claim.clone()),
            Self::Renew(grants) => Self::Renew(grants.clone()),
            Self::Stay(ticket, owner) => Self::Stay(*ticket, *owner),
            Self::Tidy(ticket) => Self::Tidy(*ticket),
            Self::Job(Job { work, queues }) => {
                Self::Job(Job { work: Arc::clone(work), queues: queues.clone() })
            }
        }
    }
}

/// What work on a connection has.
pub(crate) struct Context<'c, D: Dialect> {
    pub(crate) dialect: &'c D,
    pub(crate) waiters: &'c Waiters,
    pub(crate) conn: &'c mut D::Conn,
}

/// What work comes to.
pub(crate) type Done<'c, T> = BoxFuture<'c, sqlx::Result<T>>;

pub(crate) type Work<D> = Arc<dyn for<'c> Fn(Context<'c, D>) -> Done<'c, Box<dyn Any + Send>> + Send + Sync>;

/// The answer to a request.
pub(crate) enum Answer {
    Took(Took),
    Freed(Freed),
    Extended(Vec<Extension>),
    Kept(bool),
    Tidied,
    Done(Box<dyn Any + Send>),
}

/// Which connection a request travels on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// That of all usual requests.
    Main,
    /// One for requests that wait for a row which a transaction has locked: they must not hold up the others. It is
    /// made when it is first needed, which is rare.
    BlockedRows,
}

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

    /// Closes the connections that are idle.
    pub(crate) fn close(&self) {
        for route in [Route::Main, Route::BlockedRows] {
            drop(self.idle.on(route).take());
        }
    }

    /// Carries a batch out. The connection comes back with the answers.
    async fn run(
        &self,
        mut conn: D::Conn,
        batch: &[&Request<D>],
    ) -> (sqlx::Result<Vec<Answer>>, Option<D::Conn>) {
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

    /// What an error comes to for the whole batch. Whether the connection is still good is the second answer.
    ///
    /// A server that was made a replica goes on answering to old connections, and to new ones until the address leads
    /// elsewhere. So a connection to a read-only server is never kept. Only one that was made for this batch tells the
    /// truth about where the address leads now.
    fn failed(
        &self,
        error: &sqlx::Error,
        batch: &[&Request<D>],
        attempt: Attempt,
        since: Moment,
    ) -> (Outcomes, bool) {
        match verdict(&*self.dialect, error) {
            Verdict::Again => (of_all(batch, || Outcome::Again(fatal(error))), true),
            Verdict::Blocked if batch[1..].iter().any(|one| !is_about_one(batch[0], one)) => {
                (of_all(batch, || Outcome::Blocked), true)
            }
            Verdict::Blocked
                if batch.iter().all(|one| one.insists()) && !attempt.began.after(INSIST).has_passed() =>
            {
                (of_all(batch, || Outcome::Again(blocked())), true)
            }
            Verdict::Blocked => (batch.iter().map(|one| one.blocked()).collect(), true),
            Verdict::Broken => {
                tracing::debug!(%error, "a connection failed and is replaced");
                (of_all(batch, || Outcome::Unknown(no_answer(Some(error)))), false)
            }
            Verdict::ReadOnly if since < attempt.began => {
                tracing::info!(%error, "the server takes no writes any more: the connection is replaced");
                (of_all(batch, || Outcome::Unavailable(fatal(error))), false)
            }
            Verdict::ReadOnly => (of_all(batch, || Outcome::Failed(fatal(error))), false),
            Verdict::Fatal => (of_all(batch, || Outcome::Failed(fatal(error))), true),
        }
    }
}

/// Carries a batch of one kind out.
async fn carry_out<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    batch: &[&Request<D>],
) -> sqlx::Result<Vec<Answer>> {
    let answers = match batch[0] {
        Request::Take(_) => {
            let asks: Vec<_> = batch.iter().filter_map(|one| one.ask()).cloned().collect();
            let took = batch::take(dialect, waiters, conn, &asks).await?;
            took.into_iter().map(Answer::Took).collect()
        }
        Request::Release(_) => {
            let freed = dialect.release(conn, &claims(batch), waiters).await?;
            freed.into_iter().map(Answer::Freed).collect()
        }
        Request::Part(_) => {
            let freed = dialect.part(conn, &claims(batch), waiters).await?;
            freed.into_iter().map(Answer::Freed).collect()
        }
        Request::Renew(grants) => vec![Answer::Extended(batch::renew(dialect, conn, grants).await?)],
        Request::Stay(..) => {
            let places: Vec<_> = batch.iter().filter_map(|one| one.place()).collect();
            dialect.keep(conn, &places).await?.into_iter().map(Answer::Kept).collect()
        }
        Request::Tidy(_) => {
            dialect.tidy(conn, &tickets(batch)).await?;
            batch.iter().map(|_| Answer::Tidied).collect()
        }
        Request::Job(job) => {
            vec![Answer::Done((job.work)(Context { dialect, waiters, conn }).await?)]
        }
    };
    dialect.intact(conn)?;
    Ok(answers)
}

impl<D: Dialect> Service for Statements<D> {
    type Key = Route;
    type Request = Request<D>;
    /// With the time at which the statement was sent.
    type Answer = (Answer, Moment);

    fn shares(&self, first: &Request<D>, other: &Request<D>) -> bool {
        !matches!(first, Request::Renew(_) | Request::Job(_))
            && std::mem::discriminant(first) == std::mem::discriminant(other)
    }

    fn is_about_one(&self, first: &Request<D>, other: &Request<D>) -> bool {
        is_about_one(first, other)
    }

    /// Kinds may change places with each other, since nobody has more than one request for one claim under way.
    /// Renewals go first, because time is running for them; then whatever frees locks; then whatever wants them.
    fn urgency(&self, request: &Request<D>) -> u8 {
        match request {
            Request::Renew(_) => 0,
            Request::Tidy(_) => 1,
            Request::Release(_) => 2,
            Request::Part(_) => 3,
            // In the order in which they came: none of them is to wait for ever.
            Request::Job(_) | Request::Stay(..) | Request::Take(_) => 4,
        }
    }

    fn is_wanted(&self, request: &Request<D>) -> bool {
        match request {
            Request::Job(Job { queues: Some(claim), .. }) => !claim.is_cancelled(),
            Request::Take(ask) => !ask.claim.is_cancelled(),
            _ => true,
        }
    }

    fn note_in_doubt(&self, request: &Request<D>) {
        if let Some(ask) = request.ask() {
            ask.claim.note_in_doubt();
        }
    }

    async fn prepare(&self, route: &Route, attempt: Attempt) -> Result<()> {
        if self.idle.on(*route).is_some() {
            return Ok(());
        }
        let since = Moment::now();
        match tokio::time::timeout(time_for_one_try::<D>(attempt), self.dialect.connect()).await {
            Ok(Ok(conn)) => *self.idle.on(*route) = Some(Line { conn, since }),
            Ok(Err(error)) if verdict(&*self.dialect, &error) == Verdict::Fatal => return Err(fatal(&error)),
            Ok(Err(error)) => return Err(no_answer(Some(&error))),
            Err(_) => return Err(no_answer(None)),
        }
        Ok(())
    }

    async fn call(&self, route: &Route, batch: &[&Request<D>], attempt: Attempt) -> Outcomes {
        // Bound first, so that the lock is not held while the statement runs.
        let idle = self.idle.on(*route).take();
        let Some(Line { conn, since }) = idle else {
            return of_all(batch, || Outcome::Unavailable(no_answer(None)));
        };
        let sent = Moment::now();
        // The connection is in hand until it has answered. If this future is dropped, or has no answer in time, the
        // connection goes with it, in whatever state it is.
        let is_long = matches!(batch[0], Request::Job(Job { queues: None, .. }));
        let limit = if is_long { attempt.until.remaining() } else { time_for_one_try::<D>(attempt) };
        let Ok((answers, conn)) = tokio::time::timeout(limit, self.run(conn, batch)).await else {
            tracing::debug!("a connection does not answer and is replaced");
            return of_all(batch, || Outcome::Unknown(no_answer(None)));
        };
        let idle = conn.map(|conn| Line { conn, since });
        match answers {
            Ok(answers) => {
                *self.idle.on(*route) = idle;
                answers.into_iter().map(|answer| answer.into_outcome(sent)).collect()
            }
            Err(error) => {
                let (outcomes, is_good) = self.failed(&error, batch, attempt, since);
                if is_good {
                    *self.idle.on(*route) = idle;
                }
                outcomes
            }
        }
    }
}

/// A connection over a network that is silent is replaced while there is time for another try.
fn time_for_one_try<D: Dialect>(attempt: Attempt) -> Duration {
    let left = attempt.until.remaining();
    if D::IS_REMOTE { left.min((left / 2).max(SHORTEST_TRY)) } else { left }
}

impl<D: Dialect> Request<D> {
    /// Whether it alone is one statement, which the database carries out whether we go on or not.
    fn is_one_statement(&self) -> bool {
        match self {
            Self::Take(ask) => Hold::of(&ask.claim) == Hold::Alone,
            Self::Release(_) => true,
            _ => false,
        }
    }

    fn ask(&self) -> Option<&Ask> {
        match self {
            Self::Take(ask) => Some(ask),
            _ => None,
        }
    }

    fn place(&self) -> Option<(i64, Uuid)> {
        match self {
            Self::Stay(ticket, owner) => Some((*ticket, *owner)),
            _ => None,
        }
    }

    /// Whether to ask again for a while when a row is locked, rather than to take that for an answer. Those who come
    /// and go in a group lock its row for a moment, and that is no reason to stay outside.
    fn insists(&self) -> bool {
        self.ask().is_some_and(|ask| Hold::of(&ask.claim) == Hold::Together)
    }

    /// What to say when a row is locked by somebody's transaction.
    fn blocked(&self) -> Outcome<(Answer, Moment)> {
        match self {
            Self::Take(_) => Outcome::Answered((Answer::Took(Took::Blocked), Moment::now())),
            _ => Outcome::Failed(blocked()),
        }
    }
}

impl Answer {
    fn into_outcome(self, sent: Moment) -> Outcome<(Self, Moment)> {
        match self {
            Self::Freed(Freed { blocked: true, .. }) => Outcome::Failed(blocked()),
            answer => Outcome::Answered((answer, sent)),
        }
    }
}

pub(crate) fn blocked() -> Error {
    Error::new(ErrorKind::Held, "a transaction that has verified this lock is still open")
}

fn is_about_one<D: Dialect>(first: &Request<D>, other: &Request<D>) -> bool {
    match (first.ask(), other.ask()) {
        (Some(one), Some(other)) => one.claim.name() == other.claim.name(),
        _ => false,
    }
}

fn claims<D: Dialect>(batch: &[&Request<D>]) -> Vec<Claim> {
    let of = |one: &&Request<D>| match one {
        Request::Release(claim) | Request::Part(claim) => Some(claim.clone()),
        _ => None,
    };
    batch.iter().filter_map(of).collect()
}

fn tickets<D: Dialect>(batch: &[&Request<D>]) -> Vec<i64> {
    let of = |one: &&Request<D>| match one {
        Request::Tidy(ticket) => Some(*ticket),
        _ => None,
    };
    batch.iter().filter_map(of).collect()
}
