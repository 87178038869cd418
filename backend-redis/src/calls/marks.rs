//! Reads and sets the marks of servers: see [`lockwell_core::backend::MarkWatch`].
//!
//! * The server that answers is known by its [identity](crate::wire::identity). Locks are granted on a
//!   connection only while the *mark*, a key beside the locks, names this very identity, and is open. So a
//!   promoted replica, which has the mark of its master, grants nothing, and neither does a server that begins
//!   with what a file had, or with nothing. Whoever finds no such mark makes one, and all who look at it count
//!   until a grace period has passed. The server's clock plays no part.
//! * A mark that is missing is a forgetting, always: a server that is promoted before it has any data looks
//!   like a new one. An operator who knows that it is new opens the mark ([`Marks::set`]).
//! * An operator begins a grace period by a closed mark. A client that has seen it remembers that, also if an
//!   older mark of this server comes back with data that are restored.
//! * In a cluster the mark of a server is in its last slot, by its own word, which it is asked for with each
//!   look. So all clients look at the same key, whatever they believe of the slots. If a server gains a higher
//!   slot, a client that knows the mark at its old place, and finds it there as it was, puts it into the new
//!   one. If the last slot has left the server there is no mark, and so a grace period.
//! * The mark names the slots in which the server may grant locks. One that it gains later may have come
//!   without its locks, as when it was given to the server because its master is gone. Then it has no token
//!   counter either, and grants nothing for a grace period. If it has one, its keys were moved along.
//! * All clients must agree on the longest lease, so the mark names it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::{MarkWatch, grace_period, lock};
use redis::{RedisResult, ServerErrorKind, Value};

use crate::wire::Wire;
use crate::wire::identity::{Identified, Identity};
use crate::wire::link::Link;
use crate::wire::route::Route;
use crate::words::error::LONGEST;
use crate::words::info::one_text;
use crate::words::keys::Keys;
use crate::words::mark::{Mark, Slots};
use crate::words::script::MARK;

/// For how long an answer about the identity and the mark counts.
const FRESH: Duration = Duration::from_secs(1);

/// When a server that grants nothing, or whose mark is being moved, is asked again.
const RECHECK: Duration = Duration::from_millis(100);

/// When a key is set again whose slot was found to have moved.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How often a mark is looked at again that another client changes.
const LOOKS: u32 = 4;

/// How many identities are remembered.
const REMEMBERED: usize = 64;

/// The marks of the servers of one namespace.
#[derive(Debug)]
pub(super) struct Marks {
    keys: Keys,
    /// Whether this client may set them.
    may_set: bool,
    /// What was seen of the mark of each identity.
    seen: Mutex<HashMap<Arc<str>, Arc<Seen>>>,
}

#[derive(Debug)]
struct Seen {
    watch: MarkWatch,
    /// How long the server grants nothing after it may have forgotten.
    grace: Duration,
    /// The slot in which the mark was last.
    place: Mutex<Option<u16>>,
}

impl Marks {
    pub(super) fn new(keys: Keys, may_set: bool) -> Self {
        Self { keys, may_set, seen: Mutex::default() }
    }

    /// What the server behind this connection is, and where it may grant locks. Counts while it grants
    /// nothing.
    pub(super) async fn look(
        &self,
        longest: Duration,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
    ) -> RedisResult<Identified> {
        let asked = Moment::now();
        let known = wire.identified(generation);
        if let Some(known) = &known {
            let counts = if known.mark.slots.covers(&known.own) { FRESH } else { RECHECK };
            if known.verified.after(counts) > asked {
                return Ok(known.clone());
            }
        }
        let mut last = None;
        for _ in 0..LOOKS {
            let (is_settled, looked) = self.look_once(longest, route, wire, link, known.as_ref()).await?;
            if is_settled {
                wire.note_identified(generation, looked.clone());
                return Ok(looked);
            }
            last = Some(looked);
        }
        // Others are changing it.
        last.ok_or_else(replaced)
    }

