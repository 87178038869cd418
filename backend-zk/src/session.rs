//! One session with the servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::backend::SharedRuntime;
use lockcore::{Moment, Result};
use tokio::sync::{Notify, Semaphore};
use zookeeper_client::{self as zk, CreateMode, SessionState, StateWatcher};

use crate::connect::connect_for_long;
use crate::names::CLOCK;
use crate::negotiated::ask_after_moves;
use crate::options::Options;
use crate::probe::Limits;
use crate::validity::Validity;

/// The thread that serves the sessions.
///
/// A session must not die with the application's runtime, and must not be starved by it: its heartbeats are what keeps
/// the locks. So every session of the process is served by one thread that does nothing else. Requests may be made on
/// any runtime: they are a message to this thread, and the answer comes through a channel.
pub(crate) static SESSIONS: SharedRuntime = SharedRuntime::new("lockwell-zk");

/// The most acquires of one session that are under way at a time. The client crate's queue has no end.
const UNDER_WAY: usize = 512;

/// The most heartbeats that are under way at a time.
const BEATS_UNDER_WAY: usize = 8;

/// How many heartbeats go out in each timeout of a session that is idle: so many that the client crate, which would send
/// pings after 3/8 of the [connection timeout](crate::connect::connection_timeout), mostly sends none.
const BEATS: u32 = 11;

/// One session. Its heartbeats are what keeps the nodes that it made; when its last handle is dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: zk::Client,
    /// How long a sign of life may take to be reported to the leader. Zero on a single server.
    pub(crate) lag: Duration,
    pub(crate) under_way: Semaphore,
    pub(crate) options: Arc<Options>,
    validity: Mutex<(StateWatcher, Validity)>,
    /// Notified when nothing is answered: requests check their own time limits.
    stalled: Notify,
    /// The number of nodes of claims that it has.
    nodes: AtomicUsize,
    /// When it was used last.
    used: Mutex<Moment>,
    /// A node of the session's own: what it writes to as a sign of life.
    mark: Mutex<Option<Arc<str>>>,
}

impl Session {
    pub(crate) async fn open(options: &Arc<Options>, timeout: Duration, limits: Limits) -> Result<Arc<Self>> {
        let (asked, client) = connect_for_long(options, timeout).await?;
        let opened = Moment::now();
        let timeout = client.session_timeout();
        let mut states = client.state_watcher();
        states.state();
        let validity = Validity::new(timeout, limits.granted, limits.lag(), (asked, opened));
        let session = Arc::new(Self {
            lag: limits.lag(),
            under_way: Semaphore::new(UNDER_WAY),
            options: Arc::clone(options),
            validity: Mutex::new((states.clone(), validity)),
            stalled: Notify::new(),
            nodes: AtomicUsize::new(0),
            used: Mutex::new(opened),
            mark: Mutex::default(),
            client,
        });
        drop(SESSIONS.spawn(beat(Arc::downgrade(&session), states.clone())));
        drop(SESSIONS.spawn(ask_after_moves(Arc::downgrade(&session), states, timeout)));
        tracing::debug!(id = %session.client.session_id(), ?timeout, "session opened");
        Ok(session)
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// What the state of the connection says about the end of the session.
    fn validity(&self) -> MutexGuard<'_, (StateWatcher, Validity)> {
        let mut guard = self.validity.lock().unwrap_or_else(PoisonError::into_inner);
        // The crate tells of a new connection before it hands out any answer that came over it. Several changes can be
        // told as one, of which the last state is known.
        while let Some(state) = guard.0.changed().now_or_never() {
            if state == SessionState::SyncConnected {
                guard.1.moved(Moment::now());
            }
        }
        guard
    }

    /// The timeout that the servers grant, as far as it is sure.
    pub(crate) fn timeout(&self) -> Duration {
        self.validity().1.timeout()
    }

    /// How often another connection has taken the session over.
    pub(crate) fn moves(&self) -> u64 {
        self.validity().1.moves()
    }

    /// The servers grant this timeout to a session that was taken over this often.
    pub(crate) fn granted(&self, moves: u64, timeout: Duration) {
        self.validity().1.granted(moves, timeout);
    }

