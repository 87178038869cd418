//! The requests of a client, of any kind.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Error, ErrorKind};

use crate::dialect::Dialect;
use crate::dialect::error::caused_by;
use crate::words::LockRequest;

/// A kind of requests. Those of one kind can share a statement.
pub(crate) trait Kind<D: Dialect>: Any + Send + Sync {
    /// The answer to one of them.
    type Answer: Send + 'static
    where
        Self: Sized;

    /// Carries out a batch. Returns an answer to each request.
    fn carry_out(
        on: JobContext<'_, D>,
        batch: &[&Self],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Answer>>> + Send
    where
        Self: Sized;

    /// Whether it is a [`Job`], which may take all of the time that there is in one try.
    fn is_job(&self) -> bool {
        false
    }

    /// Whether several requests of this kind share a statement.
    fn is_shared(&self) -> bool {
        !self.is_job()
    }

    /// Of several waiting requests, those with the lowest number are sent first.
    ///
    /// Requests of different kinds may overtake each other, since a claim has only one request at a time.
    /// Renewals go first, because their leases are running out; then the requests that free locks; then all
    /// others, in the order in which they came, so that none of them waits for ever.
    fn urgency(&self) -> u8 {
        4
    }

    /// What it is about, if that is the lock of one claim.
    fn about(&self) -> Option<LockRequest<'_>> {
        None
    }

    /// The answer when a transaction has locked a row. `None`: that is an error.
    fn blocked(&self, _cause: &sqlx::Error) -> Option<Self::Answer>
    where
        Self: Sized,
    {
        None
    }
}

/// A request.
pub(crate) trait Request<D: Dialect>: Kind<D> {
    /// Carries out a batch that begins with this request. All have its kind.
    fn carry_out_all<'c>(
        &self,
        on: JobContext<'c, D>,
        batch: &'c [AnyRequest<D>],
    ) -> BoxFuture<'c, sqlx::Result<Vec<AnyAnswer>>>;

    /// The same as [`blocked`](Kind::blocked).
    fn any_blocked(&self, cause: &sqlx::Error) -> Option<AnyAnswer>;
}

pub(crate) type AnyRequest<D> = Arc<dyn Request<D>>;

/// The answer to a request of any kind.
pub(crate) type AnyAnswer = Box<dyn Any + Send>;

impl<D: Dialect, K: Kind<D>> Request<D> for K {
    fn carry_out_all<'c>(
        &self,
        on: JobContext<'c, D>,
        batch: &'c [AnyRequest<D>],
    ) -> BoxFuture<'c, sqlx::Result<Vec<AnyAnswer>>> {
        let of_kind = |one: &'c AnyRequest<D>| (&**one as &dyn Any).downcast_ref::<K>();
        let batch: Vec<&K> = batch.iter().filter_map(of_kind).collect();
        Box::pin(async move {
            let answers = K::carry_out(on, &batch).await?;
            Ok(answers.into_iter().map(|answer| Box::new(answer) as AnyAnswer).collect())
        })
    }

    fn any_blocked(&self, cause: &sqlx::Error) -> Option<AnyAnswer> {
        self.blocked(cause).map(|answer| Box::new(answer) as AnyAnswer)
    }
}

impl<D: Dialect> dyn Request<D> {
    /// The claim for which the request takes a lock.
    pub(crate) fn taker(&self) -> Option<&Claim> {
        self.about()?.taker()
    }
}

/// What work on a connection gets.
pub(crate) struct JobContext<'c, D: Dialect> {
    pub(crate) dialect: &'c D,
    pub(crate) waiters: &'c Waiters,
    pub(crate) conn: &'c mut D::Conn,
}

/// The result of work.
pub(crate) type Done<'c, T> = BoxFuture<'c, sqlx::Result<T>>;

/// Any rare request, which is not batched. It may be carried out several times.
pub(crate) struct Job<D: Dialect, T>(pub(crate) Box<Work<D, T>>);

type Work<D, T> = dyn for<'c> Fn(JobContext<'c, D>) -> Done<'c, T> + Send + Sync;

impl<D: Dialect, T: Send + 'static> Kind<D> for Job<D, T> {
    type Answer = T;

    async fn carry_out(on: JobContext<'_, D>, batch: &[&Self]) -> sqlx::Result<Vec<T>> {
        Ok(vec![(batch[0].0)(on).await?])
    }

    fn is_job(&self) -> bool {
        true
    }
}

/// Which connection a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// The one for all usual requests.
    Main,
    /// The one for requests that wait for a row which a transaction has locked: they must not delay the
    /// others. It is opened when it is first needed, which is rare.
    BlockedRows,
    /// The one of the purge. It is closed after each purge.
    Purge,
}

/// The row of a lock was locked: it was skipped, or the database did not get it in time. Who had locked it is
/// not known.
pub(crate) fn blocked(cause: Option<&sqlx::Error>) -> Error {
    let text = "the row of this lock, or its table, stayed locked: a transaction that has verified the lock is still open, somebody \
                has locked the table (LOCK TABLES, a dump that does, a change of the table), or the database is slow";
    caused_by(Error::new(ErrorKind::Held, text), cause)
}
