//! Tables on which a grant waits for no disk (`durability=grace`).
//!
//! * **A crash** of the server, also of one of its backends, loses the last changes to the table of locks:
//!   those of up to three times `wal_writer_delay`. With them it empties the mark, which is UNLOGGED. Without
//!   an open mark a granting statement fails, so nothing is granted until each lease has ended that may have
//!   been lost ([`MarkWatch`](lockwell_core::backend::MarkWatch)). The same happens on a promoted replica,
//!   and in a restored backup.
//! * **A holder** whose record survived renews it as ever. One whose record is lost reclaims the lock by its
//!   renewal: the record that is there has a lower token. Leases that have ended locally are not renewed, so
//!   an old record that came back is not taken for a lock that is held. A reader or a holder of a permit
//!   whose record is lost is told so: what it shares its lock with cannot be told from one row.
//! * **`verify_in`** fails until the mark is open, since an old record that came back says nothing. By then
//!   each later holder has reclaimed its lock, or lost it.
//! * **Tokens** rise over a crash: none is granted above a bound that is on the disk, and after a crash the
//!   first one is above that bound.
//! * **By hand** a period is begun where a server lacks grants and has an open mark, as after a move by
//!   logical replication to tables that were made before.
//! * **A lease that is longer** than what the tables were made for is refused. If it waited for the disk of
//!   one server, a replica could lack it for longer than a grace period.
//!
//! Nobody needs the disk for the rest: a release that is lost leaves a lease that ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockwell_core::backend::{Mark, MarkAdvice, closed_for, unique_bits};
use lockwell_core::{Claim, ErrorKind, Finding, Grant, LockName, Moment};
use uuid::Uuid;

use super::driver::{Conn, Postgres, labels, names, ttls};
use super::durability::Grace;
use crate::dialect::answers::postgres::{NO_GRANT, REMADE};
use crate::dialect::error::{misconfigured, ours};
use crate::ids::AsUuid;
use crate::words::{Extension, Freed, micros, span};

/// How often a client looks again at a mark that it has changed, or tries a statement again.
pub(super) const LOOKS: u32 = 4;

/// The longest lease, and whether a crash would keep the mark; of the mark, if there is one, its id, the time until
/// it opens, for how long clients have seen it, and whether it is open.
type Looked = (i64, bool, Option<Uuid>, Option<i64>, Option<i64>, Option<bool>);

const LACKS_RIGHTS: &str = "this user may lock, but lacks rights on the tables `.._state` and `.._mark`, by which it would have to \
                            raise the bound of tokens and to open the mark after a crash: GRANT SELECT, INSERT, UPDATE on both";
const KEPT: &str = "the table of the mark is LOGGED, so a crash would keep an open mark while it loses grants: set it UNLOGGED \
                    (`ALTER TABLE .. SET UNLOGGED`)";

/// Whether a server grants locks, after a statement has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It does now.
    NotNow,
    /// Not for this time.
    For(Duration),
}

/// A user who may only read leaves the mark to others, and learns that the server grants nothing for so long
/// at least.
fn left_to_others(error: sqlx_core::Error, left: Duration) -> sqlx_core::Result<MarkAdvice> {
    let sqlx_core::Error::Database(why) = &error else { return Err(error) };
    match why.code().as_deref() {
        // A right is missing; the transaction, or the server, is read only.
        Some("42501" | "25006") => Ok(MarkAdvice::Wait(left)),
        // Another that makes a mark waits for the disk.
        Some("55P03") => Ok(MarkAdvice::Make),
        _ => Err(error),
    }
}

/// Whether a statement has failed because the server grants nothing now, or because of the bound of tokens.
fn is_no_grant(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Database(error)
        if error.code().as_deref() == Some("22P02") && error.message().contains(NO_GRANT))
}

