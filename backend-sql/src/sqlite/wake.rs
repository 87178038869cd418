//! Releases that grant the lock to the first waiter, and how the next waiters are woken.
//!
//! A release frees the lock and grants it to the first waiter in one transaction, under a *provisional*
//! lease. Then it sends a message to the client of that waiter ([`sockets`](super::sockets)), and to nobody
//! else. The message is the answer to the claim: it has a half of the claim's owner id, which only those know
//! who can read the file, and the moment of the boot clock at which the release was sent. All processes on
//! one file share one host, and so that clock. The lease began later than that moment, so the waiter holds
//! the lock from there on ([`accepted`](Sqlite::accepted)), without a request. The waiter looks, as after
//! each statement, whether the file still has its name, and so does the release before it sends the message.
//! If the containers of a host have boot clocks of their own (time namespaces), the moment may be wrong: so
//! one that is still to come counts for nothing, and the lease must also last by the clock of the database.
//!
//! A waiter that does not accept the message reads the lock's row. If that has the waiter as its owner, and
//! the token of the message, the waiter has the lock, for as long as the row says. A waiter that finds its
//! grant without a message, since it asks now and then, asks for the lock as usual, with a statement that
//! writes: it gets a whole lease.
//!
//! If nobody has the socket any more, the release takes its grant back and grants the lock to the next
//! waiter. The client may live all the same, if somebody has removed its socket. But without the message it
//! cannot have accepted the grant, and by writing it has set another end of the lease, which the statement
//! that takes the grant back compares. A provisional lease is a microsecond shorter than a lease could be
//! that begins at the same time. The place of that waiter is deleted; if it lives, it takes another one.
//!
//! If the process is killed before it sends the message, or if the message is lost, the waiter finds its
//! grant when it asks by itself. If it is gone as well, others wait until the provisional lease has ended.
//!
//! No grant is synced in this way: only waiters that need no sync say that a release may grant them the lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockwell_core::backend::{PushedGrant, provisional_lease, valid_until};
use lockwell_core::{Claim, LockName, Moment};
use sqlx_core::row::Row;
use sqlx_sqlite::SqliteRow;
use uuid::Uuid;

use super::connection::Connection;
use super::driver::{Sqlite, json, owners};
use super::plan::{Asked, Step, plan};
use super::sockets::{Message, Sent};
use crate::dialect::groups::{find_next, freed_each};
use crate::dialect::hints::Hint;
use crate::ids::AsUuid;
use crate::words::{Freed, Notification, micros, span, token};

/// How many clients that are gone a release passes over. Afterwards a provisional lease has to end.
const PASSED_OVER: usize = 200;

/// How many statements hand a lock over: the second one says what the first has done.
const STATEMENTS: usize = 2;

/// What a release has made of a lock's row.
struct Released {
    /// The new owner and its grant, if the lock was granted to a waiter.
    granted: Option<Handed>,
    /// Whether there are places in the queue.
    is_waited_for: bool,
}

/// A grant that a release has made.
#[derive(Clone, Copy)]
struct Handed {
    owner: Uuid,
    token: i64,
    /// The end of the provisional lease.
    ends: i64,
    /// Where the waiter is. `None`: its place was gone already.
    place: Option<(Uuid, i64)>,
    /// When the request that made it was sent.
    sent: Moment,
}

impl Handed {
    fn message(&self, ticket: i64) -> Message {
        let Self { owner, token, ends, sent, .. } = *self;
        let hint = Message { ticket, token, ..Message::default() };
        if Moment::IS_SHARED {
            Message { ends, proof: half(owner), sent: sent.as_nanos(), ..hint }
        } else {
            hint
        }
    }
}

/// A half of an owner's id, and never zero.
fn half(owner: Uuid) -> u64 {
    owner.as_u64_pair().1.max(1)
}

/// What a message says about a grant.
pub(super) fn pushed(message: Message) -> PushedGrant {
    let Message { token: number, ends, proof, sent, .. } = message;
    PushedGrant::proven(token(number), ends.cast_unsigned(), proof, Moment::from_nanos(sent))
}

/// The lease under which a release may grant a lock to this claim. `None`: it only notifies the claim.
pub(super) fn provisional(claim: &Claim) -> Option<i64> {
    provisional_lease(claim).map(|lease| micros(lease) - 1)
}

