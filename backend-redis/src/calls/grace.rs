//! The grace period of a server that may have forgotten its last grants, as after a restart or a failover.
//! See [`lockwell_core::backend::grace`].
//!
//! * The server that answers is known by its [identity](crate::wire::identity). Locks are granted on a
//!   connection only while the *mark*, a key beside the locks, names this very identity. So a promoted
//!   replica, which has the mark of its master, grants nothing, and neither does a server that begins with
//!   what a file had, or with nothing.
//! * A client that has seen an identity for a grace period, by its own clock, sets the mark in the place of
//!   the one that it has seen. All grants of an earlier server have ended by then. The server's clock plays
//!   no part: the uptime that it reports, too, follows its wall clock, which may be set right after the
//!   start. The copy of a request to set it that arrives late finds another mark, or sets it to what it is.
//! * An operator begins a grace period by a mark that names no server and is unlike all others. A client that
//!   has seen it for a grace period sets the mark.
//! * So it is where there is no mark: nobody knows whether there never was one, or it was lost with the
//!   grants. Behind sentinels and in a cluster a server that has been up for a grace period, and was never
//!   promoted, has lost none since.
//! * A connection outlasts the change of its server into a replica and back. Two such changes take longer
//!   than [`FRESH`], so a connection on which the server was not asked for that time asks again before it
//!   grants. It also looks whether an operator has begun a grace period.
//! * Meanwhile leases are extended or reclaimed (`server/reclaim.rs`), and locks are released, but a release
//!   grants the lock to no waiter: it may be the late copy of a request to the earlier server, whose next
//!   holder is forgotten.
//! * All clients must agree on the longest lease, so the mark names it.
//!
//! This does not help against an earlier master that still answers other clients, against other programs,
//! which do not read the mark, and against slots of a cluster that are moved within a grace period.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::{GraceGauge, closed_for, grace_period, lock, unique_bits};
use redis::{RedisError, RedisResult, ServerErrorKind, Value};

use crate::calls::item::Item;
use crate::wire::Wire;
use crate::wire::identity::{Identified, Identity};
use crate::wire::link::Link;
use crate::wire::route::Route;
use crate::words::error::{GRACE, LONGEST, MARK_IS_ELSEWHERE, MARK_MOVED};
use crate::words::info::one_text;
use crate::words::keys::Keys;
use crate::words::script::{ACQUIRE, CLAIM, DOWNGRADE, FORCE, INSPECT, MARK, RELEASE_CLAIM, RENEW, Script};

/// For how long an answer about the identity counts.
const FRESH: Duration = Duration::from_secs(1);

/// When the server is asked again if another node has its mark.
const RECHECK: Duration = Duration::from_millis(100);

/// When a node is asked again whose first slot was found to be another one.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a mark says of the server if an operator has begun a grace period. A random number follows.
const BY_HAND: &str = "none:";

/// How often a mark is looked at again that another client changes.
const LOOKS: u32 = 4;

/// How many identities are remembered.
const REMEMBERED: usize = 1024;

/// The argument of a script that may grant to waiters which says whether the count of listeners is exact. In
/// a grace period it says that nothing is granted.
const EXACT: usize = 2;
const CLOSED: &str = "closed";

/// What a grace period means for a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grants {
    Nothing,
    /// Nothing, and it says who holds a lock.
    NothingAndReads,
    ToItsClaim,
    ToWaiters,
}

/// A call that may be made.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// What is to be called instead of the items.
    pub(super) instead: Option<Item>,
    /// For how long the server grants nothing, for a script that reads.
    pub(super) closed_for: Option<Duration>,
}

/// Whether a server may grant locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// It opens after this time at the earliest.
    Closed(Duration),
}

/// What a process knows about the grace periods of its servers. All runtimes share it.
#[derive(Debug)]
pub(crate) struct GraceGate {
    longest: Duration,
    keys: Keys,
    gauge: GraceGauge,
    /// Whether this client may set the mark.
    may_set: bool,
    /// Whether another server can take the place of one that fails.
    moves: bool,
}

/// When this process has seen each identity, and each mark of an operator, for the first time.
static SEEN: LazyLock<Mutex<HashMap<Arc<str>, Moment>>> = LazyLock::new(Mutex::default);

