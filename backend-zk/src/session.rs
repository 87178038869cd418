//! One session with the servers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::{Error, ErrorKind, Moment, Result};
use tokio::sync::Semaphore;
use zookeeper_client as zk;

use crate::belief::Belief;
use crate::error::{explain, no_answer};
use crate::options::{Login, Options};
use crate::thread;

/// The most acquires of one session that are under way at a time. The client crate's queue has no end.
const UNDER_WAY: usize = 512;

/// The most heartbeats that are under way at a time.
const BEATS_UNDER_WAY: usize = 8;

/// One session. Its heartbeats are what keeps the nodes that it made; when its last handle is dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: zk::Client,
    /// The timeout that the server agreed to.
    pub(crate) timeout: Duration,
    /// How long a sign of life may take to be reported to the leader. Zero on a single server.
    pub(crate) lag: Duration,
    pub(crate) under_way: Semaphore,
    belief: Mutex<Belief>,
}

impl Session {
    /// Opens a session. `lag`: see [`Belief`].
    pub(crate) async fn open(options: &Options, timeout: Duration, lag: Duration) -> Result<Arc<Self>> {
        let asked = Moment::now();
        let client = connect(options, &options.servers_for_long(), timeout).await?;
        let timeout = client.session_timeout();
        let session = Arc::new(Self {
            timeout,
            lag,
            under_way: Semaphore::new(UNDER_WAY),
            belief: Mutex::new(Belief::new(timeout, lag, asked)),
            client,
        });
        let beating = Arc::downgrade(&session);
        let root = if options.base.is_empty() { "/" } else { &options.base };
        drop(thread::spawn(beat(beating, root.into())));
        tracing::debug!(id = %session.client.session_id(), ?timeout, "session opened");
        Ok(session)
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    fn belief(&self) -> MutexGuard<'_, Belief> {
        self.belief.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that goes by way of the leader was sent at `sent` and has been answered.
    pub(crate) fn answered(&self, sent: Moment) {
        self.belief().answered(sent);
    }

    /// Until when the session may be believed to be alive.
    pub(crate) fn deadline(&self) -> Moment {
        self.belief().deadline()
    }

    /// Whether no new lock should be taken on it.
    ///
    /// The crate does not notice that our requests get lost as long as events arrive. So a session that has been
    /// silent for another timeout after the end of our belief counts as over, too.
    pub(crate) fn is_over(&self) -> bool {
        self.client.state().is_terminated() || self.deadline().after(self.timeout).has_passed()
    }

    /// Resolves while the session has no connection.
    pub(crate) async fn disconnected(&self) {
        let mut states = self.client.state_watcher();
        let mut state = states.state();
        while state == zk::SessionState::SyncConnected {
            state = states.changed().await;
        }
    }

    /// Waits for an answer, but not for longer than the session can live without one.
    pub(crate) async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        tokio::time::timeout(self.timeout, answer).await.unwrap_or(Err(zk::Error::Timeout))
    }

    /// A sign of life by way of the leader, and a look whether we are still known.
    pub(crate) async fn confirm(&self, path: &str) -> Result<(), zk::Error> {
        let sent = Moment::now();
        self.bounded(self.client.sync(path)).await?;
        self.answered(sent);
        Ok(())
    }
}

/// Gives signs of life. The crate does, too, but not by way of the leader, and it does not say when they were answered.
/// The next one does not wait for the answer to the last: on a slow network they would be rare.
async fn beat(beating: Weak<Session>, root: Arc<str>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let Some(session) = beating.upgrade().filter(|it| !it.is_over()) else { return };
        let mut pause = std::pin::pin!(tokio::time::sleep(session.timeout / 8));
        // While there is no connection, requests would pile up.
        if session.client.state() == zk::SessionState::SyncConnected && under_way.len() < BEATS_UNDER_WAY {
            let root = Arc::clone(&root);
            under_way.push(async move { session.confirm(&root).await });
        } else {
            drop(session);
        }
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(answer) = under_way.next() => {
                    if let Err(error) = answer {
                        tracing::info!(%error, "a sign of life was not answered");
                    }
                }
            }
        }
    }
}

/// Opens a session of about this timeout. Tries each of these places once.
pub(crate) async fn connect(options: &Options, servers: &str, timeout: Duration) -> Result<zk::Client> {
    let mut connector = zk::Client::connector()
        .with_fail_eagerly()
        .with_session_timeout(timeout)
        // A silent connection is given up after half the timeout: the other half is for another server.
        .with_connection_timeout(timeout / 2);
    match &options.login {
        None => (),
        Some(Login::Digest(digest)) => connector = connector.with_auth("digest", digest.expose().as_bytes()),
        #[cfg(feature = "sasl")]
        Some(Login::Sasl(user, password)) => {
            let sasl = zk::SaslOptions::digest_md5(user.clone(), password.expose().to_owned());
            connector = connector.with_sasl(sasl);
        }
    }
    #[cfg(feature = "tls")]
    if let Some(files) = &options.tls {
        connector = connector.with_tls(crate::tls::options(files)?);
    }
    let (servers, limit) = (servers.to_owned(), options.timeout);
    // The crate spawns the session's task where it is called.
    let opening = thread::spawn(async move {
        tokio::time::timeout(limit, connector.connect(&servers)).await.unwrap_or(Err(zk::Error::Timeout))
    });
    match opening.await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(zk::Error::BadArguments(what))) => {
            Err(Error::new(ErrorKind::InvalidInput, format!("the address is not usable: {what}")))
        }
        // The crate keeps the reason to itself.
        Ok(Err(zk::Error::NoHosts)) if options.tls.is_some() => Err(Error::new(
            ErrorKind::Unreachable,
            "no server can be reached, or none agrees on TLS: on its certificate, its name, or ours",
        )),
        // A session that is over before it began: the server took the credentials, or the version, amiss.
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err(no_answer()),
    }
}
