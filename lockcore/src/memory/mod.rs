//! The in-memory backend: the executable specification of the other backends, and the lower bound of the
//! comparison.

mod records;
mod store;
mod turn;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;

use self::store::{Store, StoreReply, Tokens};
use self::turn::WaiterTurn;
use crate::system::{PerProcess, lock};
use crate::{
    Capabilities, Claim, Clock, DistributedLock, Grant, LockName, LockStatus, Moment, OwnerId, Record,
    RecordKind, RecordWrite, Released, Renewal, Requirement, Result, ServerUrl,
};

/// A lock server in the memory of this process.
///
/// It has leases, queues and tokens like the other backends, so a program can be tested with it and then use
/// a real server. It excludes the tasks and threads of one process from each other.
pub struct MemoryLock {
    store: Arc<Mutex<Store>>,
    clock: Clock,
}

/// The servers of this process that have a name.
#[derive(Default)]
struct Named {
    stores: Mutex<HashMap<String, Weak<Mutex<Store>>>>,
    tokens: Tokens,
}

impl MemoryLock {
    /// An empty server.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty server whose leases use this clock. With a [`TestClock`](crate::TestClock), a test of an
    /// application decides when leases and waits end.
    pub fn with_clock(clock: Clock) -> Self {
        Self { store: Arc::default(), clock }
    }

    /// Who holds this lock at present.
    pub(crate) fn owners(&self, name: &LockName) -> Vec<OwnerId> {
        lock(&self.store).owners(name, self.clock.now())
    }

    /// The server of this process with the given name. It exists as long as it is used. One that is made
    /// again goes on with higher tokens: all named servers of the process have one counter. A forked child
    /// has servers of its own.
    pub fn named(name: &str) -> Self {
        static NAMED: PerProcess<Arc<Named>> = PerProcess::new();
        let named = NAMED.get_or_init(Arc::default);
        let mut stores = lock(&named.stores);
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return Self { store, clock: Clock::system() };
        }
        let store = Arc::new(Mutex::new(Store::counting(&named.tokens)));
        let new = Self { store, clock: Clock::system() };
        stores.insert(name.to_owned(), Arc::downgrade(&new.store));
        new
    }

    /// The server that an address names: `memory://` is a new one, `memory://NAME` is shared in the process.
    pub fn from_url(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&[])?;
        Ok(match url.location().as_str() {
            "" => Self::new(),
            name => Self::named(name),
        })
    }
}

impl Default for MemoryLock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLock").finish_non_exhaustive()
    }
}

/// Does something with the store, and wakes tasks when it is not locked any more.
fn with<T>(store: &Mutex<Store>, act: impl FnOnce(&mut Store) -> T) -> T {
    let (done, afterwards) = {
        let mut store = lock(store);
        (act(&mut store), store.take_afterwards())
    };
    afterwards.run();
    done
}

/// Waits in the queue. A release notifies the next waiter; the fallback is a timer for the leases of the
/// holders, since holders that died send no notification.
async fn wait_for_turn(store: &Mutex<Store>, claim: &Claim, turn: Arc<WaiterTurn>) -> Result<Option<Grant>> {
    loop {
        if let Some(outcome) = turn.outcome() {
            return outcome.map(Some);
        }
        let lease_ends = lock(store).next_expiry(claim.name());
        tokio::select! {
            biased;
            () = turn.changed() => (),
            () = claim.wait_over() => {
                // After this, the claim has its grant or nothing.
                with(store, |store| store.leave_queue(claim));
                return Ok(turn.grant());
            }
            () = claim.clock().sleep_until(lease_ends) => {
                with(store, |store| store.promote(claim.name(), claim.clock().now()));
            }
        }
    }
}

#[async_trait]
impl DistributedLock for MemoryLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("memory")
            .promising([
                Requirement::Shared,
                Requirement::Permits,
                Requirement::Downgrade,
                Requirement::Fencing,
                Requirement::TokenBlocks,
                Requirement::Fifo,
                Requirement::Push,
                Requirement::HerdFree,
                Requirement::FailoverSafe,
                Requirement::Records,
            ])
            .bound_to_session()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        // The claim was made just now, unless it asks again. An older time only ends the lease earlier.
        let sent = if claim.obstacle().is_some() { self.clock.now() } else { claim.began() };
        let answer = with(&self.store, |store| store.acquire(claim, sent))?;
        match answer {
            StoreReply::Granted(grant) => Ok(Some(grant)),
            StoreReply::Refused => Ok(None),
            StoreReply::Queued(turn, in_use) => {
                claim.note_in_use(in_use)?;
                claim.note_waiting();
                // Boxed, since it would make the future of every claim large.
                Box::pin(wait_for_turn(&self.store, claim, turn)).await
            }
        }
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        with(&self.store, |store| {
            let now = self.clock.now();
            grants.iter().map(|grant| store.renew(grant.claim(), now)).collect()
        })
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        with(&self.store, |store| store.downgrade(grant, self.clock.now()))
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        Ok(with(&self.store, |store| store.release(claim, || self.clock.now())))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        Ok(with(&self.store, |store| store.inspect(name, self.clock.now())))
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        Ok(lock(&self.store).names(self.clock.now()))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        Ok(with(&self.store, |store| store.force_release(name, self.clock.now())))
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        lock(&self.store).write_record(grant, write)
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        _: Option<&Grant>,
    ) -> Result<Option<Record>> {
        Ok(lock(&self.store).records.read(name, kind))
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        Ok(lock(&self.store).records.names(kind))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;
    use crate::system::waker;
    use crate::{FencingToken, Mode, Wait};

    #[tokio::test]
    async fn a_waker_may_use_the_server() {
        let (server, name) = (Arc::new(MemoryLock::new()), LockName::new("a").unwrap());
        let claim =
            |wait| Claim::new(name.clone(), Mode::Exclusive, Duration::from_secs(10), wait, "test".into());
        let (holder, waiter) = (claim(Wait::No), claim(Wait::Forever));
        let (say, said) = mpsc::channel();
        let asks = Arc::clone(&server);
        let waker = waker(move || say.send(asks.owners(&name)).unwrap());
        let mut cx = Context::from_waker(&waker);
        assert!(server.acquire(&holder).as_mut().poll(&mut cx).is_ready());
        let mut waiting = server.acquire(&waiter);
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        // On a thread of its own: under a mutex, it would never end.
        let releases = Arc::clone(&server);
        std::thread::spawn(move || {
            assert!(
                releases.release(&holder).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
            );
        });
        let owners = said.recv_timeout(Duration::from_secs(20)).expect("the store is not locked");
        assert_eq!(owners, [waiter.owner()]);
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    }

    #[tokio::test]
    async fn tokens_rise_over_the_end_of_a_named_server() {
        let mut last = FencingToken::new(0);
        for many in [5, 1, 100, 2] {
            let server = MemoryLock::named("that comes and goes");
            let name = LockName::new("a").unwrap();
            let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(10), Wait::No, "test".into());
            let claim = claim.reserving(NonZeroU32::new(many).unwrap());
            let grant = server.acquire(&claim).await.unwrap().expect("a new server");
            assert!(grant.token() > last, "{} after {last}", grant.token());
            last = grant.last_token();
        }
    }
}