impl GraceGate {
    /// For leases of up to `longest`.
    pub(crate) fn new(longest: Duration, keys: Keys, may_set: bool, moves: bool) -> Self {
        Self { longest, keys, gauge: GraceGauge::new("redis"), may_set, moves }
    }

    /// How long a grace period lasts.
    pub(crate) fn period(&self) -> Duration {
        grace_period(self.longest)
    }

    /// Looks whether the call may be made on this connection: an error if it is a claim and nothing is
    /// granted. Returns another item instead of one that must grant nothing to waiters.
    pub(super) async fn pass(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
        items: &[&Item],
    ) -> RedisResult<Passed> {
        let grants = grants_of(items[0].script);
        let renew: &Script = &RENEW;
        let renews = std::ptr::eq(items[0].script, renew);
        if grants == Grants::Nothing && !(renews && wire.identified(generation).is_none()) {
            return Ok(Passed::default());
        }
        let gate = self.look(route, (wire, generation), link).await;
        match (grants, gate) {
            // A lease is extended also if nothing is known: from now on the identity has been seen.
            (Grants::Nothing, _) | (_, Ok(Gate::Open)) => Ok(Passed::default()),
            // A lock is released all the same, and nobody is granted it.
            (Grants::ToWaiters, Err(error)) if error.code() == Some(MARK_MOVED) => {
                Ok(without_grants(items[0]))
            }
            (_, Err(error)) => Err(error),
            // If the server changes now, the connection ends, and the call is made anew on another.
            (Grants::NothingAndReads, Ok(Gate::Closed(left))) => {
                Ok(Passed { closed_for: Some(left), ..Passed::default() })
            }
            (Grants::ToItsClaim, Ok(Gate::Closed(left))) => {
                Err(redis::make_extension_error(GRACE.to_owned(), Some(closed_for(left))))
            }
            (Grants::ToWaiters, Ok(Gate::Closed(_))) => Ok(without_grants(items[0])),
        }
    }

    /// Whether the server behind this connection may grant locks. Sets the mark if it may from now on.
    pub(crate) async fn look(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
    ) -> RedisResult<Gate> {
        let asked = Moment::now();
        let key = key_of_mark(&self.keys, route, wire);
        let identified = match wire.identified(generation) {
            Some(known) if known.verified.after(FRESH) > asked => known,
            Some(known) => {
                // Both are one round trip.
                let mut beside = link.clone();
                let (is_still, mark) =
                    tokio::join!(known.identity.is_still(link), mark(route, &mut beside, key.as_deref()));
                if !is_still? {
                    return Err(replaced());
                }
                match mark? {
                    // Whether an operator has begun a grace period is asked again soon.
                    KeyAnswer::Moved | KeyAnswer::Moving => {
                        Identified { verified: asked.before(FRESH.saturating_sub(RECHECK)), ..known }
                    }
                    KeyAnswer::Here(mark) => {
                        let is_open = known.is_open && by_hand(&mark).is_none();
                        // It was deleted, or another slot is the first one of the server by now.
                        if is_open && (mark.is_empty() || self.is_of_another(&mark, &known.identity)) {
                            self.replace(route, link, key.as_deref(), &mark, &known.identity).await?;
                        }
                        Identified { verified: asked, is_open, ..known }
                    }
                }
            }
            None => {
                let identity = Identity::ask(link).await?;
                Identified { identity, verified: asked, is_open: false }
            }
        };
        let seen_for = seen_for(&identified.identity.text);
        let gate = if identified.is_open {
            Gate::Open
        } else {
            let gate = self.judge(&identified.identity, seen_for, route, link, key.as_deref()).await?;
            // Of a server that can have no locks nobody has to know it.
            if key.is_some() {
                self.gauge.note(match gate {
                    Gate::Open => None,
                    Gate::Closed(left) => Some(left),
                });
            }
            gate
        };
        wire.note_identified(generation, Identified { is_open: gate == Gate::Open, ..identified });
        Ok(gate)
    }

    /// The same, again and again while the first slot of the node is found to be another one.
    pub(crate) async fn look_patiently(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
    ) -> RedisResult<Gate> {
        loop {
            match self.look(route, (wire, generation), link).await {
                Err(error) if error.code() == Some(MARK_MOVED) => tokio::time::sleep(LOOK_AGAIN).await,
                looked => return looked,
            }
        }
    }