    /// All servers have been asked, and grant at least this timeout.
    pub(crate) fn know(&self, least: Duration) {
        self.validity().1.know(least);
    }

    /// A write was sent at `sent` and has been answered.
    pub(crate) fn wrote(&self, sent: Moment) {
        self.validity().1.confirmed(sent);
    }

    /// When the latest request was sent that has been answered.
    pub(crate) fn heard(&self) -> Moment {
        self.validity().1.heard()
    }

    /// Until when the session is valid.
    pub(crate) fn deadline(&self) -> Moment {
        self.validity().1.deadline()
    }

    /// Resolves when the session is not valid any more since the servers have granted it less time than at first.
    /// Otherwise those who hold locks have been told their deadlines.
    pub(crate) async fn cut_short(&self) {
        let mut states = self.client.state_watcher();
        loop {
            let (end, timeout) = {
                let validity = self.validity();
                (validity.1.cut_short(), validity.1.timeout())
            };
            match end {
                None => drop(states.changed().await),
                Some(end) if end.has_passed() => return,
                Some(end) => tokio::time::sleep(end.remaining().min(timeout / 8)).await,
            }
        }
    }

    /// Whether no new lock should be taken on it.
    ///
    /// The crate does not notice that our requests get lost as long as events arrive. So a session that has been
    /// silent for another timeout after its first counts as over, too.
    pub(crate) fn is_over(&self) -> bool {
        self.client.state().is_terminated() || self.validity().1.is_over()
    }

    /// Resolves while the session has no connection.
    pub(crate) async fn disconnected(&self) {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        while state == SessionState::SyncConnected {
            state = states.changed().await;
        }
    }

    /// Waits for an answer, at most for as long as the session can live without one.
    ///
    /// Requests are answered in order. So one watchdog serves all of them, the heartbeat: only while nothing has been
    /// answered for that time does a request look how long it has waited itself.
    pub(crate) async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        let (asked, mut answer) = (Moment::now(), std::pin::pin!(answer));
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = self.stalled.notified() => {
                    if Moment::now().since(asked) >= self.timeout() {
                        return Err(zk::Error::Timeout);
                    }
                }
            }
        }
    }

    /// A node of a claim was made, or has gone, or does not matter any more.
    pub(crate) fn count_node(&self, made: bool) {
        if made {
            self.nodes.fetch_add(1, Ordering::Relaxed);
        } else {
            self.note_use();
            self.nodes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that the session is about to be used.
    pub(crate) fn note_use(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Moment::now();
    }

    /// For how long it has not been used and has held nothing.
    pub(crate) fn idle_for(&self) -> Duration {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if self.nodes.load(Ordering::Relaxed) > 0 { Duration::ZERO } else { Moment::now().since(used) }
    }

    fn mark(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sign of life that counts for the [`Validity`], and brings our server up to date: a write, for which a majority
    /// is needed; on a single server any request. It is sent at once; returns when.
    pub(crate) fn sign(&self) -> BoxFuture<'_, Result<Moment, zk::Error>> {
        if self.lag.is_zero() {
            return self.touch();
        }
        let (sent, mark) = (Moment::now(), self.mark().clone());
        let writing = mark.map(|mark| self.client.set_data(&mark, b"", None));
        let work = async move {
            match writing {
                Some(writing) => match writing.await {
                    // An operator has deleted it.
                    Err(zk::Error::NoNode) => self.make_mark().await,
                    answer => answer.map(drop),
                },
                None => self.make_mark().await,
            }
        };
        async move {
            self.bounded(work).await?;
            self.wrote(sent);
            Ok(sent)
        }
        .boxed()
    }

    /// A sign of life to our server only.
    fn touch(&self) -> BoxFuture<'_, Result<Moment, zk::Error>> {
        let (sent, asking) = (Moment::now(), self.client.check_stat("/"));
        async move {
            self.bounded(asking).await?;
            self.validity().1.touched(sent);
            Ok(sent)
        }
        .boxed()
    }

    /// When the last sign of life was sent, if it has been answered on the present connection and is recent: heartbeats
    /// give a new one before it is not, and a server that is silent for so long has lost its connection. What a sign proves
    /// is true as of its sending. So answers that take long, as on a busy machine, are as good as quick ones.
    pub(crate) fn recent_sign(&self) -> Option<Moment> {
        let connected = self.client.state() == SessionState::SyncConnected;
        let validity = self.validity();
        let recent = validity.1.timeout() / 2;
        validity.1.proof().filter(|sent| connected && Moment::now().since(*sent) <= recent)
    }

    /// The children of a node as they are now: all that was answered to anybody before is in it.
    ///
    /// In an ensemble our server may be behind the others. So a transaction that changes nothing goes ahead of the
    /// question: a majority must take part in it, and when it is answered our server has carried out all that came before it.
    /// `sync` proves less, since a leader answers it at once. Its own state is older than a follower's for a moment, as
    /// it is another of its threads that carries out what it has committed; and older than that of all others for as long
    /// as it does not know that it is cut off.
    pub(crate) async fn list_now(&self, path: &str) -> Result<Vec<String>, zk::Error> {
        if self.lag.is_zero() {
            return self.client.list_children(path).await;
        }
        let mut transaction = self.client.new_multi_writer();
        transaction.add_check_version("/", -1)?;
        // Both are sent before it waits for the first answer.
        let (agreed, listed) = (transaction.commit(), self.client.list_children(path));
        match agreed.await {
            Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
            // It is agreed on as well if we may not read the root.
            Ok(_) | Err(zk::MultiWriteError::OperationFailed { .. }) => listed.await,
        }
    }

    /// Makes the node for signs of life. After a lost answer there is one more, which goes with the session, too.
    async fn make_mark(&self) -> Result<(), zk::Error> {
        let head = format!("{}/{CLOCK}", self.options.base);
        let options = CreateMode::EphemeralSequential.with_acls(self.options.acls());
        let (_, sequence) = self.client.create(&head, b"", &options).await?;
        *self.mark() = Some(format!("{head}{sequence}").into());
        Ok(())
    }

    /// A heartbeat. In an ensemble every other one is a write, as long as the session has nodes; the others are reads:
    /// they are signs of life, too, and the next write proves that they were reported. A server that has just taken the
    /// session over is sent reads: requests are answered in order, and a write would wait for the others, which may be
    /// electing a leader, while nobody knows how long the session lives without an answer.
    async fn beat(&self) -> Result<Moment, zk::Error> {
        let only_reads = || {
            let validity = self.validity();
            let (now, age) = (Moment::now(), validity.1.timeout() * 3 / 2 / BEATS);
            validity.1.is_settling(now) || validity.1.proof().is_some_and(|sent| now.since(sent) < age)
        };
        if self.nodes.load(Ordering::Relaxed) == 0 || only_reads() {
            self.touch().await
        } else {
            self.sign().await
        }
    }
}

