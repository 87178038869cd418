//! A request for a lock that its owner may hold already.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::table::{Hold, OwnedName, ReentrantGuard, Table};
use crate::background::Book;
use crate::request::in_time::{InTime, timed_out};
use crate::request::patience::through_grace;
use crate::request::{Checked, Choices, LockRequest, One, running};
use crate::{Error, ErrorWith, LockHandle, LockName, Operation, Result, Wait};

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
    /// Takes the lock if this owner has it already or it is free now; `None` if it is held by another, or
    /// another task of this owner is about to take it.
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
        take(&table, &checked).await?.ok_or_else(|| {
            timed_out(checked.choices.wait, checked.book.capabilities().backend(), Some(&checked.name))
        })
    }

    fn checked(self, wait: impl FnOnce(&Choices, &Book) -> Result<Wait>) -> Result<(Arc<Table>, Checked)> {
        let Self { book, choices, what: Reentrant { table, one } } = self;
        Ok((table, LockRequest { book, choices, what: one }.checked(wait)?))
    }
}

async fn take(table: &Arc<Table>, checked: &Checked) -> Result<Option<ReentrantGuard>> {
    let visit = Visit { table, name: &checked.name, owned: Some(table.owned(&checked.name)) };
    let Some(owned) = &visit.owned else { return Ok(None) };
    if let Some(held) = owned.hold() {
        return again(held, checked);
    }
    let clock = &checked.book.clock;
    let taking = match (owned.taking.try_lock(), checked.wait) {
        (Ok(taking), _) => Some(taking),
        (Err(_), Wait::No) => return Ok(None),
        // Another task of the owner that takes the lock may wait for longer than this one.
        (Err(_), Wait::Until(end)) => {
            let Some(taking) = clock.timeout_at(end, owned.turn(clock)).await else {
                let decorate = |error| checked.book.decorate(error, Operation::Acquire, Some(&checked.name));
                return owned.silence().map_or(Ok(None), |error| Err(decorate(error)));
            };
            taking
        }
        (Err(_), Wait::Forever) => owned.turn(clock).await,
    };
    // Another task may have taken it meanwhile.
    if let Some(held) = owned.hold() {
        return again(held, checked);
    }
    // Two tasks take it at the same time if one of them was not driven for a while. They exclude each other
    // at the server, and whoever gets the lock has it for the owner.
    let acquire = InTime::new(checked.clone());
    owned.note_claim(acquire.claim());
    let answer = tokio::select! {
        biased;
        held = owned.held() => return again(held, checked),
        answer = owned.pulse.over(acquire) => answer?,
    };
    let Some(guard) = answer else { return Ok(None) };
    let held = table.hold(guard);
    owned.keep(&held);
    drop(taking);
    Ok(Some(ReentrantGuard::new(held)))
}

fn again(held: Arc<Hold>, checked: &Checked) -> Result<Option<ReentrantGuard>> {
    held.again(checked.mode)
        .map_err(|error| checked.book.decorate(error, Operation::Acquire, Some(&checked.name)))?;
    Ok(Some(ReentrantGuard::new(held)))
}

/// A task uses what its owner knows of this name. Dropping it forgets that if nobody needs it.
struct Visit<'a> {
    table: &'a Table,
    name: &'a LockName,
    owned: Option<Arc<OwnedName>>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.owned = None;
        self.table.forget(self.name);
    }
}

impl IntoFuture for LockRequest<Reentrant> {
    type Output = Result<ReentrantGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