    async fn judge(
        &self,
        identity: &Identity,
        seen_for: Duration,
        route: &Route,
        link: &mut Link,
        key: Option<&str>,
    ) -> RedisResult<Gate> {
        for _ in 0..LOOKS {
            let mark = match mark(route, link, key).await? {
                KeyAnswer::Here(mark) => mark,
                // An operator may have begun a grace period with the mark in the slot that is the first now.
                KeyAnswer::Moved => return Err(moved()),
                // No other slot is the first of the server yet.
                KeyAnswer::Moving => String::new(),
            };
            if mark == self.naming(identity) {
                return Ok(Gate::Open);
            }
            if let Some((longest, _)) = mark.split_once(':')
                && longest != self.longest.as_millis().to_string()
            {
                let text = format!(
                    "the clients of this namespace use longest_ttl={longest}ms: all must use the same. To change it, stop \
                     them for that time, and delete the key that ends in \"mark\""
                );
                return Err(redis::make_extension_error(LONGEST.to_owned(), Some(text)));
            }
            let seen_for = match by_hand(&mark) {
                Some(number) => self::seen_for(&format!("{}:{number}", identity.text).into()),
                None if mark.is_empty() && self.is_new(identity, link).await? => self.period(),
                None => seen_for,
            };
            let left = self.period().saturating_sub(seen_for);
            if !left.is_zero() {
                return Ok(Gate::Closed(left));
            }
            if self.replace(route, link, key, &mark, identity).await? {
                return Ok(Gate::Open);
            }
        }
        Ok(Gate::Closed(Duration::ZERO))
    }

    /// The mark that says that the server of this identity may grant locks.
    fn naming(&self, identity: &Identity) -> String {
        format!("{}:{}", self.longest.as_millis(), identity.text)
    }

    /// Whether the mark names another server, and clients that agree with this one have set it.
    fn is_of_another(&self, mark: &str, identity: &Identity) -> bool {
        let longest = self.longest.as_millis().to_string();
        mark.split_once(':').is_some_and(|(other, text)| other == longest && *text != *identity.text)
    }

    /// Sets the mark to name this server, unless it is another than `mark` by now. Returns
    /// whether it was not.
    async fn replace(
        &self,
        route: &Route,
        link: &mut Link,
        key: Option<&str>,
        mark: &str,
        identity: &Identity,
    ) -> RedisResult<bool> {
        // Others find out by themselves.
        let Some(key) = key.filter(|_| self.may_set) else { return Ok(true) };
        let mine = self.naming(identity);
        // By its text, since it is rare.
        let mut replace = MARK.call(true, 1, (2, mark.len() + mine.len()));
        replace.arg(key).arg(mark).arg(&mine);
        Ok(match key_answer(route, link.query(&replace).await)? {
            KeyAnswer::Here(answer) => answer != Value::Int(0),
            KeyAnswer::Moved => false,
            KeyAnswer::Moving => true,
        })
    }

