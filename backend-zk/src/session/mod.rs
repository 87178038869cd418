//! One session with the servers.

pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod forked;
pub(crate) mod four_letters;
pub(crate) mod limits;
mod negotiated;
mod nodelay;
mod open;
mod places;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod room;
pub(crate) mod runtime;
mod validity;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockwell_core::backend::lock;
use lockwell_core::{Moment, Result};
use tokio::sync::{Notify, Semaphore};
use zookeeper_client::{self as zk, SessionState, StateWatcher};

use self::limits::{Known, Limits, make_mark};
use self::validity::Validity;
use crate::names::CLOCK;
use crate::options::ZkOptions;

/// The number of heartbeats in each timeout of an idle session. The client crate sends a ping after 3/8 of
/// the [connection timeout](crate::session::connect::connection_timeout) without a request; with this number
/// it rarely does.
const BEATS: u32 = 11;

/// One session. Its heartbeats keep the nodes that it created. Dropping its last handle closes it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: zk::Client,
    pub(crate) under_way: Semaphore,
    /// How many acquires have returned their permit of `under_way`.
    pub(crate) turns_ended: AtomicU64,
    pub(crate) options: Arc<ZkOptions>,
    pub(crate) known: Arc<Known>,
    validity: Mutex<(StateWatcher, Validity)>,
    /// Notified when nothing is answered for a while: requests then check their own time limits.
    stalled: Notify,
    /// The bytes of the paths of claims' nodes in this session. [`Room`](room::Room) counts them.
    bytes: AtomicUsize,
    /// The number of heartbeats that are under way. Each has a handle of the session.
    beats: AtomicUsize,
    /// When it was used last.
    used: Mutex<Moment>,
    /// A node that belongs to the session: its heartbeats are writes to this node.
    mark: Mutex<Option<Arc<str>>>,
}

