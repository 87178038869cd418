//! Grants that a crash may lose (`durability=grace`), and the mark that all clients read for their sake.
//!
//! All clients share tables and statements. Those of a client with `durability=grace` are *lazy*: its grants and
//! renewals commit without waiting for the disk (`lazy.sql`). A crash keeps a prefix of the commits.
//!
//! * **`lazy_since`** is null until the first lazy grant is to be made, which sets it durably. While it is null, a crash
//!   loses no grant that anybody has seen, and no statement needs the mark. Lazy grants begin `longest_ttl` later, and
//!   each reads `lazy_since` itself. By then no statement with an older snapshot is under way that a crash would leave.
//!   The same statement makes an open mark.
//! * **A crash** of the server, also of one of its backends, empties the mark, which is UNLOGGED. Without an open
//!   mark each granting statement fails, of whatever client, session or pooler: nobody remembers the mark. Whoever
//!   finds none makes one, closed until each lazy lease has ended ([`MarkWatch`](lockwell_core::backend::MarkWatch)).
//! * **Length.** A lazy lease or renewal of more than `longest_ttl` is refused. A durable one survives, whatever its
//!   length. If a lazy renewal of a durable grant is lost, the row is there with an earlier end. Until the mark is
//!   open only its holder extends it, and by then the lost end has passed as well. No purge and no removal of
//!   members comes in between.
//! * **A second crash** begins a period anew. The floor of tokens is the bound, which is on the disk and above each
//!   token. A claim that finds its own row of before a crash gets another token. Renewals, downgrades and `verify_in`
//!   compare the token, so an earlier grant that came back is not the later one. Before the first lazy grant the rows
//!   have the last tokens, or the clock has passed them.
//! * **A lost reply, a pause, a late copy**: each change of state and mark names what was seen before (null, an id,
//!   a count, a bound), so a second copy changes nothing.
//! * **A holder** whose record survived renews it as ever. One whose record is lost reclaims the lock by its
//!   renewal: the record that is there has a lower token. It does not with a token above the floor, nor with a lease
//!   that cannot have been lazy: a failover may have lost that, and others have been granted the lock, before the first
//!   lazy grant. Leases that have ended locally are not renewed. A reader or a holder of a permit is told of the
//!   loss: what it shares its lock with cannot be told from one row. `verify_in` fails until the mark is open, since an
//!   old record that came back says nothing. So a holder that renews looks at the mark, and who waits for members
//!   whose leases have ended, as there may be nobody else.
//! * **A promoted replica** has no mark. With `lazy_since` it waits, whatever it lacks. A replica that lacks
//!   `lazy_since`, or new tables, and lags by less than `longest_ttl` lacks no lazy grant. The grants that it lacks are
//!   those that a failover loses with `disk`, too, so the first lazy client is no safer until then. There its grants
//!   and renewals fail until it has set `lazy_since` again. A token of a grant that such a failover has lost, and
//!   that was ahead of the clock, may be granted again.
//! * **Restored and rewritten tables** have other files than their mark names, also after SET LOGGED, and another
//!   server has another number, which each new connection compares. A pooler may lead to another server without a
//!   new one. Tables that were all emptied are new ones. The restored `lazy_since` counts: with a dump from
//!   before the first lazy client nobody waits. For what leaves no trace a period is begun by hand.
//! * **Clocks**: a mark opens when the server's clock *and* the clients' own have seen the period. A step forward can
//!   let lazy grants and reclaims begin early, which counts after a failover to a replica that lacks grants alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockwell_core::backend::{Mark, MarkAdvice, grace_period, unique_bits};
use lockwell_core::{Claim, ErrorKind, Grant, LockName, Moment};
use uuid::Uuid;

use super::bound::BoundStatement;
use super::driver::{Conn, Postgres, labels, last_tokens, names, ttls};
use crate::dialect::answers::postgres::{NO_GRANT, REMADE};
use crate::dialect::error::{class_of, misconfigured, ours};
use crate::ids::AsUuid;
use crate::words::{ErrorClass, Extension, Freed, micros, span};

