//! A request for a lock that its owner may hold already.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::table::{ReentrantGuard, Table};
use crate::background::Book;
use crate::request::in_time::{InTime, timed_out};
use crate::request::patience::through_grace;
use crate::request::{Checked, Choices, LockRequest, One, running};
use crate::{Error, ErrorWith, LockHandle, Operation, Result, Wait};

/// A lock that its [`Owner`](crate::Owner) may hold already.
#[derive(Debug)]
pub struct Reentrant {
    table: Arc<Table>,
    one: One,
}

impl Reentrant {
    pub(super) fn request(table: &Arc<Table>, request: LockRequest<One>) -> LockRequest<Self> {
        let LockRequest { book, choices, what: one } = request;
        LockRequest { book, choices, what: Self { table: Arc::clone(table), one } }
    }
}

impl LockRequest<Reentrant> {
    /// Takes the lock if this owner has it already or it is free now; `None` if it is held by another, or the
    /// server has granted it to another task of this owner, whose request has not returned yet.
    ///
    /// # Cancel safety
    /// Safe, as for the request.
    #[doc(alias = "try_lock")]
    pub async fn try_now(self) -> Result<Option<ReentrantGuard>> {
        let (table, checked) = self.checked(|_, _| Ok(Wait::No))?;
        let clock = &checked.book.clock;
        through_grace(clock, checked.choices.through_grace, || take(&table, &checked)).await
    }

    /// Waits for the lock, unless this owner has it already, and runs `work` while it is held; the lock is
    /// released at the end if no other guard of the owner is left. See [`run`](LockRequest::run) of a request
    /// for one lock.
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`, and its guard.
    pub async fn run<F, W, T>(self, work: F) -> Result<T, ErrorWith<T>>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future<Output = T>,
    {
        let book = Arc::clone(&self.book);
        let guard = self.acquire().await?;
        running::run(&book, guard.handle(), guard, work).await
    }

    /// As [`run`](Self::run), for work that can fail: see [`try_run`](LockRequest::try_run) of a request for
    /// one lock.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// let owner = lockwell::Locks::in_memory().owner();
    /// owner.lock("orders/42").try_run(async |held| held.check()).await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<F, W, T, E>(self, work: F) -> Result<T, E>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run(work).await.map_err(Error::from)?
    }

    async fn acquire(self) -> Result<ReentrantGuard> {
        let (table, checked) = self.checked(Choices::until)?;
        let late = || timed_out(&checked.book, checked.choices.wait, Some(&checked.name));
        take(&table, &checked).await?.ok_or_else(late)
    }

    fn checked(self, wait: impl FnOnce(&Choices, &Book) -> Result<Wait>) -> Result<(Arc<Table>, Checked)> {
        let Self { book, choices, what: Reentrant { table, one } } = self;
        Ok((table, LockRequest { book, choices, what: one }.checked(wait)?))
    }
}

/// Tasks of an owner that want one lock wait behind the first of them. When it gets the lock, they share it.
async fn take(table: &Arc<Table>, checked: &Checked) -> Result<Option<ReentrantGuard>> {
    let held = tokio::select! {
        biased;
        held = table.held(&checked.name) => held,
        answer = async { InTime::new(checked.clone()).await } => match answer? {
            Some(guard) => table.keep(guard),
            None => return Ok(None),
        },
    };
    held.again(checked.mode)
        .map_err(|error| checked.book.decorate(error, Operation::Acquire, Some(&checked.name)))?;
    Ok(Some(ReentrantGuard::new(held)))
}

impl IntoFuture for LockRequest<Reentrant> {
    type Output = Result<ReentrantGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