/// What is left of a provisional lease, if that is enough for a claim that reads its grant. The clock of the
/// database goes in steps of a millisecond.
pub(super) fn left_of(claim: &Claim, left: i64) -> Option<Duration> {
    let left = left.saturating_sub(1000);
    (left >= micros(provisional_lease(claim)?) / 2).then(|| span(left))
}

impl Sqlite {
    /// Until when the grant of this message is valid, and since when, if the claim can rely on it without a
    /// request. This is called after the message has come, and before the claim has its answer.
    pub(super) fn accepted(
        &self,
        conn: &Connection,
        claim: &Claim,
        pushed: &PushedGrant,
    ) -> Option<(Moment, Moment)> {
        let lease = span(provisional(claim)?);
        let (proof, sent) = pushed.proof()?;
        let now = Moment::now();
        let is_ours = proof == half(claim.owner().as_uuid());
        // A claim that asks for the lock looks at the disk: this one may have waited for long since the last
        // look.
        let may_be_lost = self.opening.durability.failed().is_some() || conn.is_look_due();
        // The release was in the file that had the name then, and this connection is if it has had it since
        // before.
        let is_one_file = conn.was_open(sent) && conn.check().is_ok();
        if !is_ours || sent > now || may_be_lost || !is_one_file {
            return None;
        }
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let left = left_of(claim, pushed.ends().cast_signed().saturating_sub(micros(clock)))?;
        let deadline = valid_until(sent, lease).min(valid_until(now, left));
        (deadline.since(now) >= lease / 3).then_some((sent, deadline))
    }

    /// Frees locks, or grants them to their first waiters, and wakes these when all of it is committed.
    pub(super) async fn release_each(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
    ) -> sqlx_core::Result<Vec<Freed>> {
        let released = if self.release_unwaited(conn, claims).await? {
            claims.iter().map(|_| Some(Released { granted: None, is_waited_for: false })).collect()
        } else {
            let owners: Vec<_> = claims.iter().map(|claim| (claim.name(), claim.owner().as_uuid())).collect();
            self.hand_over(conn, &owners, None).await?
        };
        let mut answers = Vec::with_capacity(claims.len());
        for (claim, released) in claims.iter().zip(released) {
            answers.push(match released {
                None => Freed::default(),
                Some(Released { granted: Some(granted), .. }) => {
                    self.hints.note(Hint::HandedOn, claim.name());
                    let notification = self.announce(conn, claim.name(), granted).await;
                    Freed { notification, ..Freed::new(true, Vec::new()) }
                }
                Some(Released { is_waited_for: false, .. }) => {
                    self.hints.forget(Hint::HandedOn, claim.name());
                    Freed::new(true, Vec::new())
                }
                Some(Released { is_waited_for: true, .. }) => {
                    let freed = freed_each(self, conn, std::slice::from_ref(claim), &[true]).await?;
                    freed.into_iter().next().unwrap_or_default()
                }
            });
        }
        Ok(answers)
    }

