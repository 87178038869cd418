//! A backend that connects when it is needed first.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use crate::system::lock;
use crate::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Record, RecordKind, RecordWrite, Released, Renewal, Requirement, Result,
};

/// How long one waits for the try of another. The runtime of that one may have stopped.
const TURN: Duration = Duration::from_secs(10);

type Connecting = Pin<Box<dyn Future<Output = Result<Arc<dyn DistributedLock>>> + Send>>;

/// A backend that connects with the first request. lockcore requests the lock of a claim that waits again until
/// its wait ends, so a server may be away when the program starts.
///
/// What the server promises is not known before. Until then the backend
/// [presumes](Capabilities::is_presumed) all modes and what is required, and no more. A claim that the server
/// turns out not to support fails after connecting, and all claims fail if it lacks a requirement.
pub struct Lazy {
    presumed: Capabilities,
    servers: Option<String>,
    required: Vec<Requirement>,
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    made: OnceLock<Arc<dyn DistributedLock>>,
    /// Held by the one that connects.
    turn: tokio::sync::Mutex<()>,
    /// When the last try that failed began, and why it failed.
    failed: Mutex<Option<(Moment, Error)>>,
}

impl Lazy {
    /// A backend with this name that connects by `connect` and must keep these promises.
    pub fn new<F>(
        name: &'static str,
        required: &[Requirement],
        connect: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Arc<dyn DistributedLock>>> + Send + 'static,
    {
        let modes = [Requirement::Shared, Requirement::Permits, Requirement::Downgrade];
        let presumed =
            Capabilities::minimal(name).promising(modes).promising(required.iter().copied()).presumed();
        Self {
            presumed,
            servers: None,
            required: required.to_vec(),
            connect: Box::new(move || Box::pin(connect())),
            made: OnceLock::new(),
            turn: tokio::sync::Mutex::new(()),
            failed: Mutex::new(None),
        }
    }

    /// This backend with the servers that errors name before there is a connection: see
    /// [`DistributedLock::servers`].
    #[must_use]
    pub fn at(mut self, servers: impl Into<String>) -> Self {
        self.servers = Some(servers.into());
        self
    }

    /// The backend. One caller connects at a time, and those who waited for its turn meanwhile have the same
    /// answer.
    async fn backend(&self) -> Result<&Arc<dyn DistributedLock>> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let asked = Moment::now();
        let turn = tokio::time::timeout(TURN, self.turn.lock()).await;
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        if let Some((_, error)) = lock(&self.failed).as_ref().filter(|(began, _)| *began >= asked) {
            return Err(error.duplicate());
        }
        let began = Moment::now();
        let connected = match (self.connect)().await {
            Ok(new) => self.accept(new).await,
            Err(error) => Err(error),
        };
        drop(turn);
        connected.inspect_err(|error| *lock(&self.failed) = Some((began, error.duplicate())))
    }

    /// Keeps a new connection, unless it lacks a requirement or another caller has made one meanwhile.
    async fn accept(&self, new: Arc<dyn DistributedLock>) -> Result<&Arc<dyn DistributedLock>> {
        if let Err(error) = new.capabilities().require(&self.required) {
            new.close().await;
            return Err(error);
        }
        let mut new = Some(new);
        let made = self.made.get_or_init(|| new.take().expect("it is called once"));
        if let Some(late) = new {
            late.close().await;
        }
        Ok(made)
    }

    /// The backend for a claim.
    async fn backend_for(&self, claim: &Claim) -> Result<&Arc<dyn DistributedLock>> {
        let backend = claim.within_wait(self.backend()).await?;
        let (promised, delay) = (backend.capabilities(), claim.lock_delay());
        promised.check(claim.mode(), claim.ttl().saturating_sub(delay))?;
        promised.check_lock_delay(claim.ttl().saturating_sub(delay), delay)?;
        Ok(backend)
    }

    /// The connection, if there is one.
    fn made(&self) -> Result<&Arc<dyn DistributedLock>> {
        self.made.get().ok_or_else(|| Error::new(ErrorKind::Unreachable, "there is no connection yet"))
    }
}