/// Gives a sign of life whenever there has been none for a while. The client crate does, too, but does not tell
/// when they were answered. The next one does not wait for the answer to the last: on a slow network they would be rare. A
/// new connection gets one at once, since its server may have granted less time.
async fn beat(beating: Weak<Session>, mut states: StateWatcher) {
    let mut under_way = FuturesUnordered::new();
    // When the last one was sent. A new connection has had none.
    let mut last = Some(Moment::now());
    loop {
        let Some(session) = beating.upgrade() else { return };
        let (timeout, heard) = (session.timeout(), session.heard());
        if session.validity().1.is_silent() {
            session.stalled.notify_waiters();
        }
        let state = session.client.state();
        if state.is_terminated() {
            return;
        }
        let now = Moment::now();
        let due = last.map_or(now, |last| last.max(heard).after(timeout / BEATS));
        // While there is no connection, requests would pile up.
        let beats = state == SessionState::SyncConnected && under_way.len() < BEATS_UNDER_WAY;
        let pause = if due > now { due.since(now) } else { timeout / BEATS };
        if due <= now && beats && !session.is_over() {
            last = Some(now);
            under_way.push(async move { session.beat().await });
        } else {
            drop(session);
        }
        let mut pause = std::pin::pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                () = &mut pause => break,
                state = states.changed() => {
                    if state == SessionState::SyncConnected {
                        last = None;
                    }
                    break;
                }
                Some(answer) = under_way.next() => {
                    if let Err(error) = answer {
                        tracing::info!(%error, "a sign of life was not answered");
                    }
                }
            }
        }
    }
}
