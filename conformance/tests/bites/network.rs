//! A server with switches, and the networks between it and its clients: a call to it gets lost where they say
//! so.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_conformance::{Way, skipping_clock};
use lockwell_core::{Clock, MemoryLock};
use tokio::sync::watch;

use crate::lock;

/// How long a client waits for an answer before it gives its connection up.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nothing came.
    Silent,
    /// The connection was reset.
    Reset,
}

pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A lock server with switches.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) clock: Clock,
    memory: Mutex<Arc<MemoryLock>>,
    paused: watch::Sender<bool>,
    /// How often it was restarted.
    restarts: watch::Sender<u64>,
    /// Whether it forgets all locks, with their tokens, when it is restarted.
    forgets: bool,
}

impl Machine {
    pub(crate) fn new(forgets: bool) -> Self {
        let (paused, restarts) = (watch::Sender::new(false), watch::Sender::new(0));
        let clock = skipping_clock();
        let memory = Mutex::new(Arc::new(MemoryLock::with_clock(clock.clone())));
        Self { clock, memory, paused, restarts, forgets }
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    pub(crate) fn restart(&self) {
        if self.forgets {
            *lock(&self.memory) = Arc::new(MemoryLock::with_clock(self.clock.clone()));
        }
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    pub(crate) fn restarts(&self) -> u64 {
        *self.restarts.borrow()
    }

    fn memory(&self) -> Arc<MemoryLock> {
        Arc::clone(&lock(&self.memory))
    }

    async fn runs(&self) -> Result<(), Lost> {
        let mut paused = self.paused.subscribe();
        let goes_on = paused.wait_for(|paused| !paused);
        let in_time = self.clock.timeout(TIMEOUT, goes_on).await;
        in_time.ok_or(Lost::Silent)?.map_err(|_| Lost::Reset)?;
        Ok(())
    }

    /// Resolves when nothing has come from the server for longer than a client waits.
    pub(crate) async fn is_silent(&self) {
        let mut paused = self.paused.subscribe();
        // The sender lives as long as the machine.
        while paused.wait_for(|paused| *paused).await.is_ok() {
            let goes_on = self.clock.timeout(TIMEOUT, paused.wait_for(|paused| !paused)).await;
            if goes_on.is_none() {
                return;
            }
        }
    }
}

/// What a network does.
#[derive(Debug, Default)]
struct Faults {
    blackhole: Option<Way>,
    cut: bool,
    delay: Duration,
    /// The number of the request whose reply is swallowed.
    swallows: Option<u64>,
    swallowed: u64,
    holds_back: bool,
}

/// A network between clients and the server.
pub(crate) struct Network {
    clock: Clock,
    faults: Mutex<Faults>,
    requests: AtomicU64,
    kept: Mutex<Vec<Work<()>>>,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl Network {
    pub(crate) fn new(clock: &Clock) -> Self {
        let (faults, kept) = (Mutex::default(), Mutex::default());
        Self { clock: clock.clone(), faults, requests: AtomicU64::new(0), kept }
    }

    pub(crate) fn blackhole(&self, way: Way) {
        lock(&self.faults).blackhole = Some(way);
    }

    pub(crate) fn cut(&self) {
        lock(&self.faults).cut = true;
    }

    pub(crate) fn delay(&self, each_way: Duration) {
        lock(&self.faults).delay = each_way;
    }

    pub(crate) fn drop_reply(&self, k: u64) {
        lock(&self.faults).swallows = Some(self.requests() + k);
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped_replies(&self) -> u64 {
        lock(&self.faults).swallowed
    }

    /// The next request stays on its way: it was sent on a connection that is open now.
    pub(crate) fn hold_back(&self) {
        lock(&self.faults).holds_back = true;
    }

    pub(crate) async fn deliver(&self) -> u64 {
        let kept = std::mem::take(&mut *lock(&self.kept));
        let delivered = kept.len();
        for request in kept {
            request.await;
        }
        delivered as u64
    }

    pub(crate) fn heal(&self) {
        let mut faults = lock(&self.faults);
        *faults = Faults { swallowed: faults.swallowed, ..Faults::default() };
    }

    fn is_dark(&self, way: Way) -> bool {
        lock(&self.faults).blackhole.is_some_and(|dark| dark == Way::Both || dark == way)
    }

    fn is_cut(&self) -> bool {
        lock(&self.faults).cut
    }

    fn swallows(&self, number: u64) -> bool {
        let mut faults = lock(&self.faults);
        let swallows = faults.swallows == Some(number);
        faults.swallowed += u64::from(swallows);
        swallows
    }

    fn keeps(&self) -> bool {
        std::mem::take(&mut lock(&self.faults).holds_back)
    }

    async fn pass(&self, way: Way) -> Result<(), Lost> {
        if self.is_cut() {
            return Err(Lost::Reset);
        }
        let delay = lock(&self.faults).delay;
        if !delay.is_zero() {
            self.clock.sleep(delay).await;
        }
        if self.is_dark(way) {
            self.clock.sleep(TIMEOUT).await;
            return Err(Lost::Silent);
        }
        Ok(())
    }

    /// Asks the server for something, once.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        machine: &Machine,
        ask: impl FnOnce(Arc<MemoryLock>) -> Work<T>,
    ) -> Result<T, Lost> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let restarts = machine.restarts();
        self.pass(Way::ToServer).await?;
        let work = ask(machine.memory());
        if self.keeps() {
            lock(&self.kept).push(Box::pin(async move { drop(work.await) }));
            self.clock.sleep(TIMEOUT).await;
            return Err(Lost::Silent);
        }
        machine.runs().await?;
        let mut restarted = machine.restarts.subscribe();
        let value = tokio::select! {
            value = work => value,
            _ = restarted.wait_for(|now| *now != restarts) => return Err(Lost::Reset),
        };
        machine.runs().await?;
        self.pass(Way::ToClient).await?;
        if self.swallows(number) {
            return Err(Lost::Reset);
        }
        Ok(value)
    }
}