#[async_trait]
impl DistributedLock for Lazy {
    fn capabilities(&self) -> Capabilities {
        self.made.get().map_or_else(|| self.presumed.clone(), |made| made.capabilities())
    }

    fn servers(&self) -> Option<&str> {
        self.made.get().map_or(self.servers.as_deref(), |made| made.servers())
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.backend_for(claim).await?.acquire(claim).await
    }

    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        for claim in claims {
            if let Err(error) = self.backend_for(claim).await {
                return claims.iter().map(|_| Err(error.duplicate())).collect();
            }
        }
        match self.made() {
            Ok(backend) => backend.acquire_each(claims).await,
            Err(_) => Vec::new(),
        }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        match self.made() {
            Ok(backend) => backend.renew(grants, until).await,
            Err(error) => Renewal::all_unknown(grants, &error),
        }
    }

    /// Without a connection no claim was ever sent.
    async fn release(&self, claim: &Claim) -> Result<Released> {
        match self.made() {
            Ok(backend) => backend.release(claim).await,
            Err(_) => Ok(Released::NotHeld),
        }
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.made()?.downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.backend().await?.inspect(name).await
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.backend().await?.names().await
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        self.backend().await?.examine().await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.backend().await?.force_release(name).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.made()?.write_record(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.backend().await?.read_record(name, kind, under).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.backend().await?.records(kind).await
    }

    async fn grace_left(&self) -> Result<Option<Duration>> {
        self.backend().await?.grace_left().await
    }

    async fn begin_grace(&self) -> Result<Duration> {
        self.backend().await?.begin_grace().await
    }

    async fn end_grace(&self) -> Result<()> {
        self.backend().await?.end_grace().await
    }

    async fn lost(&self, grant: &Grant) {
        match self.made() {
            Ok(backend) => backend.lost(grant).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn doubted(&self, grant: &Grant) {
        match self.made() {
            Ok(backend) => backend.doubted(grant).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn close(&self) {
        if let Ok(backend) = self.made() {
            backend.close().await;
        }
    }
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("made", &self.made.get()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::TestServer;
    use crate::{LockConfig, Locks, Loss, MemoryLock};

    /// A server that is away for the first tries to connect.
    fn away(tries: usize, kind: ErrorKind) -> (Arc<AtomicUsize>, Lazy) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let server = Arc::new(MemoryLock::new());
        let lazy = Lazy::new("example", &[], move || {
            let (is_back, server) = (count.fetch_add(1, Ordering::SeqCst) >= tries, Arc::clone(&server));
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let server: Arc<dyn DistributedLock> = server;
                is_back.then_some(server).ok_or_else(|| Error::new(kind, "not there"))
            }
        });
        (asked, lazy)
    }

    #[tokio::test]
    async fn the_wait_of_a_claim_covers_a_server_that_is_away() {
        let (asked, lazy) = away(4, ErrorKind::Unreachable);
        let locks = Locks::new(Arc::new(lazy)).unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 0, "nothing is sent before the first request");
        let error = locks.lock("a").try_now().await.unwrap_err();
        assert_eq!((error.kind(), asked.load(Ordering::SeqCst)), (ErrorKind::Unreachable, 1), "{error:#}");
        let error = locks.lock("a").wait(Duration::ZERO).await.unwrap_err();
        assert_eq!((error.kind(), asked.load(Ordering::SeqCst)), (ErrorKind::Unreachable, 2), "{error:#}");
        let guard = locks.lock("a").wait(Duration::from_secs(20)).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 5);
        assert!(locks.lock("a").try_now().await.unwrap().is_none());
        guard.release().await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 5, "one connection");
    }

    #[tokio::test]
    async fn the_end_of_the_wait_names_the_cause() {
        let (_, lazy) = away(usize::MAX, ErrorKind::Unreachable);
        let locks = Locks::new(Arc::new(lazy.at("db:1"))).unwrap();
        let error = locks.lock("a").wait(Duration::from_millis(1200)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(
            error.to_string().starts_with("example at db:1: acquire \"a\": unreachable: not there"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_not_waited_for() {
        for kind in [ErrorKind::Refused, ErrorKind::InvalidInput, ErrorKind::Misconfigured] {
            let (asked, lazy) = away(1, kind);
            let locks = Locks::new(Arc::new(lazy)).unwrap();
            let error = locks.lock("a").wait(Duration::from_secs(20)).await.unwrap_err();
            assert_eq!((error.kind(), asked.load(Ordering::SeqCst)), (kind, 1), "{error:#}");
        }
    }

    #[tokio::test]
    async fn many_claims_share_a_try() {
        let (asked, lazy) = away(1, ErrorKind::Unreachable);
        let locks = Locks::new(Arc::new(lazy)).unwrap();
        let all = (0..50)
            .map(|number| locks.lock(format!("a{number}")).wait(Duration::from_secs(20)).into_future());
        for guard in futures_util::future::join_all(all).await {
            guard.unwrap().release().await.unwrap();
        }
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked <= 4, "{asked} tries");
    }

    #[tokio::test]
    async fn what_the_server_lacks_shows_when_it_is_there() {
        let required = [Requirement::Durable];
        let lazy = Lazy::new("example", &required, || async {
            Ok(Arc::new(MemoryLock::new()) as Arc<dyn DistributedLock>)
        });
        let config = LockConfig::new("example://").require(Requirement::Durable);
        let locks = Locks::with_config(Arc::new(lazy), &config).unwrap();
        let error = locks.lock("a").await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("durable"), "{error:#}");
    }

    #[tokio::test]
    async fn the_promises_of_the_server_hold_from_the_first_connection() {
        let required = [Requirement::Fencing];
        let server = MemoryLock::new();
        let promised = server.capabilities();
        let connected: Arc<dyn DistributedLock> = Arc::new(server);
        let lazy = Lazy::new("example", &required, move || std::future::ready(Ok(Arc::clone(&connected))));
        let locks = Locks::new(Arc::new(lazy)).unwrap();
        let presumed = locks.capabilities();
        assert!(presumed.is_presumed() && presumed.promises(Requirement::Fencing));
        assert!(!presumed.promises(Requirement::TokenBlocks) && !presumed.promises(Requirement::LossPush));
        locks.lock("a").await.unwrap().release().await.unwrap();
        assert_eq!(*locks.capabilities(), promised.clone().without([Requirement::Fifo]));
        assert_eq!(*locks.server_order().capabilities(), promised);
    }

    /// The lock is passed on while a slice lasts, which is short: so this may need several tries.
    #[tokio::test]
    async fn tasks_that_wait_for_the_connection_pass_the_lock_on() {
        for _ in 0..100 {
            let locks = Locks::new(Arc::new(away(1, ErrorKind::Unreachable).1)).unwrap();
            let tasks = [(); 5].map(|()| {
                let waiting = locks.lock("a").wait(Duration::from_secs(20)).into_future();
                tokio::spawn(async move {
                    let guard = waiting.await.unwrap();
                    (guard.token(), guard.grant().claim().owner())
                })
            });
            let mut held = Vec::new();
            for task in tasks {
                held.push(task.await.unwrap());
            }
            held.sort_by_key(|(token, _)| *token);
            assert!(held.windows(2).all(|two| two[0].0 < two[1].0), "each has its own token");
            if held.windows(2).any(|two| two[0].1 == two[1].1) {
                return;
            }
        }
        panic!("the lock was never passed on");
    }

    #[tokio::test]
    async fn a_loss_that_the_server_reports_is_heard() {
        let server = TestServer::new();
        let connected = server.clone();
        let lazy = Lazy::new("example", &[], move || std::future::ready(Ok(connected.backend())));
        let guard = Locks::new(Arc::new(lazy)).unwrap().lock("a").ttl(Duration::from_secs(60)).await.unwrap();
        assert_eq!(server.lose("a").await.unwrap(), 1);
        let lost = tokio::time::timeout(Duration::from_secs(15), guard.lost()).await;
        assert_eq!(lost.expect("it is heard"), Loss::Taken);
    }
}
