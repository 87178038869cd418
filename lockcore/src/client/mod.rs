//! The client that applications use: [`Locks`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod jobs;
mod observe;
mod records;

pub use observe::{Leader, Observation};

use crate::background::Book;
use crate::contract::default_label;
use crate::local::{LocalQueues, Sharing};
use crate::request::{All, Choices, Trace, permit};
use crate::telemetry::Events;
use crate::{
    Campaign, Capabilities, DistributedLock, Error, ErrorKind, HandOff, LockConfig, LockHandle, LockName,
    LockRequest, LockStatus, Mode, Operation, Owner, Requirement, Result, Stats,
};

/// The default lease, if neither the request nor the configuration sets one.
pub const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// A client of one lock server. Cloning is cheap; clones are the same client.
///
/// It implements waiting, lease renewal, loss, cancellation and clean-up. Its backend, a [`DistributedLock`],
/// implements the requests to one kind of server.
///
/// ```
/// # use lockwell_core as lockwell;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// use std::time::Duration;
/// let locks = lockwell::Locks::in_memory();
/// let guard = locks.lock("orders/42").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5)).await?;
/// assert!(guard.is_held());
/// assert!(locks.lock("orders/42").try_now().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Locks {
    book: Arc<Book>,
    defaults: Choices,
}

/// How long [`Locks::close`] waits at most.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

impl Locks {
    /// A client of this backend.
    ///
    /// Fails if the keeper thread, which renews leases, cannot be started.
    pub fn new(backend: Arc<dyn DistributedLock>) -> Result<Self> {
        let book = Book::start(backend)?;
        let promised = book.capabilities();
        let ttl = DEFAULT_TTL.clamp(promised.min_ttl(), promised.max_ttl());
        let defaults = Choices::new(ttl, default_label());
        Ok(Self { book, defaults }.sharing(Sharing::Slices))
    }

    fn sharing(mut self, sharing: Sharing) -> Self {
        let clock = self.book.clock.clone();
        self.defaults.local = Some(LocalQueues::new(sharing, clock));
        self
    }

    /// A client of this backend with the defaults and the requirements of a configuration.
    ///
    /// Fails if the backend does not make the promises that the configuration requires, or does not support
    /// its ttl; and in the cases of [`new`](Self::new).
    pub fn with_config(backend: Arc<dyn DistributedLock>, config: &LockConfig) -> Result<Self> {
        let mut locks = Self::new(backend)?;
        let promised = locks.book.capabilities();
        promised.require(&config.require)?;
        if let Some(ttl) = config.ttl {
            promised.check(Mode::Exclusive, ttl)?;
            locks.defaults.ttl = ttl;
        }
        locks.defaults.wait = config.wait;
        if let Some(label) = &config.label {
            locks.defaults.label = label.as_str().into();
        }
        if let Some(class) = &config.class {
            locks.defaults.class = Some(locks.book.telemetry.class(class)?);
        }
        let in_order = config.server_order || config.require.contains(&Requirement::Fifo);
        match config.hand_off {
            Some(_) if in_order => Err(Error::new(
                ErrorKind::InvalidInput,
                "the configuration wants the order of the server (server_order, or fifo in require), and \
                 hand_off, which passes locks on without the server: remove one of them",
            )),
            Some(hand_off) => Ok(locks.sharing(Sharing::Chosen(hand_off))),
            None if in_order => Ok(locks.server_order()),
            None => Ok(locks),
        }
    }

