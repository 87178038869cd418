//! A request for one lock.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::in_time::InTime;
use super::patience::through_grace;
use super::{Checked, Choices, LockRequest, One, running};
use crate::background::Book;
use crate::{Error, ErrorWith, LockGuard, LockHandle, Operation, Result, Wait};

impl LockRequest<One> {
    /// Takes the lock if it is free now; `None` if another claim holds it. See
    /// [`through_grace`](LockRequest::through_grace) for a server that does not know that for a while.
    ///
    /// # Cancel safety
    /// Safe, as for the request: a grant that arrives after the future was dropped is released at once.
    #[doc(alias = "try_lock")]
    #[doc(alias = "try_acquire")]
    pub async fn try_now(self) -> Result<Option<LockGuard>> {
        let checked = self.checked(|_, _| Ok(Wait::No))?;
        through_grace(&checked.book.clock, checked.choices.through_grace, || checked.begin()).await
    }

    /// Waits for the lock and runs `work` while it is held; the lock is released at the end.
    ///
    /// `work` gets a [`LockHandle`]. If the lock is lost, the future of `work` is dropped at its next await,
    /// and the error is of kind [`Lost`](crate::ErrorKind::Lost). Work that never awaits cannot be stopped;
    /// let it check [`LockHandle::is_held`]. If the loss is noticed after the end of the work, the value of
    /// the work is in the [error](ErrorWith::into_left).
    ///
    /// # Cancel safety
    /// Dropping this future drops that of `work`, and the lock is released in the background.
    pub async fn run<F, W, T>(self, work: F) -> Result<T, ErrorWith<T>>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future<Output = T>,
    {
        let book = Arc::clone(&self.book);
        let guard = self.await?;
        running::run(&book, guard.handle(), guard, work).await
    }

    /// As [`run`](Self::run), for work that can fail: one `?` is enough for both errors.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locks = lockwell::Locks::in_memory();
    /// let work = async |_held| Ok::<_, Box<dyn std::error::Error>>("42".parse::<u32>()?);
    /// let number = locks.lock("orders/42").try_run(work).await?;
    /// assert_eq!(number, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// That of the work. If the lock was lost before the end of the work, the error is of kind
    /// [`Lost`](crate::ErrorKind::Lost), and the result of the work is dropped; `run` returns it.
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

    /// Checks the name and the options. Nothing has been sent.
    pub(crate) fn checked(self, wait: impl FnOnce(&Choices, &Book) -> Result<Wait>) -> Result<Checked> {
        let Self { book, choices, what: One { name, mode } } = self;
        let bad = |error, name| book.decorate(error, Operation::Acquire, name);
        let name = name.map_err(|error| bad(error, None))?;
        let checked = mode.and_then(|mode| {
            book.check_open()?;
            choices.check(&book, mode)?;
            Ok((mode, wait(&choices, &book)?))
        });
        let (mode, wait) = checked.map_err(|error| bad(error, Some(&name)))?;
        Ok(Checked { book, choices, name, mode, wait })
    }
}

impl IntoFuture for LockRequest<One> {
    type Output = Result<LockGuard>;
    type IntoFuture = Acquire;

    fn into_future(self) -> Acquire {
        Acquire(State::New(Some(self)))
    }
}

/// The future of a [`LockRequest`]: waits for the lock. The wait begins when it is first polled.
///
/// # Cancel safety
/// See [`LockRequest`].
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire(State);

enum State {
    New(Option<LockRequest>),
    UnderWay(InTime),
}

impl Future for Acquire {
    type Output = Result<LockGuard>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<LockGuard>> {
        if let State::New(request) = &mut self.0 {
            let request = request.take().expect("not polled after its end");
            let checked = request.checked(Choices::until)?;
            self.0 = State::UnderWay(InTime::new(checked));
        }
        let State::UnderWay(work) = &mut self.0 else { unreachable!("set above") };
        let outcome = match std::task::ready!(Pin::new(&mut *work).poll(cx)) {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => Err(work.timed_out()),
            Err(error) => Err(error),
        };
        // Whatever is still under way goes on in the background.
        self.0 = State::New(None);
        Poll::Ready(outcome)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}
