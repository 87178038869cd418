//! A request for several locks at once.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::in_time::{InTime, timed_out, unanswered, within};
use super::patience::{may_pass, through_grace};
use super::{Checked, LockRequest, operation, running};
use crate::life::Limits;
use crate::{
    Claim, Clock, Error, ErrorKind, ErrorWith, LockAllGuard, LockGuard, LockHandle, LockName, Mode,
    Operation, Result, Wait,
};

/// How often a request that waits for more locks checks whether it still holds those that it has.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Several locks, all of them or none.
#[derive(Debug)]
pub struct All {
    /// In order, each name once: all requests for several names take them in this order, so no two wait for
    /// each other.
    pub(crate) names: Result<Vec<(LockName, Mode)>>,
}

impl All {
    pub(crate) fn new<I>(names: I) -> Self
    where
        I: IntoIterator,
        I::Item: TryInto<LockName, Error: Into<Error>>,
    {
        Self { names: Ok(Vec::new()) }.and(names, Mode::Exclusive)
    }

    /// Adds these names. A name that is wanted both alone and for reading is held alone.
    fn and<I>(self, names: I, mode: Mode) -> Self
    where
        I: IntoIterator,
        I::Item: TryInto<LockName, Error: Into<Error>>,
    {
        let names = self.names.and_then(|mut all| {
            for name in names {
                all.push((name.try_into().map_err(Into::<Error>::into)?, mode));
            }
            all.sort_by_cached_key(|(name, mode)| (name.clone(), *mode == Mode::Shared));
            all.dedup_by(|(later, _), (first, _)| later == first);
            Ok(all)
        });
        Self { names }
    }
}

impl LockRequest<All> {
    /// Adds names that are locked for reading: together with other readers, never with a writer. If the
    /// request has a name already, that lock stays exclusive.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// let locks = lockwell::Locks::in_memory();
    /// let all = locks.lock_all(["orders/42"]).reading(["catalogue"]).await?;
    /// assert!(locks.read("catalogue").try_now().await?.is_some());
    /// assert!(locks.write("catalogue").try_now().await?.is_none());
    /// all.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn reading<I>(mut self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: TryInto<LockName, Error: Into<Error>>,
    {
        self.what = self.what.and(names, Mode::Shared);
        self
    }