/// How often a client looks again at a mark that it has changed, or tries a statement again.
pub(super) const LOOKS: u32 = 4;

/// The longest lease that a crash may have lost, and the longest from now on; of the mark, if there is one, its id, the
/// time until it opens, for how long clients have seen it, and whether it is open.
type Looked = (i64, i64, Option<Uuid>, Option<i64>, Option<i64>, Option<bool>);

/// What tables say on which a crash may lose grants.
struct Shown {
    mark: Option<Mark>,
    /// How long nothing is granted after a crash.
    period: Duration,
}

const LACKS_RIGHTS: &str = "this user may lock, but lacks rights on the tables `.._state` and `.._mark`, by which it would have to \
                            raise the bound of tokens and to open the mark after a crash: GRANT SELECT, INSERT, UPDATE on both; where \
                            clients have durability=grace, also EXECUTE ON FUNCTION pg_control_system()";
const NO_STATE: &str = "the table that ends with _state has lost its row, and that of the locks has rows: end all programs that use the \
                        lock tables, INSERT the row with the columns one (1) and token_bound (above all tokens), and run `lockwell \
                        grace`; or TRUNCATE all these tables, as if no lock was held, after which tokens can be lower";
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

/// For how long nothing is granted. `None`: the server grants locks.
fn left(advice: MarkAdvice) -> Option<Duration> {
    match advice {
        MarkAdvice::Grants => None,
        MarkAdvice::Wait(left) => Some(left),
        // Others are changing the mark, or are to make it.
        MarkAdvice::Make | MarkAdvice::Raise(_) | MarkAdvice::Open => Some(Duration::ZERO),
    }
}

/// Whether a statement has failed because the server grants nothing now, or because of the bound of tokens.
pub(super) fn is_no_grant(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Database(error)
        if error.code().as_deref() == Some("22P02") && error.message().contains(NO_GRANT))
}

/// Changes the row of the state. If others do, and their commits wait for a slow disk, the error is that of a row
/// that a transaction has locked.
async fn change_state<'a>(
    conn: &mut Conn,
    statement: impl Fn() -> BoundStatement<'a>,
) -> sqlx_core::Result<()> {
    let mut tries = 1..LOOKS;
    loop {
        match statement().execute(&mut *conn).await {
            Err(error) if has_code(&error, "55P03") && tries.next().is_some() => (),
            outcome => return outcome.map(drop),
        }
    }
}

fn has_code(error: &sqlx_core::Error, code: &str) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(code))
}