    /// One look. `false`: another client changes the mark, or the slots are being moved.
    async fn look_once(
        &self,
        longest: Duration,
        route: &Route,
        wire: &Arc<Wire>,
        link: &mut Link,
        known: Option<&Identified>,
    ) -> RedisResult<(bool, Identified)> {
        let verified = Moment::now();
        let place = known.and_then(|known| known.own.last());
        let (mut second, mut third) = (link.clone(), link.clone());
        // All of this is one round trip.
        let (identity, own, found) = tokio::join!(
            async {
                match known {
                    None => Identity::ask(link).await,
                    Some(known) if known.identity.is_still(link).await? => Ok(known.identity.clone()),
                    Some(_) => Err(replaced()),
                }
            },
            self.own_slots(route, wire, &mut second),
            async {
                match place {
                    Some(place) => self.read(route, &mut third, place).await.map(Some),
                    None => Ok(None),
                }
            }
        );
        let (identity, own, mut found) = (identity?, own?, found?);
        let nothing = |verified, mark: Arc<Mark>, left| Identified {
            identity: identity.clone(),
            verified,
            own: own.clone(),
            mark,
            left,
        };
        let period = grace_period(longest);
        let Some(last) = own.last() else { return Ok((true, nothing(verified, Arc::default(), period))) };
        if place != Some(last) {
            found = Some(self.read(route, link, last).await?);
        }
        let text = match found {
            Some(KeyAnswer::Here(text)) => text,
            // Nobody can begin a grace period either while the mark is on its way.
            Some(KeyAnswer::Moving) => {
                let (mark, left) = known.map_or((Arc::default(), period), |one| (one.mark.clone(), one.left));
                return Ok((true, nothing(verified.before(FRESH.saturating_sub(RECHECK)), mark, left)));
            }
            Some(KeyAnswer::Moved) | None => {
                return Ok((false, nothing(verified, Arc::default(), Duration::ZERO)));
            }
        };
        let mut seen = self.seen(longest, &identity.text);
        let place = *lock(&seen.place);
        let lead = lead(longest, &identity);
        agree(longest, &text)?;
        let here = Mark::parse(&text, &lead);
        let mut base = here.clone();
        let mut left_behind = None;
        if base.is_none()
            && let Some(place) = place.filter(|place| *place != last && own.contains(*place))
        {
            let there = self.read(route, link, place).await?;
            base = there.here().and_then(|there| Mark::parse(&there, &lead));
            left_behind = base.is_some().then_some(place);
        }
        // Whoever may not make a mark counts for itself.
        if base.is_none() && !self.may_set {
            base = Some(Mark::unmade(&own));
            seen = self.seen(longest, &format!("{} without a mark", identity.text).into());
        }
        let (mark, left) = if let Some(mark) = base {
            mark.next(&own, &seen.watch, Moment::now(), seen.grace)
        } else if self.own_slots(route, wire, link).await? != own {
            // Another client may have put the mark into a slot that has just arrived.
            return Ok((false, nothing(verified, Arc::default(), Duration::ZERO)));
        } else {
            tracing::warn!(lockwell.grace = ?period, "the server may have forgotten grants: no lock is granted for a grace period");
            (Mark::closed(&own), period)
        };
        if self.may_set && here.as_ref() != Some(&mark) {
            if !self.replace(route, link, last, (&text, &mark.text(&lead))).await? {
                let mut found = here.unwrap_or_default();
                found.slots = found.slots.within(&mark.slots);
                return Ok((false, nothing(verified, Arc::new(found), left)));
            }
            mark.note(&seen.watch, Moment::now(), seen.grace);
        }
        *lock(&seen.place) = Some(last);
        if let Some(place) = left_behind.filter(|_| self.may_set) {
            link.query(redis::cmd("DEL").arg(self.keys.mark(place))).await?;
        }
        Ok((true, nothing(verified, Arc::new(mark), left)))
    }

    fn seen(&self, longest: Duration, what: &Arc<str>) -> Arc<Seen> {
        let (mut all, grace) = (lock(&self.seen), grace_period(longest));
        if all.len() >= REMEMBERED && !all.contains_key(what) {
            let now = Moment::now();
            all.retain(|_, seen| seen.watch.seen_for(now) < grace);
        }
        let new = || Arc::new(Seen { watch: MarkWatch::default(), grace, place: Mutex::default() });
        Arc::clone(all.entry(Arc::clone(what)).or_insert_with(new))
    }

    /// The slots of a server in which it can have locks, by its own word.
    pub(super) async fn own_slots(
        &self,
        route: &Route,
        wire: &Arc<Wire>,
        link: &mut Link,
    ) -> RedisResult<Slots> {
        let own = route.own_slots(wire, link).await?;
        Ok(match self.keys.only_slot() {
            Some(only) => own.within(&Slots::of([(only, only)])),
            None => own,
        })
    }