impl Session {
    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// What the state of the connection says about the end of the session.
    fn validity(&self) -> MutexGuard<'_, (StateWatcher, Validity)> {
        let mut guard = lock(&self.validity);
        // The crate reports a new connection before it returns any answer from it. It can report several
        // changes as one, with the last state.
        while let Some(state) = guard.0.changed().now_or_never() {
            if state == SessionState::SyncConnected {
                guard.1.moved(Moment::now());
            }
        }
        guard
    }

    /// The timeout that all servers are known to grant.
    pub(crate) fn timeout(&self) -> Duration {
        self.validity().1.timeout()
    }

    /// How often another connection has taken the session over.
    pub(crate) fn moves(&self) -> u64 {
        self.validity().1.moves()
    }

    /// How long it may take until a heartbeat is reported to the leader. Zero on a single server.
    pub(crate) fn lag(&self) -> Duration {
        self.validity().1.lag()
    }

    /// What the server is that has the session after this number of moves.
    pub(crate) fn served_by(&self, moves: u64, limits: Limits) {
        self.validity().1.served_by(moves, limits.ensemble, limits.lag_of_ensemble());
    }

    /// The servers grant this timeout to the session after this number of moves.
    pub(crate) fn granted(&self, moves: u64, timeout: Duration) {
        self.validity().1.granted(moves, timeout);
    }

    /// All servers have answered, and grant at least this timeout.
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

    /// The end of the session's validity.
    pub(crate) fn deadline(&self) -> Moment {
        self.validity().1.deadline()
    }

    /// Resolves when the session is not valid any more because the servers have granted it a shorter timeout
    /// than at first. Without that, holders know their deadlines already.
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
    /// As long as events arrive, the crate does not notice that requests are lost. So a session that has been
    /// silent for two timeouts counts as over, too.
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

    /// Waits for an answer, but not for longer than the session can live without one.
    ///
    /// Requests are answered in order. So the heartbeat is the watchdog for all of them: a request checks its
    /// own waiting time only while no request has been answered for that time.
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

    /// Records that the session is about to be used.
    pub(crate) fn note_use(&self) {
        *lock(&self.used) = Moment::now();
    }

    /// Whether the session has nodes of claims, or is about to have.
    pub(crate) fn is_in_use(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// The number of handles of the session, without those of its heartbeats. Exact on the thread of the
    /// sessions, where the heartbeats are.
    pub(crate) fn users(self: &Arc<Self>) -> usize {
        Arc::strong_count(self).saturating_sub(self.beats.load(Ordering::Relaxed))
    }

    /// How long the session has been unused and without nodes.
    pub(crate) fn idle_for(&self) -> Duration {
        let used = *lock(&self.used);
        if self.is_in_use() { Duration::ZERO } else { Moment::now().since(used) }
    }

    fn mark(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        lock(&self.mark)
    }

    /// A heartbeat that counts for the [`Validity`], and makes the server apply all earlier changes: a write,
    /// which needs a majority; on a single server any request. It is sent at once. Returns the time at which
    /// it was sent.
    pub(crate) fn sign(&self) -> BoxFuture<'_, Result<Moment, zk::Error>> {
        if self.lag().is_zero() {
            return self.touch();
        }
        let (sent, mark) = (Moment::now(), self.mark().clone());
        let writing = mark.map(|mark| self.client.set_data(&mark, b"", None));
        let work = async move {
            match writing {
                Some(writing) => match writing.await {
                    // An operator has deleted it.
                    Err(zk::Error::NoNode) => self.make_mark().await.map(drop),
                    answer => answer.map(drop),
                },
                None => self.make_mark().await.map(drop),
            }
        };
        async move {
            self.bounded(work).await?;
            self.wrote(sent);
            Ok(sent)
        }
        .boxed()
    }

    /// A request that the session's server answers by itself, after those before it. Since releases 3.8.4 and
    /// 3.9.2 it needs a right to read the node, and a refusal is an answer, too (ZOOKEEPER-2590).
    pub(crate) fn ping(&self) -> impl Future<Output = Result<(), zk::Error>> + Send {
        self.client.check_stat("/").map(|answer| match answer {
            Ok(_) | Err(zk::Error::NoAuth) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// A heartbeat to the session's server only.
    fn touch(&self) -> BoxFuture<'_, Result<Moment, zk::Error>> {
        let (sent, asking) = (Moment::now(), self.ping());
        async move {
            self.bounded(asking).await?;
            self.validity().1.touched(sent);
            Ok(sent)
        }
        .boxed()
    }

    /// When the last heartbeat was sent, if it was answered on the present connection and is recent. The next
    /// heartbeat comes before it is too old, and a server that is silent for that time loses its connection.
    /// A heartbeat proves what was true when it was sent. So late answers, as on a busy machine, prove the
    /// same as quick ones.
    pub(crate) fn recent_sign(&self) -> Option<Moment> {
        let connected = self.client.state() == SessionState::SyncConnected;
        let validity = self.validity();
        let recent = validity.1.timeout() / 2;
        validity.1.proof().filter(|sent| connected && Moment::now().since(*sent) <= recent)
    }

    /// The children of a node, including all changes that were answered to any client before.
    ///
    /// In an ensemble the session's server may lag behind the others. So a transaction that changes nothing
    /// is sent before the list request: it needs a majority, and when it is answered, the server has applied
    /// all earlier changes. `sync` proves less, since a leader answers it at once. The state of a leader can
    /// be older than a follower's: for a moment, because another thread of the leader applies what it has
    /// committed; and as long as the leader does not know that it is cut off.
    pub(crate) async fn list_now(&self, path: &str) -> Result<Vec<String>, zk::Error> {
        self.now(|| self.client.list_children(path)).await
    }

    /// Reads as [`list_now`](Self::list_now) does.
    pub(crate) async fn now<T, F>(&self, read: impl FnOnce() -> F) -> Result<T, zk::Error>
    where
        F: Future<Output = Result<T, zk::Error>>,
    {
        if self.lag().is_zero() {
            return read().await;
        }
        let mut transaction = self.client.new_multi_writer();
        transaction.add_check_version("/", -1)?;
        // Both requests are sent before the wait for the first answer.
        let (agreed, answer) = (transaction.commit(), read());
        match agreed.await {
            Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
            // The majority takes part even if the client may not read the root.
            Ok(_) | Err(zk::MultiWriteError::OperationFailed { .. }) => answer.await,
        }
    }

    /// Creates the node for heartbeats, and returns its time of creation by the server's clock, in
    /// milliseconds. After a lost answer there may be one more, which also ends with the session.
    pub(crate) async fn make_mark(&self) -> Result<i64, zk::Error> {
        let (stat, sequence) = make_mark(&self.options, &self.client).await?;
        *self.mark() = Some(format!("{}/{CLOCK}{sequence}", self.options.base).into());
        Ok(stat.ctime)
    }

    /// A heartbeat. In an ensemble every second one is a write, as long as the session has nodes; the others
    /// are reads, and the next write proves that they were reported. A server that has just taken the session
    /// over gets reads only. Requests are answered in order, so a write would delay them while the servers
    /// elect a leader, and it is not known yet how long the session lives without an answer.
    async fn beat(&self) -> Result<Moment, zk::Error> {
        let only_reads = || {
            let validity = self.validity();
            let (now, age) = (Moment::now(), validity.1.timeout() * 3 / 2 / BEATS);
            validity.1.is_settling(now) || validity.1.proof().is_some_and(|sent| now.since(sent) < age)
        };
        if !self.is_in_use() || only_reads() { self.touch().await } else { self.sign().await }
    }
}
