//! One connection to a server, and its replacement when it fails.

pub(crate) mod cluster;
mod connect;
mod dial;
pub(crate) mod doubts;
pub(crate) mod identity;
pub(crate) mod link;
mod refresh;
pub(crate) mod route;
pub(crate) mod sentinel;
pub(crate) mod slots;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::{lock, note_reconnection};
use redis::{ConnectionAddr, RedisError, RedisResult};
use tokio::sync::watch;

use crate::wire::connect::connect;
use crate::wire::dial::CONNECT;
use crate::wire::doubts::Demands;
use crate::wire::identity::Identified;
use crate::wire::link::{Link, Subscriber};
use crate::wire::sentinel::{COUNTS, Decision, Sentinels, require_master};
use crate::words::address::{Address, Topology};

/// A connection is replaced when this number of calls in a row had no answer in time and the first of them
/// was sent this long ago, or when one call has waited for half of that.
const SILENCES: u32 = 2;
const SILENCE: Duration = Duration::from_secs(2);

/// How long making a connection usually takes at most.
const SLOW_DIAL: Duration = Duration::from_millis(100);

/// How long a waiter waits for the subscription before it goes on without.
const SUBSCRIBE: Duration = Duration::from_secs(1);

/// The connection to a server, made when it is first needed, and replaced when it fails.
pub(crate) struct Wire {
    pub(crate) address: Address,
    subscriber: Option<Subscriber>,
    /// What the server behind every connection must fulfil.
    demands: Option<Demands>,
    /// Whose connections it counts.
    backend: &'static str,
    /// Who says where the server is, if the address does not.
    sentinels: Option<Sentinels>,
    slot: Mutex<ConnectionSlot>,
}

/// How making a connection ended; `None` while it is being made.
type Dialled = watch::Receiver<Option<RedisResult<()>>>;

struct ConnectionSlot {
    link: Option<Link>,
    /// The number of the connection, and that of the sentinels' decision which led to it.
    generation: u64,
    decision: u64,
    /// The connection that has subscribed.
    listening: u64,
    /// What is known of the server behind the present connection.
    identified: Option<Identified>,
    /// When the last answer came, how many calls have had none in time since, and since when: not from before
    /// the first of them was sent.
    last_answer: Moment,
    silences: u32,
    silent_since: Moment,
    /// Why the last attempt to make a connection failed, if it did.
    failed: Option<RedisError>,
    /// When the latest attempt began.
    dialled_at: Moment,
    /// The latest attempt to make a connection.
    dialled: Option<Dialled>,
}

impl ConnectionSlot {
    fn is_silent(&self, long: Duration) -> bool {
        self.silences >= SILENCES && self.silent_since.after(long).has_passed()
    }
}

impl Wire {
    pub(crate) fn new(address: Address, subscriber: Option<Subscriber>) -> Self {
        let slot = ConnectionSlot {
            link: None,
            generation: 0,
            decision: 0,
            listening: 0,
            identified: None,
            last_answer: Moment::now(),
            silences: 0,
            silent_since: Moment::NEVER,
            failed: None,
            dialled_at: Moment::NEVER,
            dialled: None,
        };
        let slot = Mutex::new(slot);
        Self { address, subscriber, demands: None, backend: "redis", sentinels: None, slot }
    }

    /// Refuses servers that do not meet these demands, on every connection: another server can answer at the
    /// same address, and the same one with other settings.
    pub(crate) fn demanding(self, demands: Option<Demands>) -> Self {
        Self { demands, ..self }
    }

    /// If the address names sentinels: the decision of all runtimes of the client.
    pub(crate) fn led_by(self, decision: &Arc<Decision>) -> Self {
        Self { sentinels: Sentinels::of(&self.address, decision), ..self }
    }

    /// The way to a node of another backend.
    pub(crate) fn of(self, backend: &'static str) -> Self {
        Self { backend, ..self }
    }

