//! A thread with a runtime of its own, for work that must not depend on the application's.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

use super::per_process::PerProcess;
use super::run_blocking::{no_thread, start_thread};
use super::{aside, forward, hooks::hooks};
use crate::{Error, ErrorKind, Result};

/// A thread that drives a runtime of its own for as long as the process lives.
///
/// Its futures go on while the application's runtime is blocked, not driven, or gone. They must never block.
///
/// The thread never calls a `tracing` subscriber or a recorder of metrics itself: one that blocks would stop
/// it. Other threads call them for it.
#[derive(Clone, Debug)]
pub struct OwnRuntime {
    handle: Handle,
}

impl OwnRuntime {
    /// Starts the thread.
    ///
    /// [`Overloaded`](ErrorKind::Overloaded) if the operating system refuses a thread, or what a runtime needs.
    pub fn start(name: &str) -> Result<Self> {
        let (started, waits) = mpsc::sync_channel(1);
        let main = move || {
            let events = forward::from_this_thread();
            aside::never_wait_here();
            let mut builder = Builder::new_current_thread();
            if let Some(hooks) = hooks() {
                (hooks.new_runtime)(&mut builder);
            }
            let runtime = match builder.enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            drop(started.send(Ok(runtime.handle().clone())));
            runtime.block_on(std::future::pending::<()>());
            drop(events);
        };
        start_thread(name, main)?;
        let gone = |_| std::io::Error::other("it ended at once");
        let started = waits.recv().map_err(gone).and_then(|started| started);
        started.map(|handle| Self { handle }).map_err(|why| no_thread(name, why))
    }

    /// Runs a future on the thread, from now on, whether or not anybody waits for the [`Task`]. A panic in it
    /// ends this future alone.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        Task { handle: self.handle.spawn(future) }
    }

    /// Runs this on a thread of its own, which may block. It gets the runtime.
    pub(crate) fn start_blocking(&self, name: &str, work: impl FnOnce(Self) + Send + 'static) -> Result<()> {
        let runtime = self.clone();
        start_thread(name, move || work(runtime))
    }

    /// Waits for a future on the calling thread, which must not be one of a runtime; what it spawns, and its
    /// connections, are driven by this one.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}

/// A future that runs on the thread of an [`OwnRuntime`]: a future of its output.
///
/// # Errors
/// [`Internal`](ErrorKind::Internal) if the future has panicked, or if its thread ended before it.
///
/// # Cancel safety
/// Dropping it does not end the future, which runs to its end while nobody waits for it.
#[derive(Debug)]
pub struct Task<T> {
    handle: JoinHandle<T>,
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(cx).map_err(|error| {
            let text = if error.is_panic() {
                "a background task has panicked"
            } else {
                "the thread of a background task has ended"
            };
            Error::new(ErrorKind::Internal, text).with_source(error)
        })
    }
}

/// A thread that is started when it is first needed, and shared by the whole process.
///
/// A forked child does not inherit threads. A call in the child starts a new one; objects that were made in
/// the parent and are used in the child have none.
#[derive(Debug)]
pub struct SharedRuntime {
    name: &'static str,
    started: PerProcess<OwnRuntime>,
}

impl SharedRuntime {
    /// A thread of this name, not yet started.
    pub const fn new(name: &'static str) -> Self {
        Self { name, started: PerProcess::new() }
    }

    /// The thread. A start that failed is tried again by the next call.
    pub fn get(&self) -> Result<OwnRuntime> {
        self.started.get_or_try_init(|| OwnRuntime::start(self.name))
    }

    /// Runs a future on the thread, from now on, whether or not anybody waits for the [`Task`]. A panic in it
    /// ends this future alone.
    ///
    /// # Panics
    /// If the operating system refuses a thread. [`get`](Self::get) finds that out before.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.get().expect("a thread").spawn(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_runs_what_it_is_given_and_survives_panics() {
        static SHARED: SharedRuntime = SharedRuntime::new("test-shared");
        let runtime = SHARED.get().unwrap();
        let named = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(named.await.unwrap().as_deref(), Some("test-shared"));
        let error = runtime.spawn(async { panic!("as expected") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(format!("{error:#}").contains("as expected"), "{error:#}");
        assert_eq!(SHARED.spawn(async { 7 }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_task_that_is_dropped_runs_to_its_end() {
        let runtime = OwnRuntime::start("test-dropped").unwrap();
        let (go, goes) = tokio::sync::oneshot::channel::<()>();
        let (ended, ends) = tokio::sync::oneshot::channel();
        drop(runtime.spawn(async move {
            goes.await.unwrap();
            ended.send("at its end").unwrap();
        }));
        go.send(()).unwrap();
        assert_eq!(ends.await, Ok("at its end"));
    }

    #[test]
    fn a_task_whose_runtime_ends_returns_an_error() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let own = OwnRuntime { handle: runtime.handle().clone() };
        let task = own.spawn(std::future::pending::<()>());
        drop(runtime);
        let error = Builder::new_current_thread().build().unwrap().block_on(task).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(error.message().contains("has ended"), "{error}");
    }
}
