//! For tests of applications: a lock server whose faults and clock the test controls.

mod faults;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use self::faults::{Fault, Faults};
pub use crate::system::TestClock;
use crate::system::lock;
use crate::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Locks,
    MemoryLock, Moment, Operation, OwnerId, Record, RecordKind, RecordWrite, Released, Renewal, Requirement,
    Result,
};

/// A lock server in memory, for tests of applications. On demand it fails, is slow, or takes locks away.
///
/// Leases, waits, renewals and repeated releases use a clock that stands still until the test
/// [moves](Self::advance) it. So a test needs no real server and no sleeps to check what the application does
/// when it cannot get a lock, or loses one. Only [`close`](Locks::close) goes by the machine's clock as well:
/// nobody moves the clock of the test while the test waits for it.
///
/// ```
/// # use lockwell_core as lockwell;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// use std::time::Duration;
/// use lockwell::testing::TestServer;
/// use lockwell::{ErrorKind, Loss, Operation};
///
/// let server = TestServer::new();
/// let locks = server.locks()?;
///
/// // The server cannot be reached, and then it can again.
/// server.fail(Operation::Acquire, ErrorKind::Unreachable);
/// assert_eq!(locks.lock("orders/42").await.unwrap_err().kind(), ErrorKind::Unreachable);
/// server.heal();
///
/// // An operator takes the lock away: the guard is lost at once.
/// let guard = locks.lock("orders/42").await?;
/// server.lose("orders/42").await?;
/// assert_eq!(guard.lost().await, Loss::Taken);
///
/// // The process was stopped for longer than its lease.
/// let guard = locks.lock("orders/43").ttl(Duration::from_secs(10)).await?;
/// server.advance(Duration::from_secs(11));
/// assert!(!guard.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TestServer(Arc<TestServerInner>);

struct TestServerInner {
    memory: MemoryLock,
    clock: TestClock,
    faults: Faults,
    /// Claims whose processes have crashed.
    crashed: Mutex<HashSet<OwnerId>>,
    /// Notified when locks were taken away.
    taken: Notify,
}

impl TestServer {
    /// A server without any locks, and without faults.
    pub fn new() -> Self {
        Self::with_clock(TestClock::new())
    }

    /// A server without any locks, and without faults, on a clock that the test has already.
    pub fn with_clock(clock: TestClock) -> Self {
        Self(Arc::new(TestServerInner {
            memory: MemoryLock::with_clock(clock.clock()),
            clock,
            faults: Faults::default(),
            crashed: Mutex::default(),
            taken: Notify::new(),
        }))
    }

    /// A new client, like that of another process. All clients share the server and its clock.
    pub fn locks(&self) -> Result<Locks> {
        Locks::new(self.backend())
    }

    /// The backend alone, for code that makes its own client, as with [`Locks::with_config`].
    pub fn backend(&self) -> Arc<dyn DistributedLock> {
        Arc::new(TestLock(self.clone()))
    }

    /// The clock that all leases, waits and delays follow.
    pub fn clock(&self) -> &TestClock {
        &self.0.clock
    }

    /// Moves the clock forward. A renewal is due after a third of a lease. A step over a whole lease ends it,
    /// as if the process had been stopped. To let time pass for a live holder, move the clock in smaller
    /// steps and await between them.
    pub fn advance(&self, span: Duration) {
        self.0.clock.advance(span);
    }

    /// From now on, until [`heal`](Self::heal), this operation fails with an error of this kind and has no
    /// effect.
    ///
    /// Failed renewals are tried again. Meanwhile the guard is [`Suspect`](crate::LeaseState::Suspect), and
    /// at the end of its lease it is lost. With [`ErrorKind::Lost`] the server reports that the claim does
    /// not hold the lock.
    pub fn fail(&self, operation: Operation, kind: ErrorKind) {
        self.0.faults.add(operation, Fault::Fails(kind), None);
    }

    /// The next so many calls of this operation [fail](Self::fail) with an error of this kind.
    pub fn fail_times(&self, operation: Operation, kind: ErrorKind, times: u32) {
        self.0.faults.add(operation, Fault::Fails(kind), Some(times));
    }

    /// From now on, until [`heal`](Self::heal), every operation fails, as if the server were down. A request
    /// with a [wait](crate::LockRequest::wait) goes on until it ends, by the clock of the test.
    pub fn fail_all(&self, kind: ErrorKind) {
        for operation in faults::OPERATIONS {
            self.fail(operation, kind);
        }
    }

