//! The grace period of a server that may have forgotten its last grants, as after a restart or a failover.
//! See [`lockwell_core::backend::grace`].
//!
//! * Nothing is granted on a connection before its server is known, and its [mark](crate::calls::marks) is open.
//! * Meanwhile leases are extended or reclaimed (`server/reclaim.rs`), and locks are released, but a release
//!   grants the lock to no waiter: it may be the late copy of a request to the earlier server, whose next
//!   holder is forgotten.
//! * A connection outlasts the change of its server into a replica and back. Two such changes take longer
//!   than a second, so a connection on which the server was not asked for that time asks again before it
//!   grants or renews. It also looks at the mark.
//! * A client without grace periods grants nothing where it finds a mark, for which it looks once on each
//!   connection.
//!
//! This does not help against an earlier master that still answers other clients, against other programs,
//! which do not read the mark, against slots of a cluster that are moved within a grace period, and against
//! one that leaves a server and comes back without its locks while no client looks at that server.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{GraceGauge, closed_for, grace_period};
use redis::RedisResult;

use crate::calls::item::Item;
use crate::calls::marks::{KeyAnswer, Marks};
use crate::wire::Wire;
use crate::wire::identity::Identified;
use crate::wire::link::Link;
use crate::wire::route::Route;
use crate::words::error::{GRACE, LONGEST};
use crate::words::keys::Keys;
use crate::words::script::{
    ACQUIRE, CLAIM, DOWNGRADE, FORCE, INSPECT, RELEASE_CLAIM, RENEW, Script, WRITE_RECORD,
};

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

/// Where a server may grant locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// In any of its slots.
    Server,
    Slot(u16),
    /// In a slot that it is only receiving.
    Arriving,
}

/// A call that may be made.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// What is to be called instead of the items.
    pub(super) instead: Option<Item>,
    /// For how long the server grants nothing, for a script that reads.
    pub(super) closed_for: Option<Duration>,
}

/// What a client knows about the grace periods of its servers. All runtimes share it.
#[derive(Debug)]
pub(crate) struct GraceGate {
    /// The longest lease that a server may forget. `None`: a server is trusted to forget none.
    longest: Option<Duration>,
    gauge: GraceGauge,
    marks: Marks,
}

impl GraceGate {
    pub(crate) fn new(longest: Option<Duration>, keys: Keys, may_set: bool) -> Self {
        Self { longest, gauge: GraceGauge::new("redis"), marks: Marks::new(keys, may_set) }
    }

    /// How long a grace period lasts, if there are any.
    pub(crate) fn period(&self) -> Option<Duration> {
        self.longest.map(grace_period)
    }

    /// Whether calls on this connection need no question before them: one answer counts for all of it.
    pub(super) fn is_passed(&self, wire: &Wire) -> bool {
        self.longest.is_none() && wire.is_identified()
    }

    /// Looks whether the call may be made on this connection: an error if it is a claim and nothing is
    /// granted. Returns another item instead of one that must grant nothing to waiters. `asking`: the server
    /// is only receiving the slot, and carries nothing out for which a key of the lock is missing there.
    pub(super) async fn pass(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
        (items, asking): (&[&Item], bool),
    ) -> RedisResult<Passed> {
        let grants = grants_of(items[0].script);
        let renew: &Script = &RENEW;
        let is_none = match grants {
            Grants::Nothing => self.longest.is_none() || !std::ptr::eq(items[0].script, renew),
            Grants::NothingAndReads => self.longest.is_none(),
            Grants::ToItsClaim | Grants::ToWaiters => false,
        };
        if is_none {
            return Ok(Passed::default());
        }
        let part = if asking { Part::Arriving } else { Part::Slot(items[0].slot) };
        match (grants, self.closed(route, (wire, generation), link, part).await) {
            // A lease is extended all the same. Whoever only renews looks, too, so that it counts.
            (Grants::Nothing, _) | (_, Ok(None)) => Ok(Passed::default()),
            // This client has no grace periods, and others have. A lock is released all the same.
            (Grants::ToWaiters, Err(error)) if error.code() == Some(LONGEST) && self.longest.is_none() => {
                Ok(without_grants(items[0]))
            }
            (_, Err(error)) => Err(error),
            // If the server changes now, the connection ends, and the call is made anew on another.
            (Grants::NothingAndReads, Ok(Some(left))) => {
                Ok(Passed { closed_for: Some(left), ..Passed::default() })
            }
            // It keeps its place, if it has one, and is granted nothing.
            (Grants::ToItsClaim, Ok(Some(left))) if is_claim(items[0].script) => {
                Ok(Passed { closed_for: Some(left), ..without_grants(items[0]) })
            }
            (Grants::ToItsClaim, Ok(Some(left))) => {
                Err(redis::make_extension_error(GRACE.to_owned(), Some(closed_for(left))))
            }
            // A lock is released all the same, and nobody is granted it.
            (Grants::ToWaiters, Ok(Some(_))) => Ok(without_grants(items[0])),
        }
    }