    /// Begins a grace period by hand at the server behind this connection.
    pub(crate) async fn begin(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
    ) -> RedisResult<()> {
        while let Some(key) = key_of_mark(&self.keys, route, wire) {
            let mark = format!("{}:{BY_HAND}{:032x}", self.longest.as_millis(), unique_bits());
            let set = link.query(redis::cmd("SET").arg(key).arg(mark)).await;
            if !matches!(key_answer(route, set)?, KeyAnswer::Here(_)) {
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            if let Some(known) = wire.identified(generation) {
                wire.note_identified(generation, Identified { is_open: false, ..known });
            }
            return self.look_patiently(route, (wire, generation), link).await.map(drop);
        }
        Ok(())
    }

    /// Whether the namespace is new at this server, rather than its mark lost: the server has been up for a
    /// grace period, and was not promoted meanwhile, nor before, or so long ago that it does not say so any
    /// more. Where no other server takes its place, a restart that loses all is what is to be feared, so its
    /// word for how long it has been up, which follows its wall clock, is not taken.
    async fn is_new(&self, identity: &Identity, link: &mut Link) -> RedisResult<bool> {
        let is_up = identity.up_for().is_some_and(|up| up >= self.period());
        if !self.moves || !is_up {
            return Ok(false);
        }
        let mut ask = redis::cmd("CONFIG");
        let forgets_after = match link.query(ask.arg("GET").arg("repl-backlog-ttl")).await {
            Ok(answer) => redis::from_redis_value::<HashMap<String, u64>>(answer).unwrap_or_default(),
            // Without the right to ask, nobody knows.
            Err(error) if !error.is_io_error() => HashMap::new(),
            Err(error) => return Err(error),
        };
        let seconds = forgets_after.into_values().next();
        Ok(seconds.is_some_and(|seconds| seconds == 0 || Duration::from_secs(seconds) >= self.period()))
    }
}

/// The call that grants nothing to waiters, instead of this one.
fn without_grants(item: &Item) -> Passed {
    let mut args = (*item.args).clone();
    if let Some(exact) = args.get_mut(EXACT) {
        CLOSED.clone_into(exact);
    }
    Passed { instead: Some(Item { args: args.into(), ..item.clone() }), ..Passed::default() }
}

/// For how long this process has seen the identity, at least.
fn seen_for(identity: &Arc<str>) -> Duration {
    let now = Moment::now();
    let mut seen = lock(&SEEN);
    if seen.len() >= REMEMBERED && !seen.contains_key(identity) {
        let last = seen.iter().max_by_key(|(_, since)| **since).map(|(identity, _)| Arc::clone(identity));
        seen.retain(|identity, _| Some(identity) == last.as_ref());
    }
    now.since(*seen.entry(Arc::clone(identity)).or_insert(now))
}

/// The key of the mark of a server; `None` if it can have no locks, as far as is known. In a cluster it is in
/// the first slot of the server, or in that of all locks of the namespace.
pub(crate) fn key_of_mark(keys: &Keys, route: &Route, wire: &Arc<Wire>) -> Option<String> {
    let slot = match keys.only_slot() {
        Some(only) => route.wire(only).filter(|owner| Arc::ptr_eq(owner, wire)).map(|_| only),
        None => route.first_slot(wire),
    };
    slot.map(|slot| keys.mark(slot))
}

/// What a server answers to a command about a key.
enum KeyAnswer<T> {
    Here(T),
    /// Another node of the cluster has the slot of the key by now.
    Moved,
    /// The slot of the key is being moved, and the key is at another node, or nowhere.
    Moving,
}

/// The mark; empty if there is none.
async fn mark(route: &Route, link: &mut Link, key: Option<&str>) -> RedisResult<KeyAnswer<String>> {
    let Some(key) = key else { return Ok(KeyAnswer::Here(String::new())) };
    Ok(match key_answer(route, link.query(redis::cmd("GET").arg(key)).await)? {
        KeyAnswer::Here(answer) => KeyAnswer::Here(one_text(answer)),
        KeyAnswer::Moved => KeyAnswer::Moved,
        KeyAnswer::Moving => KeyAnswer::Moving,
    })
}

/// The number in a mark by which an operator has begun a grace period.
fn by_hand(mark: &str) -> Option<&str> {
    mark.split_once(':')?.1.strip_prefix(BY_HAND)
}

/// Asks for the slots if the server has the key no more: perhaps no call for a lock is told so.
fn key_answer(route: &Route, answer: RedisResult<Value>) -> RedisResult<KeyAnswer<Value>> {
    match answer {
        Err(error) if error.kind() == ServerErrorKind::Moved.into() => {
            route.note_trouble();
            Ok(KeyAnswer::Moved)
        }
        Err(error) if error.kind() == ServerErrorKind::Ask.into() => Ok(KeyAnswer::Moving),
        answer => answer.map(KeyAnswer::Here),
    }
}

/// The error of a call that is made again, when the slots are known.
fn moved() -> RedisError {
    redis::make_extension_error(MARK_MOVED.to_owned(), Some(MARK_IS_ELSEWHERE.to_owned()))
}

/// The error of a connection whose server has become another.
fn replaced() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the server was promoted again").into()
}

fn grants_of(script: &'static Script) -> Grants {
    let is = |others: &[&'static Script]| others.iter().any(|other| std::ptr::eq(script, *other));
    if is(&[&ACQUIRE, &CLAIM]) {
        Grants::ToItsClaim
    } else if is(&[&RELEASE_CLAIM, &DOWNGRADE, &FORCE]) {
        Grants::ToWaiters
    } else if is(&[&INSPECT]) {
        Grants::NothingAndReads
    } else {
        Grants::Nothing
    }
}