    /// Waits for the locks and runs `work` while all of them are held; they are released at the end. `work`
    /// gets a view of each, in the order of the names.
    ///
    /// If one of them is lost, the future of `work` is dropped at its next await: see
    /// [`run`](LockRequest::run) of a request for one lock.
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`, and the locks are released in the background.
    pub async fn run<F, W, T>(self, work: F) -> Result<T, ErrorWith<T>>
    where
        F: FnOnce(Vec<LockHandle>) -> W,
        W: Future<Output = T>,
    {
        let book = Arc::clone(&self.book);
        let guard = self.await?;
        let held = guard.guards().iter().map(LockGuard::handle).collect();
        running::run(&book, held, guard, work).await
    }

    /// As [`run`](Self::run), for work that can fail: see [`try_run`](LockRequest::try_run) of a request for
    /// one lock.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// let locks = lockwell::Locks::in_memory();
    /// let both = locks.lock_all(["account/1", "account/2"]);
    /// both.try_run(async |held| held.iter().try_for_each(|lock| lock.check())).await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<F, W, T, E>(self, work: F) -> Result<T, E>
    where
        F: FnOnce(Vec<LockHandle>) -> W,
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run(work).await.map_err(Error::from)?
    }

    /// Takes the locks if all are free now; `None` if one of them is held by another. Those that were granted
    /// before the refusal came are then released in the background.
    ///
    /// # Cancel safety
    /// Safe, as for the request: what has been granted is released.
    #[doc(alias = "try_lock")]
    pub async fn try_now(mut self) -> Result<Option<LockAllGuard>> {
        let names = self.checked()?;
        let limits = std::mem::take(&mut self.choices.limits);
        let (clock, grace) = (&self.book.clock, self.choices.through_grace);
        let granted = through_grace(clock, grace, || self.at_once(&names, false)).await?;
        Ok((granted.len() == names.len()).then(|| LockAllGuard::limited(granted, limits)))
    }

    /// The names, if everything is in order.
    fn checked(&self) -> Result<Vec<(LockName, Mode)>> {
        let bad = |error: Error, name| self.book.decorate(error, Operation::Acquire, name);
        self.book.check_open().map_err(|error| bad(error, None))?;
        let names = self.what.names.as_ref().map_err(|error| bad(error.duplicate(), None))?;
        // Invalid options are refused for an empty list of names, too.
        self.choices.check(&self.book, Mode::Exclusive).map_err(|error| bad(error, first(names)))?;
        for (name, mode) in names {
            self.choices.check(&self.book, *mode).map_err(|error| bad(error, Some(name)))?;
        }
        Ok(names.clone())
    }

    /// Asks for all locks at the same time, without waiting: one round trip where all are free. Returns the
    /// locks before the first refusal; those after it are released, so that no request holds a lock and waits
    /// for an earlier one.
    ///
    /// `waits`: whoever holds one of them in another way is waited for, so that is a refusal.
    async fn at_once(&self, names: &[(LockName, Mode)], waits: bool) -> Result<Vec<LockGuard>> {
        let claim = |(name, mode): &(LockName, Mode)| -> Claim {
            self.choices.claim(&self.book, name.clone(), *mode, Wait::No)
        };
        let claims = names.iter().map(claim).collect();
        let answers = operation::acquire_each(&self.book, claims, self.choices.limits).await;
        let or_refused = |answer: Result<_>| match answer {
            Err(error) if waits && error.kind() == ErrorKind::KindClash && error.is_retryable() => Ok(None),
            answer => answer,
        };
        let granted: Vec<Option<LockGuard>> = answers.into_iter().map(or_refused).collect::<Result<_>>()?;
        Ok(granted.into_iter().map_while(|guard| guard).collect())
    }

    async fn acquire(mut self) -> Result<LockAllGuard> {
        let names = self.checked()?;
        // The application cannot report progress for a lock before it has the guard.
        let limits = std::mem::take(&mut self.choices.limits);
        let wait = self
            .choices
            .until(&self.book)
            .map_err(|error| self.book.decorate(error, Operation::Acquire, first(&names)))?;
        let clock = &self.book.clock;
        // The requests of `at_once` have no wait of their own. Their answers are the first of the server.
        let is_over = || match wait {
            Wait::No => true,
            Wait::Until(end) => clock.has_passed(end),
            Wait::Forever => false,
        };
        let granted = match within(clock, wait, async { self.at_once(&names, true).await.map(Some) }).await {
            Ok(granted) => granted.ok_or_else(|| unanswered(&self.book, self.choices.wait, first(&names)))?,
            // The patience is that of each claim. What was granted is being released.
            Err(error) if may_pass(&error) && !is_over() => Vec::new(),
            Err(error) => return Err(error),
        };
        let Some((name, _)) = names.get(granted.len()) else { return self.all_of(granted, limits) };
        if is_over() {
            return Err(timed_out(&self.book, self.choices.wait, Some(name)));
        }
        self.in_order(granted, &names, wait, limits).await
    }

    async fn in_order(
        &self,
        mut granted: Vec<LockGuard>,
        names: &[(LockName, Mode)],
        wait: Wait,
        limits: Limits,
    ) -> Result<LockAllGuard> {
        for (name, mode) in &names[granted.len()..] {
            let (book, choices) = (Arc::clone(&self.book), self.choices.clone());
            let checked = Checked { book, choices, name: name.clone(), mode: *mode, wait };
            let answer = tokio::select! {
                biased;
                answer = InTime::new(checked) => answer?,
                lost = look_for_loss(&self.book.clock, &granted) => return Err(self.lost(lost)),
            };
            granted.push(answer.ok_or_else(|| timed_out(&self.book, self.choices.wait, Some(name)))?);
        }
        self.all_of(granted, limits)
    }

    fn all_of(&self, granted: Vec<LockGuard>, limits: Limits) -> Result<LockAllGuard> {
        match granted.iter().find(|guard| !guard.is_held()) {
            None => Ok(LockAllGuard::limited(granted, limits)),
            Some(lost) => Err(self.lost(lost)),
        }
    }

    fn lost(&self, guard: &LockGuard) -> Error {
        let error = Error::new(ErrorKind::Lost, "the lock was lost while others were waited for");
        self.book.decorate(error, Operation::Acquire, Some(guard.name()))
    }
}

fn first(names: &[(LockName, Mode)]) -> Option<&LockName> {
    names.first().map(|(name, _)| name)
}

/// Waits until one of the locks is lost. It checks all of them once a second, which is cheap even with
/// thousands of locks.
async fn look_for_loss<'a>(clock: &Clock, granted: &'a [LockGuard]) -> &'a LockGuard {
    loop {
        clock.sleep(CHECK_EVERY).await;
        if let Some(lost) = granted.iter().find(|guard| !guard.is_held()) {
            return lost;
        }
    }
}

impl IntoFuture for LockRequest<All> {
    type Output = Result<LockAllGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