    fn slot(&self) -> MutexGuard<'_, ConnectionSlot> {
        lock(&self.slot)
    }

    /// Whether there is a connection that may be used.
    pub(crate) fn is_connected(&self) -> bool {
        self.ready().is_some()
    }

    /// The connection and its number, if there is one that may be used.
    pub(crate) fn ready(&self) -> Option<(Link, u64)> {
        let slot = self.slot();
        let counts = self.sentinels.as_ref().is_none_or(|one| one.confirmed(slot.decision).is_some());
        slot.link.clone().filter(|_| counts).map(|link| (link, slot.generation))
    }

    /// When the sentinels were last asked whose answers led to the connection of this number, over which a call
    /// was sent then. `None`: there are none.
    pub(crate) fn named_at(&self, generation: u64, sent: Moment) -> Option<Moment> {
        let sentinels = self.sentinels.as_ref()?;
        let slot = self.slot();
        let named = sentinels.confirmed(slot.decision).filter(|_| slot.generation == generation);
        // They lead elsewhere by now. They counted when it was sent.
        Some(named.unwrap_or_else(|| sent.before(COUNTS)))
    }

    /// Whether there is a connection to the server of this decision.
    fn leads_to(&self, decision: u64) -> bool {
        let slot = self.slot();
        slot.link.is_some() && slot.decision == decision
    }

    /// Asks the sentinels again in the background, if it is time to.
    pub(crate) fn confirm_soon(self: &Arc<Self>) {
        if self.sentinels.as_ref().is_some_and(Sentinels::is_due) {
            drop(self.dial());
        }
    }

    /// The connection and its number; a new one if there is none that may be used.
    ///
    /// It is made by a task of its own, so that callers with little time do not end it half-way.
    pub(crate) async fn link(self: &Arc<Self>) -> RedisResult<(Link, u64)> {
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let mut dialled = self.dial();
        // The task is gone only with its runtime; then the next call starts another.
        let gone = || RedisError::from(std::io::Error::from(std::io::ErrorKind::NotConnected));
        let outcome = dialled.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
        outcome.unwrap_or(Ok(()))?;
        self.ready().ok_or_else(gone)
    }

    fn dial(self: &Arc<Self>) -> Dialled {
        let mut slot = self.slot();
        if let Some(dialled) = &slot.dialled
            && dialled.borrow().is_none()
            && dialled.has_changed().is_ok()
        {
            return dialled.clone();
        }
        let (sender, dialled) = watch::channel(None);
        slot.dialled = Some(dialled.clone());
        slot.dialled_at = Moment::now();
        let wire = Arc::clone(self);
        drop(tokio::spawn(async move {
            let too_late = || Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)));
            let generation = next_generation();
            let made = async {
                // Whoever only asks the sentinels again needs no password of the master.
                let asks_only = wire.sentinels.is_some() && wire.is_connected();
                // Its time is not that of the server.
                let address =
                    if asks_only { wire.address.clone() } else { wire.address.logging_in().await? };
                let connect = wire.connect(&address, generation, asks_only);
                let made = tokio::time::timeout(CONNECT, connect).await;
                made.unwrap_or_else(|_| too_late())
            };
            let link = made.await;
            wire.slot().failed = link.as_ref().err().cloned();
            let outcome = link.map(|made| {
                let Some((link, decision)) = made else { return };
                let earlier = {
                    let mut slot = wire.slot();
                    (slot.last_answer, slot.silences) = (Moment::now(), 0);
                    (slot.link, slot.identified, slot.decision) = (Some(link), None, decision);
                    std::mem::replace(&mut slot.generation, generation)
                };
                if earlier != 0 {
                    note_reconnection(wire.backend);
                }
            });
            sender.send_replace(Some(outcome));
        }));
        dialled
    }

    /// The host of the server; empty if it is not one by itself.
    pub(crate) fn host(&self) -> String {
        match &self.address.topology {
            Topology::Node(ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => {
                host.clone()
            }
            _ => String::new(),
        }
    }

    /// Notes that a call had an answer.
    pub(crate) fn note_answer(&self) {
        let mut slot = self.slot();
        (slot.last_answer, slot.silences) = (Moment::now(), 0);
    }

    /// Notes that a call had no answer in time, and discards the connection after several such calls. What an
    /// earlier connection did not answer does not count for this one.
    pub(crate) fn note_silence(&self, generation: u64, waited: Duration) {
        let mut slot = self.slot();
        if slot.generation != generation {
            return;
        }
        if slot.silences == 0 {
            slot.silent_since = Moment::now().before(waited).max(slot.last_answer);
        }
        slot.silences += 1;
        if slot.is_silent(SILENCE) || waited > SILENCE / 2 {
            tracing::debug!("a connection does not answer and is replaced");
            slot.link = None;
        }
    }

    /// Whether the server looks dead: the last connection could not be made, or the next is taking long, or
    /// several calls in a row had no answer, for a while.
    pub(crate) fn looks_dead(&self) -> bool {
        let slot = self.slot();
        let slow = slot.dialled_at.after(SLOW_DIAL).has_passed();
        (slot.link.is_none() && (slot.failed.is_some() || slow)) || slot.is_silent(SILENCE / 2)
    }

    /// Whether there is no connection, and making the next has not failed: the server may be far away.
    pub(crate) fn may_be_far(&self) -> bool {
        let slot = self.slot();
        slot.link.is_none() && slot.failed.is_none()
    }

    /// Why the last connection could not be made, if there is none.
    pub(crate) fn failure(&self) -> Option<RedisError> {
        let failed = self.slot().failed.clone();
        failed.filter(|_| !self.is_connected())
    }

    /// Discards a connection that cannot be used any more. One made since is left alone.
    pub(crate) fn hang_up(&self, generation: u64) {
        let mut slot = self.slot();
        if slot.generation == generation {
            slot.link = None;
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&self) {
        self.slot().link = None;
    }

    /// What is known of the server behind the connection of this number.
    pub(crate) fn identified(&self, generation: u64) -> Option<Identified> {
        let slot = self.slot();
        slot.identified.clone().filter(|_| slot.generation == generation)
    }

    /// Whether anything is known of the server behind the present connection.
    pub(crate) fn is_identified(&self) -> bool {
        let slot = self.slot();
        slot.link.is_some() && slot.identified.is_some()
    }

    /// Notes it.
    pub(crate) fn note_identified(&self, generation: u64, identified: Identified) {
        let mut slot = self.slot();
        if slot.generation == generation {
            slot.identified = Some(identified);
        }
    }

    /// Notes that the server behind the connection may have become another: it is asked before the next
    /// grant.
    pub(crate) fn doubt_identity(&self, generation: u64) {
        let mut slot = self.slot();
        if slot.generation != generation {
            return;
        }
        if let Some(known) = &mut slot.identified {
            known.verified = known.verified.before(Duration::from_secs(60));
        }
    }

    /// Whether the present connection has subscribed.
    pub(crate) fn is_listening(&self) -> bool {
        let slot = self.slot();
        slot.link.is_some() && slot.listening == slot.generation
    }

    /// Subscribes on the present connection, unless that has been done. A waiter calls this before it queues,
    /// so that no notification is sent before somebody listens. Without a subscription the waiter depends on
    /// its own timer.
    pub(crate) async fn listen(self: &Arc<Self>) {
        let Some(subscriber) = &self.subscriber else { return };
        if self.is_listening() {
            return;
        }
        let end = Moment::now().after(SUBSCRIBE);
        let done = tokio::time::timeout(end.remaining(), async {
            let (mut link, generation) = self.link().await?;
            link.subscribe(&subscriber.channel).await?;
            self.slot().listening = generation;
            RedisResult::Ok(())
        });
        match done.await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => tracing::info!(%error, "no notifications from Redis; it is tried again"),
            Err(_) => tracing::info!("no notifications from Redis: no answer; it is tried again"),
        }
    }

    /// A new connection, and the number of the sentinels' decision. `None`: there is one to the server that
    /// they name, or they were only to be asked.
    async fn connect(
        &self,
        address: &Address,
        generation: u64,
        asks_only: bool,
    ) -> RedisResult<Option<(Link, u64)>> {
        let subscriber = self.subscriber.clone().map(|subscriber| Subscriber { generation, ..subscriber });
        let (mut link, decision) = match &self.sentinels {
            Some(sentinels) => {
                let (addr, decision) = sentinels.master(address).await?;
                if asks_only || self.leads_to(decision) {
                    return Ok(None);
                }
                let mut link = connect(&address.at(addr), subscriber).await?;
                require_master(&mut link).await?;
                (link, decision)
            }
            None => (connect(address, subscriber).await?, 0),
        };
        if let Some(demands) = &self.demands {
            demands.examine(&mut link).await?;
        }
        Ok(Some((link, decision)))
    }

    /// Probes a server that looks dead.
    pub(crate) async fn probe(self: &Arc<Self>) {
        let Ok((mut link, generation)) = self.link().await else { return };
        match tokio::time::timeout(CONNECT, link.query(&redis::cmd("PING"))).await {
            // Any reply, even an error, proves that the server is alive.
            Ok(Ok(_)) => self.note_answer(),
            Ok(Err(error)) if !error.is_io_error() => self.note_answer(),
            Ok(Err(_)) | Err(_) => self.hang_up(generation),
        }
    }
}

/// The number of a new connection. All connections of a process have different numbers, since times from
/// different connections may come from different clocks.
fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("address", &self.address).finish_non_exhaustive()
    }
}