    /// The mark in this slot; empty if there is none.
    pub(super) async fn read(&self, route: &Route, link: &mut Link, slot: u16) -> RedisResult<KeyAnswer> {
        key_answer(route, link.query(redis::cmd("GET").arg(self.keys.mark(slot))).await)
    }

    /// Sets the mark in this slot, unless it is another than `before` by now. Returns whether it was not.
    async fn replace(
        &self,
        route: &Route,
        link: &mut Link,
        slot: u16,
        (before, mark): (&str, &str),
    ) -> RedisResult<bool> {
        // By its text, since it is rare.
        let mut replace = MARK.call(true, 1, (2, before.len() + mark.len()));
        replace.arg(self.keys.mark(slot)).arg(before).arg(mark);
        Ok(key_answer(route, link.query(&replace).await)?.here().is_some_and(|answer| answer == "1"))
    }

    /// Sets the mark of the server behind this connection, whatever it is: an operator begins a grace period,
    /// or says that the server has forgotten nothing. Returns whether the server can have locks.
    pub(super) async fn set(
        &self,
        longest: Duration,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
        opens: bool,
    ) -> RedisResult<bool> {
        let lead = lead(longest, &Identity::ask(link).await?);
        loop {
            let own = self.own_slots(route, wire, link).await?;
            let Some(last) = own.last() else { return Ok(false) };
            let mut mark = Mark::closed(&own);
            if opens {
                // Those who have seen it closed know it by its number.
                let found = self.read(route, link, last).await?.here();
                mark = found.and_then(|text| Mark::parse(&text, &lead)).unwrap_or(mark).open(&own);
            }
            let set = link.query(redis::cmd("SET").arg(self.keys.mark(last)).arg(mark.text(&lead))).await;
            let is_set = key_answer(route, set)?.here().is_some();
            if is_set && self.own_slots(route, wire, link).await?.last() == Some(last) {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        wire.doubt_identity(generation);
        Ok(true)
    }

    /// Whether the locks of a slot came along when the server has gained it, if there were any lately.
    pub(super) async fn has_counter(&self, link: &mut Link, slot: u16) -> RedisResult<bool> {
        let counter = link.query(redis::cmd("EXISTS").arg(self.keys.token(slot))).await?;
        Ok(counter == Value::Int(1))
    }
}

/// What all marks of a server begin with.
fn lead(longest: Duration, identity: &Identity) -> String {
    format!("{}:{}", longest.as_millis(), identity.text)
}

/// Refuses a mark of clients that have another period in mind.
fn agree(longest: Duration, mark: &str) -> RedisResult<()> {
    match mark.split_once(':') {
        Some((other, _)) if other != longest.as_millis().to_string() => {
            let text = format!(
                "the clients of this namespace use longest_ttl={other}ms: all must use the same. To change it, stop \
                 them for that time, and delete the key that ends in \"mark\""
            );
            Err(redis::make_extension_error(LONGEST.to_owned(), Some(text)))
        }
        _ => Ok(()),
    }
}

/// What a server answers to a command about a key.
pub(super) enum KeyAnswer {
    Here(String),
    /// Another node of the cluster has the slot of the key by now.
    Moved,
    /// The slot of the key is being moved, and the key is at another node, or nowhere.
    Moving,
}

impl KeyAnswer {
    fn here(self) -> Option<String> {
        if let Self::Here(text) = self { Some(text) } else { None }
    }
}

/// Asks for the slots if the server has the key no more: perhaps no call for a lock is told so.
fn key_answer(route: &Route, answer: RedisResult<Value>) -> RedisResult<KeyAnswer> {
    match answer {
        Err(error) if error.kind() == ServerErrorKind::Moved.into() => {
            route.note_trouble();
            Ok(KeyAnswer::Moved)
        }
        Err(error) if error.kind() == ServerErrorKind::Ask.into() => Ok(KeyAnswer::Moving),
        Ok(Value::Int(number)) => Ok(KeyAnswer::Here(number.to_string())),
        answer => answer.map(one_text).map(KeyAnswer::Here),
    }
}

/// The error of a connection whose server has become another.
fn replaced() -> redis::RedisError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the server was promoted again").into()
}