    /// For how long the server behind this connection grants nothing. `None`: it may grant locks.
    pub(crate) async fn closed(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
        part: Part,
    ) -> RedisResult<Option<Duration>> {
        let Some(longest) = self.longest else {
            return self.refuse_mark(route, (wire, generation), link).await.map(|()| None);
        };
        let known = self.marks.look(longest, route, (wire, generation), link).await?;
        let Identified { own, mark, .. } = &known;
        let is_open = !mark.slots.is_empty();
        if !own.is_empty() {
            self.gauge.note((!is_open).then_some(known.left));
        }
        let grants = match part {
            Part::Server => is_open || own.is_empty(),
            Part::Arriving => is_open,
            Part::Slot(slot) if mark.slots.contains(slot) => true,
            // If the slot is at another server, the answer is an error that says so.
            Part::Slot(slot) if is_open || !own.contains(slot) => {
                self.marks.has_counter(link, slot).await? && is_open
            }
            Part::Slot(_) => false,
        };
        Ok((!grants).then_some(known.left))
    }

    /// Sets the mark of the server behind this connection, whatever it is: an operator begins a grace period,
    /// or says that the server has forgotten nothing. Returns whether the server can have locks.
    pub(crate) async fn set(
        &self,
        route: &Route,
        connection: (&Arc<Wire>, u64),
        link: &mut Link,
        opens: bool,
    ) -> RedisResult<bool> {
        let Some(longest) = self.longest else { return Ok(false) };
        if !self.marks.set(longest, route, connection, link, opens).await? {
            return Ok(false);
        }
        self.closed(route, connection, link, Part::Server).await.map(|_| true)
    }

    /// Refuses a server whose other clients have grace periods: this client would grant locks meanwhile.
    async fn refuse_mark(
        &self,
        route: &Route,
        (wire, generation): (&Arc<Wire>, u64),
        link: &mut Link,
    ) -> RedisResult<()> {
        if wire.identified(generation).is_some() {
            return Ok(());
        }
        let own = self.marks.own_slots(route, wire, link).await?;
        if let Some(last) = own.last() {
            match self.marks.read(route, link, last).await? {
                KeyAnswer::Here(text) if text.is_empty() => (),
                KeyAnswer::Here(_) => {
                    let text = "other clients of this namespace use durability=grace: all must, or none";
                    return Err(redis::make_extension_error(LONGEST.to_owned(), Some(text.to_owned())));
                }
                // It is asked again with the next call.
                KeyAnswer::Moved | KeyAnswer::Moving => return Ok(()),
            }
        }
        wire.note_identified(generation, Identified::unmarked(own));
        Ok(())
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

/// Whether it is the script that keeps places in queues.
fn is_claim(script: &'static Script) -> bool {
    let claim: &Script = &CLAIM;
    std::ptr::eq(script, claim)
}

fn grants_of(script: &'static Script) -> Grants {
    let is = |others: &[&'static Script]| others.iter().any(|other| std::ptr::eq(script, *other));
    // The server may have forgotten who holds the lock.
    if is(&[&ACQUIRE, &CLAIM, &WRITE_RECORD]) {
        Grants::ToItsClaim
    } else if is(&[&RELEASE_CLAIM, &DOWNGRADE, &FORCE]) {
        Grants::ToWaiters
    } else if is(&[&INSPECT]) {
        Grants::NothingAndReads
    } else {
        Grants::Nothing
    }
}