    /// From now on, until [`heal`](Self::heal), the answer to this operation takes this long, by the clock of
    /// the test. With [`Duration::MAX`] there is never an answer.
    pub fn delay(&self, operation: Operation, span: Duration) {
        self.0.faults.add(operation, Fault::Takes(span), None);
    }

    /// Removes all faults. Calls that are being delayed stay delayed.
    pub fn heal(&self) {
        self.0.faults.clear();
    }

    /// Releases a lock from its holders, as an operator does by force, and notifies them at once. Returns
    /// their number.
    pub async fn lose(&self, name: impl AsRef<str>) -> Result<usize> {
        let freed = self.0.memory.force_release(&LockName::new(name.as_ref())?).await?;
        self.0.taken.notify_waiters();
        Ok(freed)
    }

    /// The processes that hold this lock end without a word, as by `kill -9`: no renewal and no release of
    /// these holds reaches the server any more. The lock is free when its lease has ended. Returns their
    /// number. The guards are still there, as if the test could look into the dead processes.
    pub fn crash(&self, name: impl AsRef<str>) -> Result<usize> {
        let owners = self.0.memory.owners(&LockName::new(name.as_ref())?);
        let crashed = owners.len();
        lock(&self.0.crashed).extend(owners);
        Ok(crashed)
    }

    /// Fails for a claim whose process has crashed.
    fn is_alive(&self, claim: &Claim) -> Result<()> {
        if lock(&self.0.crashed).contains(&claim.owner()) {
            let text = "the process has crashed, as the test has asked for";
            return Err(Error::new(ErrorKind::Unreachable, text).on_backend("test"));
        }
        Ok(())
    }

    /// The present fault of this operation.
    async fn meet(&self, operation: Operation) -> Result<()> {
        let (takes, fails) = self.0.faults.of(operation);
        if !takes.is_zero() {
            self.0.clock.clock().sleep(takes).await;
        }
        match fails {
            Some(kind) => Err(Error::new(kind, "as the test has asked for").on_backend("test")),
            None => Ok(()),
        }
    }

    async fn holds(&self, grant: &Grant) -> bool {
        let status = self.0.memory.inspect(grant.claim().name()).await;
        status.is_ok_and(|status| status.holders.iter().any(|holder| holder.token == grant.last_token()))
    }
}

impl Default for TestServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServer").field("clock", &self.0.clock).field("faults", &self.0.faults).finish()
    }
}

/// The server as a backend.
#[derive(Debug)]
struct TestLock(TestServer);

impl TestLock {
    fn memory(&self) -> &MemoryLock {
        &self.0.0.memory
    }
}

#[async_trait]
impl DistributedLock for TestLock {
    fn capabilities(&self) -> Capabilities {
        self.memory().capabilities().with_backend("test").promising([Requirement::LossPush])
    }

    fn clock(&self) -> Clock {
        self.memory().clock()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        claim.within_wait(self.0.meet(Operation::Acquire)).await?;
        self.memory().acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        match self.0.meet(Operation::Renew).await {
            Ok(()) => {
                let mut answers = Vec::with_capacity(grants.len());
                for grant in grants {
                    let answer = match self.0.is_alive(grant.claim()) {
                        Ok(()) => self.memory().renew(std::slice::from_ref(grant), until).await,
                        Err(error) => vec![Renewal::Unknown(error)],
                    };
                    answers.extend(answer);
                }
                answers
            }
            Err(error) if error.kind() == ErrorKind::Lost => grants.iter().map(|_| Renewal::Lost).collect(),
            Err(error) => Renewal::all_unknown(grants, &error),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.0.meet(Operation::Release).await?;
        self.0.is_alive(claim)?;
        self.memory().release(claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.0.meet(Operation::Downgrade).await?;
        self.0.is_alive(grant.claim())?;
        self.memory().downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.0.meet(Operation::Inspect).await?;
        self.memory().inspect(name).await
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.0.meet(Operation::Inspect).await?;
        self.memory().names().await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.0.meet(Operation::ForceRelease).await?;
        self.0.lose(name.as_str()).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.0.meet(Operation::WriteRecord).await?;
        self.0.is_alive(grant.claim())?;
        self.memory().write_record(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.0.meet(Operation::ReadRecord).await?;
        self.memory().read_record(name, kind, under).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.0.meet(Operation::ReadRecord).await?;
        self.memory().records(kind).await
    }

    async fn lost(&self, grant: &Grant) {
        loop {
            // Made before the check, so that a loss in between is not missed.
            let taken = self.0.0.taken.notified();
            let mut taken = std::pin::pin!(taken);
            taken.as_mut().enable();
            if !self.0.holds(grant).await {
                return;
            }
            taken.await;
        }
    }
}

#[cfg(test)]
mod tests;
