//! One session with the servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::{Moment, Result};
use tokio::sync::Semaphore;
use zookeeper_client::{self as zk, CreateMode, SessionState};

use crate::belief::Belief;
use crate::connect::connect_for_long;
use crate::granted::ask_after_moves;
use crate::names::CLOCK;
use crate::options::Options;
use crate::probe::Limits;
use crate::thread;

/// The most acquires of one session that are under way at a time. The client crate's queue has no end.
const UNDER_WAY: usize = 512;

/// The most heartbeats that are under way at a time.
const BEATS_UNDER_WAY: usize = 8;

/// One session. Its heartbeats are what keeps the nodes that it made; when its last handle is dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: zk::Client,
    /// How long a sign of life may take to be reported to the leader. Zero on a single server.
    pub(crate) lag: Duration,
    pub(crate) under_way: Semaphore,
    pub(crate) options: Arc<Options>,
    belief: Mutex<(zk::StateWatcher, Belief)>,
    /// How many nodes of claims it has.
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
        let belief = Belief::new(timeout, limits.granted, limits.lag(), (asked, opened));
        let session = Arc::new(Self {
            lag: limits.lag(),
            under_way: Semaphore::new(UNDER_WAY),
            options: Arc::clone(options),
            belief: Mutex::new((states.clone(), belief)),
            nodes: AtomicUsize::new(0),
            used: Mutex::new(opened),
            mark: Mutex::default(),
            client,
        });
        drop(thread::spawn(beat(Arc::downgrade(&session), states.clone())));
        drop(thread::spawn(ask_after_moves(Arc::downgrade(&session), states, timeout)));
        tracing::debug!(id = %session.client.session_id(), ?timeout, "session opened");
        Ok(session)
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// What is believed of the session, after what has become of its connection.
    pub(crate) fn belief(&self) -> impl std::ops::DerefMut<Target = (zk::StateWatcher, Belief)> + '_ {
        let mut guard: MutexGuard<'_, _> = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.belief().1.timeout()
    }

    /// A write was sent at `sent` and has been answered.
    pub(crate) fn answered(&self, sent: Moment) {
        self.belief().1.confirmed(sent);
    }

    /// Until when the session may be believed to be alive.
    pub(crate) fn deadline(&self) -> Moment {
        self.belief().1.deadline()
    }

    /// Resolves when the session is not to be believed in any more since the servers have granted it less time than at first.
    /// Otherwise those who hold locks have been told their deadlines.
    pub(crate) async fn cut_short(&self) {
        let mut states = self.client.state_watcher();
        loop {
            let (end, timeout) = {
                let belief = self.belief();
                (belief.1.cut_short(), belief.1.timeout())
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
        self.client.state().is_terminated() || self.belief().1.is_silent()
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
    pub(crate) async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        let limit = self.belief().1.patience();
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(zk::Error::Timeout))
    }

    /// A node of a claim is made, or gone, or no concern of ours any more.
    pub(crate) fn count_node(&self, made: bool) {
        if made {
            self.nodes.fetch_add(1, Ordering::Relaxed);
        } else {
            self.note_use();
            self.nodes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Somebody is about to use it.
    pub(crate) fn note_use(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Moment::now();
    }

    /// For how long nobody has used it and it holds nothing.
    pub(crate) fn idle_for(&self) -> Duration {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if self.nodes.load(Ordering::Relaxed) > 0 { Duration::ZERO } else { Moment::now().since(used) }
    }

    fn mark(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sign of life that proves what [`Belief`] counts, and brings our server up to date. It is sent at once.
    ///
    /// A single server need not write for it.
    pub(crate) fn sign(&self) -> BoxFuture<'_, Result<(), zk::Error>> {
        let sent = Moment::now();
        let (mark, base) = (self.mark().clone(), &self.options.base);
        let answer: BoxFuture<'_, Result<(), zk::Error>> = if self.lag.is_zero() {
            let root = if base.is_empty() { "/" } else { base };
            self.client.sync(root).boxed()
        } else if let Some(mark) = mark {
            let writing = self.client.set_data(&mark, b"", None);
            async move {
                match writing.await {
                    // An operator has deleted it.
                    Err(zk::Error::NoNode) => self.make_mark().await,
                    answer => answer.map(drop),
                }
            }
            .boxed()
        } else {
            self.make_mark().boxed()
        };
        async move {
            answer.await?;
            self.answered(sent);
            Ok(())
        }
        .boxed()
    }

    /// Makes the node for signs of life. After a lost answer there is one more, which goes with the session, too.
    async fn make_mark(&self) -> Result<(), zk::Error> {
        let head = format!("{}/{CLOCK}", self.options.base);
        let options = CreateMode::EphemeralSequential.with_acls(self.options.acls());
        let (_, sequence) = self.client.create(&head, b"", &options).await?;
        *self.mark() = Some(format!("{head}{sequence}").into());
        Ok(())
    }

    /// The same, with an end.
    pub(crate) async fn confirm(&self) -> Result<(), zk::Error> {
        self.bounded(self.sign()).await
    }

    /// A sign of life as it is due: to our server only as long as the session holds nothing.
    async fn beat(&self) -> Result<(), zk::Error> {
        if self.nodes.load(Ordering::Relaxed) > 0 {
            return self.confirm().await;
        }
        let sent = Moment::now();
        self.bounded(self.client.check_stat("/")).await?;
        self.belief().1.touched(sent);
        Ok(())
    }
}

/// Gives signs of life. The crate does, too, but does not say when they were answered. The next one does not wait for the
/// answer to the last: on a slow network they would be rare. A new connection gets one at once, since its server may have
/// granted less time.
async fn beat(beating: Weak<Session>, mut states: zk::StateWatcher) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let Some(session) = beating.upgrade().filter(|it| !it.is_over()) else { return };
        let mut pause = std::pin::pin!(tokio::time::sleep(session.timeout() / 8));
        // While there is no connection, requests would pile up.
        if session.client.state() == SessionState::SyncConnected && under_way.len() < BEATS_UNDER_WAY {
            under_way.push(async move { session.beat().await });
        } else {
            drop(session);
        }
        loop {
            tokio::select! {
                () = &mut pause => break,
                _ = states.changed() => break,
                Some(answer) = under_way.next() => {
                    if let Err(error) = answer {
                        tracing::info!(%error, "a sign of life was not answered");
                    }
                }
            }
        }
    }
}
