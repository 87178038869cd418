//! One runtime's client of a server, a master or a cluster: taking and releasing locks.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::backend::{Heartbeat, Hot, Notification, Waiters, closed_for};
use lockwell_core::{Claim, Error, ErrorKind, Moment, Released, Result};

use crate::calls::Calls;
use crate::calls::grace::{GraceGate, Part};
use crate::calls::item::{Item, ItemReply};
use crate::calls::place::Place;
use crate::calls::requests::{Requests, is_simple};
use crate::checks;
use crate::wire::Wire;
use crate::wire::cluster::Cluster;
use crate::wire::doubts::Demands;
use crate::wire::link::Subscriber;
use crate::wire::route::Route;
use crate::wire::sentinel::Decision;
use crate::words::address::{Address, Topology};
use crate::words::answers::{self, AcquireAnswer, Busy, ClaimAnswer, ReleaseAnswer, Tokens};
use crate::words::error::{ErrorClass, classify, no_answer, no_link};
use crate::words::keys::Keys;
use crate::words::options::RedisOptions;

pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(super) options: RedisOptions,
    /// How many replicas must have a grant before it counts.
    pub(crate) wait_replicas: u32,
    /// The longest lease that the server may forget, if it may forget any.
    pub(crate) longest: Option<Duration>,
    /// Whether connecting checks the rights to take locks, and sets the mark. If not, the user may only read.
    pub(crate) create: bool,
}

impl Settings {
    /// Whether a grant counts only when replicas, or the server by a second answer, have confirmed it.
    pub(crate) fn confirms(&self) -> bool {
        self.options.strict || self.wait_replicas > 0
    }

    /// What a server that keeps these locks must fulfil.
    pub(super) fn demands(&self) -> Demands {
        let by_sentinels = matches!(self.address.topology, Topology::Sentinel { .. });
        let grace = self.longest.is_some();
        Demands { wait_replicas: self.wait_replicas, by_sentinels, grace }
    }
}

/// What all runtimes of a process share.
pub(crate) struct Common {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    /// What is known about grace periods.
    pub(crate) gate: Arc<GraceGate>,
    /// Which server is the master, where sentinels say so.
    pub(crate) decision: Arc<Decision>,
}

/// The connection, the batcher and the waiters of one runtime.
pub(crate) struct Client {
    pub(crate) common: Arc<Common>,
    pub(crate) calls: Calls,
    pub(crate) waiters: Arc<Waiters>,
    /// Receives the notifications for this client.
    pub(crate) subscriber: Subscriber,
    pub(crate) tickets: AtomicI64,
    pub(crate) hot: Hot,
}

impl Client {
    pub(super) fn new(common: &Arc<Common>) -> Self {
        let Settings { address, options, .. } = &common.settings;
        let waiters = Waiters::new();
        let channel: Arc<str> = common.keys.channel(format_args!("{:032x}", waiters.client())).into();
        let subscriber = Subscriber { waiters: Arc::clone(&waiters), channel, generation: 0 };
        let demands = options.strict.then(|| common.settings.demands());
        let address = address.clone();
        let route = if address.is_cluster() {
            Route::Cluster(Arc::new(Cluster::new(address, subscriber.clone(), demands)))
        } else {
            let wire = Wire::new(address, Some(subscriber.clone())).led_by(&common.decision);
            Route::One(Arc::new(wire.demanding(demands)))
        };
        let calls = Calls::new(route, Some(Arc::clone(&common.gate)), options.timeout);
        let (tickets, hot) = (AtomicI64::new(1), Hot::new());
        Self { common: Arc::clone(common), calls, waiters, subscriber, tickets, hot }
    }

