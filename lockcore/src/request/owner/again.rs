//! A request for a lock that its owner may hold already.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::table::{Hold, Place, ReentrantGuard, Table};
use crate::background::Background;
use crate::request::one::{Checked, timed_out, within};
use crate::request::{Choices, LockRequest, One};
use crate::{LockName, Operation, Result, Wait};

/// A lock that its [`Owner`](crate::Owner) may hold already.
#[derive(Debug)]
pub struct Again {
    table: Arc<Table>,
    one: One,
}

impl Again {
    pub(super) fn request(table: &Arc<Table>, request: LockRequest<One>) -> LockRequest<Self> {
        let LockRequest { background, choices, what: one } = request;
        LockRequest { background, choices, what: Self { table: Arc::clone(table), one } }
    }
}

impl LockRequest<Again> {
    /// Takes the lock if this owner has it already or it is free now; `None` if it is held by another, or another task
    /// of this owner is about to take it.
    ///
    /// # Cancel safety
    /// Safe, as for the request.
    pub async fn try_now(self) -> Result<Option<ReentrantGuard>> {
        let (table, checked) = self.checked(|_, _| Ok(Wait::No))?;
        take(&table, &checked).await
    }

    async fn acquire(self) -> Result<ReentrantGuard> {
        let (table, checked) = self.checked(Choices::until)?;
        // A sibling that takes the lock may wait for longer than this task wants to.
        within(&checked.background.clock, checked.wait, take(&table, &checked)).await?.ok_or_else(|| {
            timed_out(checked.choices.wait, checked.background.capabilities.backend, Some(&checked.name))
        })
    }

    fn checked(
        self,
        wait: impl FnOnce(&Choices, &Background) -> Result<Wait>,
    ) -> Result<(Arc<Table>, Checked)> {
        let Self { background, choices, what: Again { table, one } } = self;
        Ok((table, LockRequest { background, choices, what: one }.checked(wait)?))
    }
}

async fn take(table: &Arc<Table>, checked: &Checked) -> Result<Option<ReentrantGuard>> {
    let visit = Visit { table, name: &checked.name, place: Some(table.place(&checked.name)) };
    let Some(place) = &visit.place else { return Ok(None) };
    if let Some(held) = place.hold() {
        return again(held, checked);
    }
    let taking = match (place.taking.try_lock(), checked.wait) {
        (Ok(taking), _) => taking,
        (Err(_), Wait::No) => return Ok(None),
        (Err(_), _) => place.taking.lock().await,
    };
    // A sibling may have taken it meanwhile.
    if let Some(held) = place.hold() {
        return again(held, checked);
    }
    let Some(guard) = checked.begin().await? else { return Ok(None) };
    let held = table.hold(guard);
    place.keep(&held);
    drop(taking);
    Ok(Some(ReentrantGuard::new(held)))
}

fn again(held: Arc<Hold>, checked: &Checked) -> Result<Option<ReentrantGuard>> {
    held.again(checked.mode)
        .map_err(|error| checked.background.decorate(error, Operation::Acquire, Some(&checked.name)))?;
    Ok(Some(ReentrantGuard::new(held)))
}

/// Somebody is at the place for this name. Dropping it forgets the place if nobody needs it.
struct Visit<'a> {
    table: &'a Table,
    name: &'a LockName,
    place: Option<Arc<Place>>,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.place = None;
        self.table.forget(self.name);
    }
}

impl IntoFuture for LockRequest<Again> {
    type Output = Result<ReentrantGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