impl Postgres {
    /// If a statement has failed because the server grants nothing, makes the tables say that there are lazy grants,
    /// looks at the mark, and raises the bound of tokens if that was the reason. `None`: it has not failed for that
    /// reason.
    pub(super) async fn closed<'a, T>(
        &self,
        conn: &mut Conn,
        outcome: &sqlx_core::Result<T>,
        claims: impl Iterator<Item = &'a Claim>,
    ) -> sqlx_core::Result<Option<Closed>> {
        if !outcome.as_ref().is_err_and(is_no_grant) {
            return Ok(None);
        }
        self.needs_state(conn).await?;
        self.begin_lazy(conn).await?;
        if let Some(left) = self.closed_for(conn).await? {
            return Ok(Some(Closed::For(left)));
        }
        let names = each_name(claims);
        let raise = || self.statement(&self.sql.raise_bound).bind(names.clone());
        change_state(&mut *conn, raise).await?;
        self.statement(&self.sql.copy_bound).execute(conn).await?;
        Ok(Some(Closed::NotNow))
    }

    /// If the grants of this client are lazy, makes the tables say so, which changes nothing where they do.
    async fn begin_lazy(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        let Some(longest) = self.grace.lazy else { return Ok(()) };
        change_state(conn, || self.statement(&self.sql.begin_lazy).bind(micros(longest))).await
    }

    /// For how long the server grants nothing. `None`: it grants locks.
    pub(super) async fn closed_for(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Duration>> {
        self.look(conn).await.map(left)
    }

    /// Looks at the mark, and does what is to be done about it. Nobody needs one where no grant is lazy.
    async fn look(&self, conn: &mut Conn) -> sqlx_core::Result<MarkAdvice> {
        let (grace, mut advice) = (&self.grace, MarkAdvice::Make);
        for _ in 0..LOOKS {
            let Some(Shown { mark, period }) = self.mark(conn).await? else {
                grace.gauge.note(None);
                return Ok(MarkAdvice::Grants);
            };
            advice = grace.watch.advise(mark, Moment::now(), period);
            match advice {
                MarkAdvice::Make => {
                    tracing::warn!(
                        lockwell.server = %self.address, lockwell.grace = ?period,
                        "the server may have forgotten grants: no lock is granted for a grace period"
                    );
                    if let Err(error) = self.make_mark(conn, mark).await {
                        advice = left_to_others(error, period)?;
                        break;
                    }
                }
                MarkAdvice::Raise(counted) => {
                    let raise = self.statement(&self.sql.raise_count).bind(mark.map(id_of));
                    let raise = raise.bind(mark.map(|mark| micros(mark.counted))).bind(micros(counted));
                    if let Err(error) = raise.execute(&mut *conn).await {
                        advice = left_to_others(error, period.saturating_sub(counted))?;
                        break;
                    }
                }
                MarkAdvice::Open => {
                    let open = self.statement(&self.sql.open_mark).bind(mark.map(id_of));
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

    /// Looks at the mark for a holder, or for a waiter behind members that have ended: there may be nobody else who does.
    /// What they asked for is done, so an error is none of theirs.
    pub(super) async fn look_aside(&self, conn: &mut Conn) {
        if let Err(error) = self.look(conn).await {
            tracing::debug!(%error, "the mark of the server was not looked at");
        }
    }

    /// Whether there are lazy grants, and whether a crash keeps the mark. `None`: the row is missing, so nothing is granted.
    async fn state(&self, conn: &mut Conn) -> sqlx_core::Result<Option<(bool, bool)>> {
        self.statement(&self.sql.look_at_state).row(conn).await
    }

    /// Makes the row of the state if it is missing beside a table without locks. Nobody who only looks does that: the
    /// tables may be emptied to be restored.
    async fn needs_state(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        if self.state(conn).await?.is_some() {
            return Ok(());
        }
        self.statement(&self.sql.first_state).execute(&mut *conn).await?;
        self.state(conn).await?.map(drop).ok_or_else(|| misconfigured(NO_STATE))
    }

    /// `None`: no crash can have lost a grant.
    async fn mark(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Shown>> {
        // Nothing but the state is read where no grant is lazy: not everybody may read the number of the server.
        let Some((is_lazy, is_kept)) = self.state(conn).await? else { return Ok(None) };
        if is_kept && (is_lazy || self.grace.lazy.is_some()) {
            return Err(misconfigured(KEPT));
        }
        if !is_lazy {
            return Ok(None);
        }
        self.grace.is_lazy.store(true, Ordering::Relaxed);
        let found: Option<Looked> = self.statement(&self.sql.look_at_mark).row(conn).await?;
        let Some((lost, longest, id, opens_in, counted, is_open)) = found else { return Ok(None) };
        if self.grace.lazy.is_some_and(|known| known != span(longest)) {
            return Err(misconfigured(REMADE));
        }
        let parts = id.zip(opens_in).zip(counted.zip(is_open));
        let mark = parts.map(|((id, opens_in), (counted, is_open))| Mark {
            id: id.as_u128(),
            opens_in,
            counted: span(counted),
            is_open,
        });
        Ok(Some(Shown { mark, period: grace_period(span(lost)) }))
    }

    /// Makes a closed mark in the place of `seen`, unless another has been made since. Returns its id.
    async fn make_mark(&self, conn: &mut Conn, seen: Option<Mark>) -> sqlx_core::Result<u128> {
        let id = unique_bits();
        let make = self.statement(&self.sql.make_mark).bind(Uuid::from_u128(id)).bind(seen.map(id_of));
        make.execute(conn).await?;
        Ok(id)
    }

    /// Begins a grace period, whether the server grants locks or not. Returns its length. `None`: no crash can
    /// have lost a grant. The tables may be those of before the first lazy grant, so a lazy client knows better.
    pub(super) async fn make_mark_by_hand(&self, conn: &mut Conn) -> sqlx_core::Result<Option<Duration>> {
        self.begin_lazy(conn).await?;
        for _ in 0..LOOKS {
            let Some(seen) = self.mark(conn).await? else { return Ok(None) };
            let made = self.make_mark(conn, seen.mark).await?;
            let shown = self.mark(conn).await?;
            if let Some(Shown { mark: Some(mark), period }) = shown
                && mark.id == made
            {
                self.look(conn).await?;
                return Ok(Some(period));
            }
        }
        Err(ours(ErrorKind::Conflict, "others change the mark of the server at the same time"))
    }

    /// Makes records again that the server has lost. The other leases have been renewed, so an error is none
    /// of theirs.
    pub(super) async fn reclaim(&self, conn: &mut Conn, grants: &[Grant], answers: &mut [Extension]) {
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
        let reclaim = self.statement(&self.sql.reclaim).of_each(claims()).bind(ttls(claims()));
        let reclaim = reclaim.bind(labels(claims())).bind(last_tokens(lost().map(|(grant, _)| grant)));
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
        if !self.grace.is_lazy.load(Ordering::Relaxed) || !answers.iter().any(is_denied) {
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
        self.statement(&self.sql.force_unknown)
            .bind(name.as_str())
            .bind(Uuid::from_u128(unique_bits()))
            .execute(conn)
            .await
            .map(drop)
    }

    /// Checks the rights that are needed long after connecting, and looks at the mark.
    pub(super) async fn check_grace(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        if self.statement(&self.sql.lacks_rights).value(&mut *conn).await?.unwrap_or(false) {
            return Err(ours(ErrorKind::Refused, LACKS_RIGHTS));
        }
        self.needs_state(conn).await?;
        match self.look(conn).await {
            Err(error) if has_code(&error, "42501") => Err(ours(ErrorKind::Refused, LACKS_RIGHTS)),
            looked => looked.map(drop),
        }
    }

    /// What a person is to know: how long a grace period is, for how long the server grants nothing now, and how far the
    /// floor of tokens is ahead of the clock, in microseconds. `None`: a crash loses nothing.
    pub(super) async fn period(
        &self,
        conn: &mut Conn,
    ) -> sqlx_core::Result<Option<(Duration, Option<Duration>, i64)>> {
        let closed = self.closed_for(conn).await?;
        let Some(Shown { period, .. }) = self.mark(conn).await? else { return Ok(None) };
        let ahead: Option<i64> = self.statement(&self.sql.floor_ahead).value(conn).await?;
        Ok(Some((period, closed, ahead.unwrap_or_default())))
    }

    /// Looks at the mark over a new connection: it may lead to a server that has crashed, or to another one.
    pub(super) async fn look_again(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        match self.look(conn).await {
            // A standby, which has no mark to look at. It grants nothing, and its mark is lost when it is promoted.
            Err(error) if class_of(self, &error) == ErrorClass::ReadOnly => Ok(()),
            // The tables are still to be made. Or this client makes no lazy grants, has connected before another did, and
            // may not read the number of the server: it must not lose what it holds for that.
            Err(error) if has_code(&error, "42P01") || has_code(&error, "42501") => Ok(()),
            looked => looked.map(drop),
        }
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