    /// Reaches the servers, and checks whether they can keep locks. Returns whether each has told that its
    /// locks survive a restart.
    pub(super) async fn check(&self) -> Result<bool> {
        let settings = &self.common.settings;
        let mut more = Vec::new();
        if settings.address.is_cluster() {
            more.push("ASKING");
        }
        if settings.wait_replicas > 0 {
            more.push("WAIT");
        }
        if settings.longest.is_some() {
            more.push("INFO");
        }
        let (options, demands) = (&settings.options, settings.demands());
        let more = settings.create.then_some(&*more);
        let is_durable = checks::route(self.calls.route(), &self.common.keys, more, options, demands).await?;
        // A master of a cluster that does not answer now is looked at by the claims that need it. One that
        // can have no locks now is seen all the same: slots can be moved to it.
        let limit = if settings.address.is_cluster() { checks::PATIENCE } else { options.timeout };
        let masters = self.calls.route().masters();
        let looked = masters.iter().map(|wire| self.closed(wire, limit, Part::Server));
        let mut failures = join_all(looked).await.into_iter().filter_map(Result::err);
        failures.find(|error| error.kind() != ErrorKind::Unreachable).map_or(Ok(is_durable), Err)
    }

    /// For how long a server grants nothing. `None`: it may grant locks.
    pub(super) async fn closed(
        &self,
        wire: &Arc<Wire>,
        limit: Duration,
        part: Part,
    ) -> Result<Option<Duration>> {
        let Some((mut link, generation)) = wire.ready() else { return Err(no_answer(None)) };
        let look = self.common.gate.closed(self.calls.route(), (wire, generation), &mut link, part);
        let looked = tokio::time::timeout(limit, look).await.map_err(|_| no_answer(None))?;
        looked.map_err(|error| {
            if classify(&error, true) == ErrorClass::Broken {
                wire.hang_up(generation);
            }
            no_link(&error)
        })
    }

    /// For how long one of the servers grants nothing.
    pub(super) async fn grace_left(&self) -> Result<Option<Duration>> {
        let mut longest = None;
        let limit = self.common.settings.options.timeout;
        if self.common.gate.period().is_none() {
            return Ok(None);
        }
        for wire in &self.calls.route().masters() {
            let linked = tokio::time::timeout(limit, wire.link()).await.map_err(|_| no_answer(None))?;
            linked.map_err(|error| no_link(&error))?;
            longest = longest.max(self.closed(wire, limit, Part::Server).await?);
        }
        Ok(longest)
    }

    /// Sets the mark of each server: begins a grace period, or says that the servers have forgotten nothing.
    /// Returns how long a period lasts.
    pub(super) async fn set_marks(&self, opens: bool) -> Result<Duration> {
        let gate = &self.common.gate;
        let Some(period) = gate.period() else {
            let text = "there are no grace periods without durability=grace in the address of all clients";
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        let (route, limit) = (self.calls.route(), self.common.settings.options.timeout);
        let mut has_locks = false;
        for wire in route.masters() {
            let set = async {
                let (mut link, generation) = wire.link().await?;
                gate.set(route, (&wire, generation), &mut link, opens).await
            };
            let set = tokio::time::timeout(limit, set).await.map_err(|_| no_answer(None));
            let set = set.and_then(|set| set.map_err(|error| no_link(&error)));
            has_locks |= set.map_err(|error| error.at(wire.address.topology.to_string()))?;
        }
        if has_locks { Ok(period) } else { Err(no_answer(None)) }
    }

    /// Since when a lease counts that was made or extended by a call which was sent then: see
    /// [`sentinel`](crate::wire::sentinel).
    pub(crate) fn counts_from(
        &self,
        claim: &Claim,
        (wire, generation): (&Wire, u64),
        sent: Moment,
    ) -> Moment {
        match (self.common.settings.longest, wire.named_at(generation, sent)) {
            (Some(longest), Some(named)) => sent.min(named.after(longest.saturating_sub(claim.ttl()))),
            _ => sent,
        }
    }

    /// The slot of a lock; 0 where there is no cluster.
    pub(crate) fn slot(&self, claim: &Claim) -> u16 {
        self.common.keys.slot(claim.name())
    }
}

/// When the call that brought an answer was sent, and on which connection.
pub(crate) struct Answered {
    pub(crate) sent: Moment,
    pub(crate) wire: Arc<Wire>,
    pub(crate) generation: u64,
}

fn answered(answer: ItemReply) -> Answered {
    Answered { sent: answer.sent, wire: answer.wire, generation: answer.generation }
}

impl Client {
    pub(crate) fn requests(&self) -> Requests<'_> {
        let exact = !self.common.settings.address.is_cluster();
        Requests { keys: &self.common.keys, channel: &self.subscriber.channel, exact }
    }