impl Postgres {
    /// If a statement has failed because the server grants nothing, looks at the mark, and raises the bound
    /// of tokens if that was the reason. `None`: it has not failed for that reason.
    pub(super) async fn closed<'a, T>(
        &self,
        conn: &mut Conn,
        outcome: &sqlx_core::Result<T>,
        claims: impl Iterator<Item = &'a Claim>,
    ) -> sqlx_core::Result<Option<Closed>> {
        let (Some(grace), Err(error)) = (&self.grace, outcome) else { return Ok(None) };
        if !is_no_grant(error) {
            return Ok(None);
        }
        Ok(Some(match self.look(conn, grace).await? {
            MarkAdvice::Grants => {
                self.statement(&grace.sql.raise_bound).bind(each_name(claims)).execute(&mut *conn).await?;
                self.statement(&grace.sql.copy_bound).execute(conn).await?;
                Closed::NotNow
            }
            MarkAdvice::Wait(left) => Closed::For(left),
            // Others are changing it.
            MarkAdvice::Make | MarkAdvice::Raise(_) | MarkAdvice::Open => Closed::For(Duration::ZERO),
        }))
    }

    /// For how long the server grants nothing. `None`: it grants locks.
    pub(super) async fn closed_for(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Duration>> {
        let Some(grace) = &self.grace else { return Ok(None) };
        Ok(match self.look(conn, grace).await? {
            MarkAdvice::Grants => None,
            MarkAdvice::Wait(left) => Some(left),
            // Others are changing it.
            MarkAdvice::Make | MarkAdvice::Raise(_) | MarkAdvice::Open => Some(Duration::ZERO),
        })
    }

    /// Looks at the mark, and does what is to be done about it.
    pub(super) async fn look(&self, conn: &mut Conn, grace: &Grace) -> sqlx_core::Result<MarkAdvice> {
        let mut advice = MarkAdvice::Make;
        for _ in 0..LOOKS {
            let mark = self.mark(conn, grace).await?;
            advice = grace.watch.advise(mark, Moment::now());
            match advice {
                MarkAdvice::Make => {
                    tracing::warn!(
                        lockwell.server = %self.address, lockwell.grace = ?grace.watch.grace(),
                        "the server may have forgotten grants: no lock is granted for a grace period"
                    );
                    if let Err(error) = self.make_mark(conn, grace, mark).await {
                        advice = left_to_others(error, grace.watch.grace())?;
                        break;
                    }
                }
                MarkAdvice::Raise(counted) => {
                    let raise = self.statement(&grace.sql.raise_count).bind(mark.map(id_of));
                    let raise = raise.bind(mark.map(|mark| micros(mark.counted))).bind(micros(counted));
                    if let Err(error) = raise.execute(&mut *conn).await {
                        advice = left_to_others(error, grace.watch.grace().saturating_sub(counted))?;
                        break;
                    }
                }
                MarkAdvice::Open => {
                    let open = self.statement(&grace.sql.open_mark).bind(mark.map(id_of));
                    if let Err(error) = open.execute(&mut *conn).await {
                        advice = left_to_others(error, Duration::ZERO)?;
                        break;
                    }
                }
                MarkAdvice::Grants => {
                    grace.gauge.note(None);
                    break;
                }
                MarkAdvice::Wait(left) => {
                    grace.gauge.note(Some(left));
                    break;
                }
            }
        }
        Ok(advice)
    }

    async fn mark(&self, conn: &mut Conn, grace: &Grace) -> sqlx_core::Result<Option<Mark>> {
        let found: Option<Looked> = self.statement(&grace.sql.look_at_mark).row(conn).await?;
        let (longest, is_kept, id, opens_in, counted, is_open) =
            found.ok_or(sqlx_core::Error::RowNotFound)?;
        if is_kept {
            return Err(misconfigured(KEPT));
        }
        // Whoever has another period in mind would open the mark too early.
        if span(longest) != grace.longest {
            return Err(misconfigured(REMADE));
        }
        let parts = id.zip(opens_in).zip(counted.zip(is_open));
        Ok(parts.map(|((id, opens_in), (counted, is_open))| Mark {
            id: id.as_u128(),
            opens_in,
            counted: span(counted),
            is_open,
        }))
    }

    /// Makes a mark in the place of `seen`, unless another has been made since. Returns its id.
    async fn make_mark(&self, conn: &mut Conn, grace: &Grace, seen: Option<Mark>) -> sqlx_core::Result<u128> {
        let id = unique_bits();
        self.statement(&grace.sql.make_mark)
            .bind(Uuid::from_u128(id))
            .bind(micros(grace.watch.grace()))
            .bind(seen.map(id_of))
            .execute(conn)
            .await?;
        Ok(id)
    }

    /// Begins a grace period, whether the server grants locks or not. Returns its length. `None`: the tables
    /// have no mark.
    pub(super) async fn make_mark_by_hand(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Duration>> {
        let Some(grace) = &self.grace else { return Ok(None) };
        // The bound may be that of another server, or of an earlier time. A server where locks were in use
        // meanwhile has granted no token above what this makes of the clock, unless it has crashed lately.
        self.statement(&grace.sql.raise_bound).bind(Vec::<&str>::new()).execute(&mut *conn).await?;
        for _ in 0..LOOKS {
            let seen = self.mark(conn, grace).await?;
            let made = self.make_mark(conn, grace, seen).await?;
            if self.mark(conn, grace).await?.is_some_and(|mark| mark.id == made) {
                self.look(conn, grace).await?;
                return Ok(Some(grace.watch.grace()));
            }
        }
        Err(ours(ErrorKind::Conflict, "others change the mark of the server at the same time"))
    }

    /// Makes records again that the server has lost. The other leases have been renewed, so an error is none
    /// of theirs.
    pub(super) async fn reclaim(&self, conn: &mut Conn, grants: &[Grant], answers: &mut [Extension]) {
        let Some(grace) = &self.grace else { return };
        let choose = |(grant, answer): (&Grant, &Extension)| {
            if *answer != Extension::Lost {
                return false;
            }
            // A release that begins from now on may overtake this, and is repeated then. A lock that was
            // released before, over the connection of another runtime, has no record either.
            grant.claim().note_in_doubt();
            !grant.claim().is_cancelled()
        };
        let chosen: Vec<bool> = grants.iter().zip(&*answers).map(choose).collect();
        let lost = || grants.iter().zip(&chosen).filter(|(_, chosen)| **chosen);
        if lost().next().is_none() {
            return;
        }
        let claims = || lost().map(|(grant, _)| grant.claim());
        let tokens: Vec<_> = lost().map(|(grant, _)| grant.last_token().get().cast_signed()).collect();
        let reclaim = self.statement(&grace.sql.reclaim).of_each(claims());
        let reclaim = reclaim.bind(ttls(claims())).bind(labels(claims())).bind(tokens);
        let reclaimed: sqlx_core::Result<Vec<(Uuid, bool)>> = reclaim.rows(conn).await;
        if let Err(error) = &reclaimed {
            tracing::warn!(%error, "locks that the server may have lost were not reclaimed");
        }
        for ((grant, answer), _) in grants.iter().zip(answers).zip(&chosen).filter(|(_, chosen)| **chosen) {
            let owner = grant.claim().owner().as_uuid();
            *answer = match &reclaimed {
                Err(_) => Extension::Blocked,
                Ok(rows) => match rows.iter().find(|(one, _)| *one == owner) {
                    None => Extension::Lost,
                    Some((_, false)) => Extension::Blocked,
                    Some((_, true)) => {
                        tracing::info!(lockwell.name = %grant.claim().name(), "a lock that the server had lost was reclaimed");
                        Extension::Extended
                    }
                },
            };
        }
    }

    /// Says that releases are in doubt which have found nothing, while the server may have forgotten grants.
    /// Then it does not know whether the claims held their locks, and it has granted them to nobody else.
    pub(super) async fn doubt_denials(&self, conn: &mut Conn, answers: &mut [Freed]) {
        let is_denied = |freed: &Freed| !freed.released && !freed.blocked;
        if self.grace.is_none() || !answers.iter().any(is_denied) {
            return;
        }
        match self.closed_for(conn).await {
            Ok(None) => return,
            Ok(Some(_)) => (),
            // The releases are done, so the error is none of theirs.
            Err(error) => tracing::debug!(%error, "it is not known whether the server has forgotten grants"),
        }
        for freed in answers {
            freed.in_doubt |= is_denied(freed);
        }
    }

    /// Makes sure that nobody reclaims a lock that was freed by force.
    pub(super) async fn force_unknown(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<()> {
        let Some(grace) = &self.grace else { return Ok(()) };
        self.statement(&grace.sql.force_unknown)
            .bind(name.as_str())
            .bind(Uuid::from_u128(unique_bits()))
            .execute(conn)
            .await
            .map(drop)
    }

    /// Checks what the tables were made for, and the rights that are needed long after connecting. From then on
    /// each new connection looks at the mark.
    pub(super) async fn check_grace(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        let Some(grace) = &self.grace else { return Ok(()) };
        if self.statement(&grace.sql.lacks_rights).value(&mut *conn).await?.unwrap_or(false) {
            return Err(ours(ErrorKind::Refused, LACKS_RIGHTS));
        }
        self.look(conn, grace).await?;
        grace.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What a crash of the server costs, for a person.
    pub(super) async fn durability(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Finding>> {
        let Some(grace) = &self.grace else { return Ok(None) };
        let closed = self.closed_for(conn).await?;
        let ahead: Option<i64> = self.statement(&grace.sql.floor_ahead).value(conn).await?;
        Ok(Some(durability(grace.watch.grace(), closed, periods(ahead.unwrap_or_default()))))
    }

    /// Looks at the mark over a new connection: it may lead to a server that has crashed, or to another one.
    pub(super) async fn look_again(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        match &self.grace {
            Some(grace) if grace.is_known.load(Ordering::Relaxed) => self.look(conn, grace).await.map(drop),
            _ => Ok(()),
        }
    }
}

/// How many grace periods have begun lately, at least, if the floor of tokens is so far ahead of the clock,
/// in microseconds. Each raises the floor by up to 2^33, which the clock makes up for in 2.4 hours.
fn periods(ahead: i64) -> i64 {
    // One that was begun by hand raises it by a little more.
    (ahead - (1 << 31)).max(0) / (1 << 33) + i64::from(ahead > 1 << 31)
}

/// The finding about tables on which a grace period lasts for this time, and is not over for another.
fn durability(period: Duration, closed: Option<Duration>, periods: i64) -> Finding {
    let often = if periods > 1 {
        format!("; in the last hours {periods} grace periods have begun, or more")
    } else {
        String::new()
    };
    let remedy = "look in the log of the server for crashes, killed backends, and stops that were not clean: by SIGQUIT, or by SIGKILL \
                  after a stop that took too long";
    if let Some(left) = closed {
        let text = closed_for(left) + &often;
        return Finding::doubtful("grace period", text, format!("wait; if it happens often, {remedy}"));
    }
    let text =
        format!("grants wait for no disk; after a crash or a failover nothing is granted for {period:.1?}");
    match often.as_str() {
        "" => Finding::good("durability", text),
        often => Finding::doubtful("durability", text + often, remedy),
    }
}

fn id_of(mark: Mark) -> Uuid {
    Uuid::from_u128(mark.id)
}

/// The names of claims, each once.
fn each_name<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<&'a str> {
    let mut names = names(claims);
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use lockwell_core::Severity;

    use super::*;

    #[test]
    fn grace_periods_are_counted_by_the_floor_of_tokens() {
        // Hundredths of an hour.
        let micros = |hundredths: i64| hundredths * 36_000_000;
        for (ahead, many) in [(-500, 0), (0, 0), (240, 1), (400, 2), (470, 2), (710, 3), (950, 4)] {
            assert_eq!(periods(micros(ahead)), many, "{ahead}");
        }
    }

    #[test]
    fn repeated_grace_periods_are_doubtful() {
        let (period, left) = (Duration::from_secs(31), Duration::from_secs(7));
        assert_eq!(durability(period, None, 1).severity, Severity::Good);
        let often = durability(period, None, 3);
        assert_eq!((often.subject, often.severity), ("durability", Severity::Doubtful));
        assert!(
            often.message.ends_with("in the last hours 3 grace periods have begun, or more"),
            "{often:?}"
        );
        let closed = durability(period, Some(left), 1);
        assert_eq!((closed.subject, closed.severity), ("grace period", Severity::Doubtful));
        assert!(
            closed.message.ends_with("another 7.0s, which pass while a client waits or holds a lock"),
            "{closed:?}"
        );
    }
}