    /// A client of a new in-memory backend, for tests, and for programs that run as a single process.
    ///
    /// # Panics
    /// If the operating system refuses the keeper thread, as [`std::thread::spawn`] does.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(crate::MemoryLock::new())).expect("a thread for the keeper")
    }

    /// This client, but each request has a place of its own in the queue of the server: all requests of
    /// all processes are served in the order of their arrival ([`fifo`](crate::Requirement::Fifo)).
    ///
    /// Without it, processes are served in turn, not requests. Of all tasks that want one name as an
    /// exclusive lock, one has a claim at the server, and the others queue in memory, in order. A task that
    /// releases the lock passes it on to the next one without a request to the server, for a slice of 2 ms;
    /// then the first in the queue of the server gets it. Each task has a higher [token](crate::FencingToken)
    /// than the one before it. A task that does not take the lock within 2 ms is passed over, and keeps its
    /// place. The place at the server stays when the task that made it is cancelled, if the lock can be passed
    /// on to the next one. On backends that do not promise [`token_blocks`](crate::Requirement::TokenBlocks),
    /// tasks share the place only.
    ///
    /// A lock is passed on only to a task with the same ttl, lock delay, label and traceparent, and not after a
    /// [check](crate::Grant::bind) in a transaction of the server. Readers, permits, owners and campaigns
    /// have places of their own in any case, and [`try_now`](LockRequest::try_now) asks the server.
    /// [`inspect`](Self::inspect) shows one waiter for each process, and of a block of tokens the last one.
    #[must_use]
    pub fn server_order(mut self) -> Self {
        self.defaults.local = None;
        self
    }

    /// A client that passes a lock from task to task without a request to the server up to `max` times and
    /// for up to `span`, rather than for a slice of 2 ms: see [`server_order`](Self::server_order). Then it
    /// releases the lock at the server.
    ///
    /// Each claim reserves `max` more tokens, whether the lock is passed on or not, so `max` is limited to
    /// [`HandOff::MOST`]. On backends that do not promise [`token_blocks`](crate::Requirement::TokenBlocks)
    /// the tasks share the token of the claim.
    ///
    /// This is unfair to other processes within these bounds: the process that is first in the server's queue
    /// waits for up to `max` holders, or for `span` and one more holder. A lock is passed on only in the
    /// first third of its lease. If the lock is lost, its guard is `Lost`, and the next task claims the lock
    /// at the server.
    #[must_use]
    pub fn hand_off(self, max: u32, span: Duration) -> Self {
        self.sharing(Sharing::Chosen(HandOff::new(max, span)))
    }

    /// A client whose requests have the [traceparent](crate::TraceParent) that `current` yields, unless they
    /// [say](LockRequest::traceparent) another: [`inspect`](Self::inspect) shows it beside the label. It is called
    /// when a claim is made, by the task that polls the request, so it can read the span of that task. What is
    /// no traceparent is left out.
    ///
    /// With different traceparents, tasks pass a lock on at the server only, as with different labels: see
    /// [`server_order`](Self::server_order). Tasks that share a place at the server are shown as the one that
    /// made it.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// let locks = lockwell::Locks::in_memory().traceparent_from(|| std::env::var("TRACEPARENT").ok());
    /// ```
    ///
    /// With the crate `tracing-opentelemetry`:
    ///
    /// ```text
    /// use opentelemetry::trace::TraceContextExt as _;
    /// use tracing_opentelemetry::OpenTelemetrySpanExt as _;
    ///
    /// let locks = locks.traceparent_from(|| {
    ///     let context = tracing::Span::current().context();
    ///     let span = context.span().span_context().clone();
    ///     Some(format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8()))
    /// });
    /// ```
    #[must_use]
    pub fn traceparent_from(mut self, current: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.defaults.trace = Trace::Found(Arc::new(current));
        self
    }

    /// What this client promises: what its backend does, and [`fifo`](crate::Requirement::Fifo) only with
    /// [`server_order`](Self::server_order). A client that connects with its first request
    /// [presumes](Capabilities::is_presumed) some of it until then.
    pub fn capabilities(&self) -> &Capabilities {
        match self.defaults.local {
            None => self.book.capabilities(),
            Some(_) => self.book.in_turns(),
        }
    }

    /// The backend itself.
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.book.backend
    }

    /// A request for the exclusive lock. Await it to wait for the lock; see [`LockRequest`] for the options.
    #[doc(alias = "acquire")]
    #[doc(alias = "mutex")]
    pub fn lock<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest {
        self.request(name, Ok(Mode::Exclusive))
    }

    /// A request for the writer's side of a reader-writer lock. The same as [`lock`](Self::lock).
    pub fn write<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest {
        self.lock(name)
    }

    /// A request for the reader's side of a reader-writer lock: together with other readers, never with a
    /// writer.
    pub fn read<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest {
        self.request(name, Ok(Mode::Shared))
    }

    /// A request for one of `limit` permits of a semaphore. While another limit is in use, it waits for the end of that.
    #[doc(alias = "acquire")]
    #[doc(alias = "semaphore")]
    pub fn permit<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N, limit: u32) -> LockRequest {
        self.request(name, permit(limit))
    }

    fn request<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N, mode: Result<Mode>) -> LockRequest {
        LockRequest::one(&self.book, &self.defaults, name, mode)
    }

    /// A request for several exclusive locks: all of them or none, within the wait.
    ///
    /// Such requests cannot deadlock each other, since all take their locks in the order of the names. A
    /// repeated name counts once. If all locks are free, they are taken in one round trip, if the backend can
    /// take several locks at once. [`LockRequest::wait`] is for all together, [`LockRequest::ttl`] for each;
    /// each has its own token. The limits of a hold count from the moment when all are held.
    /// [`LockRequest::reading`] adds names that are held as a reader.
    pub fn lock_all<I>(&self, names: I) -> LockRequest<All>
    where
        I: IntoIterator,
        I::Item: TryInto<LockName, Error: Into<Error>>,
    {
        LockRequest::new(&self.book, &self.defaults, All::new(names))
    }

    /// A new owner, for re-entrant locks: an owner may take a lock again that it holds already.
    pub fn owner(&self) -> Owner {
        Owner::new(&self.book, &self.defaults)
    }

    /// A campaign for leadership under this name. Await it to lead; see [`LockRequest`] for the options.
    pub fn campaign<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest<Campaign> {
        Campaign::request(self.lock(name))
    }

    /// Campaigns, and runs `work` for each term of leadership. The same as
    /// `locks.campaign(name)`[`.run_as_leader(work)`](LockRequest::run_as_leader).
    pub async fn run_as_leader<N, F, W, T>(&self, name: N, work: F) -> Result<T>
    where
        N: TryInto<LockName, Error: Into<Error>>,
        F: FnMut(LockHandle) -> W,
        W: Future<Output = T>,
    {
        self.campaign(name).run_as_leader(work).await
    }

    /// Who leads under this name: a stream of the changes.
    pub fn observe<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Observation {
        Observation::new(&self.book, name.try_into().map_err(Into::into))
    }

    /// The holders of a lock and its waiters, of whom the first are named. The answer may be outdated when it arrives: use it
    /// for display, not for decisions. In a grace period of the server holders may be missing
    /// ([`LockStatus::unknown_for`]).
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn inspect<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<LockStatus> {
        let decorate = |error, name| self.book.decorate(error, Operation::Inspect, name);
        let name = name.try_into().map_err(|error| decorate(error.into(), None))?;
        self.book.backend.inspect(&name).await.map_err(|error| decorate(error, Some(&name)))
    }

    /// All locks that are held, in the order of their names, for display: see [`inspect`](Self::inspect). It
    /// sends a request for each of them, one after the other. In a grace period of the server
    /// ([`grace_left`](Self::grace_left)) locks may be missing.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn held(&self) -> Result<Vec<LockStatus>> {
        let names = self.book.backend.names().await;
        let mut names = names.map_err(|error| self.book.decorate(error, Operation::Inspect, None))?;
        names.sort_unstable();
        names.dedup();
        let mut held = Vec::new();
        for name in names {
            match self.inspect(&name).await {
                Ok(status) if status.is_held() => held.push(status),
                Ok(_) => (),
                Err(error) if error.is_retryable() => return Err(error),
                // A record of another program under one name must not hide the others.
                Err(error) => {
                    tracing::info!(lockwell.name = %name, error = format!("{error:#}"), "not inspected");
                }
            }
        }
        Ok(held)
    }

    /// Releases a lock from all its holders, and returns their number. It is for operators who know that the
    /// holders are dead.
    ///
    /// A live holder learns of the loss at its next renewal. Until then, or until its deadline, its guard
    /// reports that the lock is held.
    ///
    /// # Cancel safety
    /// **Not** cancel safe: when this future is dropped, the lock may or may not have been released.
    pub async fn force_release<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<usize> {
        let decorate = |error, name| self.book.decorate(error, Operation::ForceRelease, name);
        let name = name.try_into().map_err(|error| decorate(error.into(), None))?;
        tracing::warn!(lockwell.name = %name, "freed by force");
        self.book.backend.force_release(&name).await.map_err(|error| decorate(error, Some(&name)))
    }

    /// For how long the server grants nothing, because it may have forgotten grants. `None`: it grants locks,
    /// or this backend has no grace periods. If the locks are on several servers, this is the longest of
    /// their times.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn grace_left(&self) -> Result<Option<Duration>> {
        let decorate = |error| self.book.decorate(error, Operation::Inspect, None);
        self.book.backend.grace_left().await.map_err(decorate)
    }

    /// Begins a grace period by hand, and returns its length: nothing is granted until each lease has ended
    /// that the server may have forgotten. Claims that wait go on waiting, and others fail with
    /// [`GracePeriod`](crate::ErrorKind::GracePeriod). Holders keep their locks.
    ///
    /// It is for operators who know that the server lacks grants and cannot notice that by itself, for
    /// example after a move by logical replication. A period that is under way begins again.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where there are no grace periods: PostgreSQL and Redis
    /// have them with `durability=grace`, which is the default for Redis Sentinel and Cluster.
    ///
    /// # Cancel safety
    /// **Not** cancel safe: when this future is dropped, the period may or may not have begun.
    pub async fn begin_grace(&self) -> Result<Duration> {
        let decorate = |error| self.book.decorate(error, Operation::BeginGrace, None);
        tracing::warn!("a grace period is begun by hand");
        self.book.backend.begin_grace().await.map_err(decorate)
    }

    /// Says that the servers have forgotten no grant, so that they grant locks from now on.
    ///
    /// It is for those who know that a server is new, and do not want its first claims to wait for a grace
    /// period: no program can tell a new server from one that has lost everything. If a lock is held of which
    /// a server does not know, another holder can get it.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where there are no grace periods, and on PostgreSQL,
    /// whose new tables grant locks at once.
    ///
    /// # Cancel safety
    /// **Not** cancel safe: when this future is dropped, the servers may or may not grant locks.
    pub async fn end_grace(&self) -> Result<()> {
        let decorate = |error| self.book.decorate(error, Operation::BeginGrace, None);
        tracing::warn!("a grace period is ended by hand");
        self.book.backend.end_grace().await.map_err(decorate)
    }

    /// Counters of the work of this client and its clones in the background.
    pub fn stats(&self) -> Stats {
        self.book.stats()
    }

    /// A stream of the events of this client and its clones from now on: locks that are waited for, granted,
    /// in doubt, lost and released. Without a stream no events are recorded.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// use lockwell::LockEvent;
    /// let locks = lockwell::Locks::in_memory();
    /// let mut events = locks.events();
    /// locks.lock("orders/42").await?.release().await?;
    /// assert!(matches!(events.next().await, Some(LockEvent::Granted { .. })));
    /// assert!(matches!(events.next().await, Some(LockEvent::Released { .. })));
    /// locks.close().await?;
    /// assert_eq!(events.next().await, None);
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> Events {
        match self.book.check_open() {
            Ok(()) => self.book.telemetry.events(),
            Err(_) => Events::ended(),
        }
    }

    /// Waits until all releases under way have their answers, and ends connections and sessions in an orderly
    /// way. It should be the last call of a program. Without it, the program may end before a release that a
    /// dropped guard has begun is sent. A program that no longer has its clients calls
    /// [`wait_for_releases`](crate::wait_for_releases) instead.
    ///
    /// It closes all clones of this client: requests that wait for a lock end with an error of kind
    /// [`Closed`](crate::ErrorKind::Closed) and leave their queues, and later requests are refused with that
    /// error. Guards that are still alive lose their locks at their deadlines. It takes five seconds at most;
    /// see [`close_within`](Self::close_within).
    ///
    /// # Errors
    /// [`UnknownOutcome`](crate::ErrorKind::UnknownOutcome) if some releases have no answer by then; the
    /// message has their number. Those locks are free when their leases end, or earlier if the keeper
    /// succeeds while the process lives.
    ///
    /// # Cancel safety
    /// The client is closed by the first poll. Dropping the future leaves the rest to the keeper.
    pub async fn close(self) -> Result<()> {
        self.close_within(CLOSE_LIMIT).await
    }

    /// [Closes](Self::close) the client within this time.
    ///
    /// # Cancel safety
    /// As [`close`](Self::close).
    pub async fn close_within(self, limit: Duration) -> Result<()> {
        self.book.close(limit).await
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("backend", &self.book.backend)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod local_orders;
#[cfg(test)]
mod tests;