    /// Frees locks that nobody waits for. False: some are waited for, or not held, and it has freed none.
    async fn release_unwaited(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx_core::Result<bool> {
        let is_unwaited = |claim: &Claim| {
            let waits = conn.waiters.waits_for(claim.name());
            plan(Asked::Release { waits }, self.hints.of(claim.name()))[0] == Step::ReleaseUnwaited
        };
        if !claims.iter().all(is_unwaited) {
            return Ok(false);
        }
        let done = if let [claim] = claims {
            let (name, owner) = (claim.name().as_str(), claim.owner().as_uuid());
            conn.write(&self.sql.release_unwaited, |query| query.bind(name).bind(owner)).await?
        } else {
            let names: Vec<_> = claims.iter().map(|claim| claim.name().as_str()).collect();
            let (names, owners) = (json(&names)?, owners(claims));
            conn.write(&self.sql.release_many, |query| query.bind(&names).bind(&owners)).await?
        };
        Ok(done.changed > 0)
    }

    /// Whether a release grants nothing to waiters.
    fn wakes_nobody(&self) -> bool {
        self.opening.durability.failed().is_some() || self.sends_in_vain.load(Ordering::Relaxed)
    }

    /// Frees locks of these owners, and grants them to their first waiters. `instead`: only if they still have
    /// this grant. `None`: the owner does not have the lock, or not with that grant.
    async fn hand_over(
        &self,
        conn: &mut Connection,
        locks: &[(&LockName, Uuid)],
        instead: Option<Handed>,
    ) -> sqlx_core::Result<Vec<Option<Released>>> {
        let names: Vec<_> = locks.iter().map(|(name, _)| name.as_str()).collect();
        let names = json(&names)?;
        let owners: Vec<u8> = locks.iter().flat_map(|(_, owner)| owner.into_bytes()).collect();
        // In no boot is a lock granted.
        let boot = (!self.wakes_nobody()).then_some(&self.opening.durability.boot);
        let sent = Moment::now();
        let handing = conn.write_several(&self.sql.hand_over, STATEMENTS, |query| {
            query
                .bind(&names)
                .bind(&owners)
                .bind(boot)
                .bind(instead.map(|grant| grant.token))
                .bind(instead.map(|grant| grant.ends))
        });
        let mut all: Vec<_> = locks.iter().map(|_| None).collect();
        for row in handing.await?.rows {
            let place: i64 = row.try_get(0)?;
            let place = usize::try_from(place).ok();
            if let Some((one, (_, owner))) = place.and_then(|place| all.get_mut(place).zip(locks.get(place)))
            {
                *one = Some(released(&row, *owner, sent)?);
            }
        }
        Ok(all)
    }

    /// Tells the waiter that it has the lock. Passes over clients that are gone. Returns the notification, if
    /// the waiter is one of this client.
    async fn announce(
        &self,
        conn: &mut Connection,
        name: &LockName,
        granted: Handed,
    ) -> Option<Notification> {
        let mut granted = granted;
        for _ in 0..PASSED_OVER {
            let (client, ticket) = granted.place?;
            let message = granted.message(ticket);
            if client == conn.client() {
                return Some(Notification::of_grant(ticket, pushed(message)));
            }
            // The message is an answer, and must not come from a file that has lost its name. The release is
            // then repeated in the other one.
            if conn.check().is_err() {
                return None;
            }
            if self.send(conn, client, message) != Sent::Gone {
                return None;
            }
            // The release is done. If this fails, the provisional lease ends.
            let handed = self.hand_over(conn, &[(name, granted.owner)], Some(granted)).await;
            match handed.map(|mut handed| handed.pop().flatten()) {
                Ok(Some(Released { granted: Some(next), .. })) => granted = next,
                Ok(Some(Released { is_waited_for: true, .. })) => {
                    return find_next(self, conn, name)
                        .await
                        .ok()?
                        .first()
                        .map(|&ticket| Notification::to_recheck(ticket));
                }
                Ok(_) => return None,
                Err(error) => {
                    tracing::debug!(%error, "a lock that was granted to a client that is gone was not granted to the next one");
                    return None;
                }
            }
        }
        None
    }

    /// Sends a message to another client.
    pub(super) fn send(&self, conn: &Connection, client: Uuid, message: Message) -> Sent {
        let sent = conn.sockets().send(client, message);
        if sent == Sent::Refused && !self.sends_in_vain.swap(true, Ordering::Relaxed) {
            warn_once("this user may not send to the sockets of others");
        }
        sent
    }
}

/// What the statements have answered.
fn released(row: &SqliteRow, owner: Uuid, sent: Moment) -> sqlx_core::Result<Released> {
    let now: Uuid = row.try_get(1)?;
    let mut granted = None;
    if now != owner {
        let (client, ticket): (Option<Uuid>, Option<i64>) = (row.try_get(5)?, row.try_get(6)?);
        let place = client.zip(ticket);
        granted = Some(Handed { owner: now, token: row.try_get(2)?, ends: row.try_get(3)?, place, sent });
    }
    Ok(Released { granted, is_waited_for: row.try_get(4)? })
}

/// Logs, once per process, why a release does not wake the next waiter alone.
pub(super) fn warn_once(why: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            lockwell.why = why,
            "waiters of the SQLite file are not woken by sockets: they watch its log, or ask now and then"
        );
    }
}