    /// Asks for a lock once, and leaves no trace if it is refused. The item is in the queue when this
    /// returns.
    pub(crate) fn acquire(&self, claim: &Claim) -> impl Future<Output = Result<(ClaimAnswer, Answered)>> {
        let simple = is_simple(claim) && !self.hot.is_hot(claim.name());
        let first = simple.then(|| self.calls.call(self.requests().acquire(claim)));
        let second = (!simple).then(|| self.claim(claim, None));
        async move {
            if let Some(second) = second {
                return second.await;
            }
            let Some(first) = first else { unreachable!("one of the two") };
            let answer = first.await?;
            match answers::acquired(&answer.value)? {
                AcquireAnswer::Granted(token) => {
                    Ok((ClaimAnswer::Granted(Tokens::one(token)), answered(answer)))
                }
                AcquireAnswer::Held => Ok((ClaimAnswer::HELD, answered(answer))),
                AcquireAnswer::Unclear => self.claim(claim, None).await,
            }
        }
    }

    /// One call of the script that knows all cases: with a place it queues, and gives a heartbeat. The item
    /// is in the queue when this returns.
    pub(crate) fn claim(
        &self,
        claim: &Claim,
        place: Option<&Place>,
    ) -> impl Future<Output = Result<(ClaimAnswer, Answered)>> {
        let place = place.map(|place| (place, place.waiter.next_heartbeat()));
        let listens = self.calls.route().is_listening(self.slot(claim));
        let call = self.calls.call(self.requests().claim(claim, place, listens));
        let asked = claim.clone();
        async move {
            let answer = call.await?;
            let (claimed, clock) = answers::claimed(&answer.value)?;
            if let (Some((place, number)), ClaimAnswer::Busy(busy)) = (place, &claimed) {
                let ItemReply { sent, generation, .. } = answer;
                place.note_kept(busy.place, sent);
                // After a request was repeated, it is unknown which copy the server has seen last.
                if !answer.in_doubt {
                    place.waiter.note_heartbeat(Heartbeat::new(number, sent, clock).over(generation));
                }
            }
            if let Some(left) = answer.closed_for {
                return Err(Error::new(ErrorKind::GracePeriod, closed_for(left)));
            }
            if let ClaimAnswer::Busy(Busy { used: Some(held), .. }) = claimed {
                asked.note_in_use(held)?;
            }
            Ok((claimed, answered(answer)))
        }
    }

    /// Releases what a claim holds, and its place in the queue.
    pub(crate) async fn release_claim(&self, claim: &Claim, queued: bool) -> Result<Released> {
        let mut in_doubt = false;
        if !queued && is_simple(claim) && !self.hot.is_hot(claim.name()) {
            let answer = self.calls.call(self.requests().release(claim)).await?;
            in_doubt = answer.in_doubt;
            match answers::released(&answer.value)? {
                ReleaseAnswer::Released => return Ok(Released::Released),
                ReleaseAnswer::NotHeld => return Ok(Released::from_answer(false, in_doubt)),
                ReleaseAnswer::Unclear => self.hot.note(claim.name()),
            }
        }
        let answer = self.calls.call(self.requests().release_claim(claim, queued, "")).await?;
        let (released, notifications) = answers::claim_released(&answer.value, answer.generation)?;
        self.deliver(notifications);
        Ok(Released::from_answer(released, in_doubt || answer.in_doubt))
    }

    /// Delivers the notifications for waiters of this client in a script's answer.
    fn deliver(&self, notifications: Vec<Notification>) {
        for notification in notifications {
            self.subscriber.waiters.deliver(notification);
        }
    }

    /// Calls a script for one lock that frees something. Returns how many holders were freed; an earlier try
    /// may have done it.
    pub(crate) async fn free(&self, item: Item) -> Result<(usize, ItemReply)> {
        let answer = self.calls.call(item).await?;
        let (freed, notifications) = answers::freed_all(&answer.value, answer.generation)?;
        self.deliver(notifications);
        Ok((freed, answer))
    }
}
