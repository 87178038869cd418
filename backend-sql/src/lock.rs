//! The lock on top of a dialect: the same for all databases.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, FencingToken, Grant, LockName, LockStatus, Mode,
    Moment, Operation, Released, Renewal, Result, Wait, async_trait, lease,
    seats::{SEAT_LIFE, SEAT_REFRESH, Seats},
};

use crate::dialect::{Ask, Dialect, Extension, Freed, Hold, NO_TICKET, Took};
use crate::errand::{
    Downgrade, Enroll, Errand, Force, Inspect, Leave, Part, Purge, Release, Renew, SetUp, Stay, Take, Tidy,
};
use crate::lane::Lane;
use crate::options::Options;
use crate::wake::Wake;

/// Locks in a table of a database.
///
/// It holds one connection for its requests, one for the keeper thread and, while anybody waits, one for wake-ups:
/// whatever the number of locks. Made by `connect`.
pub struct SqlLock<D: Dialect> {
    shared: Arc<Shared<D>>,
    lane: Lane<D>,
    /// For requests that have met a row which a transaction has locked: waiting for it must not hold up the others. Its
    /// connection is made when it is first needed, which is rare.
    siding: OnceLock<Lane<D>>,
}

struct Shared<D: Dialect> {
    dialect: Arc<D>,
    capabilities: Capabilities,
    options: Options,
    seats: Arc<Seats>,
    wake: Wake<D>,
    /// What every grant carries, for `verify_in`.
    record: Arc<dyn Any + Send + Sync>,
}

impl<D: Dialect> Shared<D> {
    fn lane(&self) -> Lane<D> {
        Lane::new(Arc::clone(&self.dialect), Arc::clone(&self.seats), self.options.timeout)
    }
}

impl<D: Dialect> SqlLock<D> {
    /// Connects, checks the tables, and creates them where they are missing and that is allowed.
    pub(crate) async fn open(
        dialect: D,
        options: Options,
        record: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let dialect = Arc::new(dialect);
        let seats = Seats::new();
        let shared = Shared {
            capabilities: dialect.capabilities(),
            wake: Wake::new(Arc::clone(&dialect), Arc::clone(&seats)),
            dialect,
            options,
            seats,
            record,
        };
        let lock = Self::on(Arc::new(shared));
        let context =
            |error: Error| error.during(Operation::Connect).on_backend(lock.shared.capabilities.backend);
        lock.set_up().await.map_err(context)?;
        lock.keep_clean();
        Ok(lock)
    }

    fn on(shared: Arc<Shared<D>>) -> Self {
        Self { lane: shared.lane(), shared, siding: OnceLock::new() }
    }

    async fn set_up(&self) -> Result<()> {
        let checked = self.lane.call::<SetUp>(false).await;
        match checked {
            Err(error) if error.kind() == ErrorKind::Misconfigured && self.shared.options.create => {
                // The tables may be missing. If creating them does not help, the first complaint says more.
                match self.lane.call::<SetUp>(true).await {
                    Ok(_) => Ok(()),
                    Err(second) if second.kind() == ErrorKind::Refused => Err(Error::new(
                        ErrorKind::Misconfigured,
                        "the lock tables are missing or of an older form, and this user may not change that; let an \
                         administrator run the statements of schema() or schema_upgrade()",
                    )
                    .with_source(second)),
                    Err(second) => Err(second),
                }
            }
            other => other.map(|_| ()),
        }
    }

    /// The statements that create the tables, for an administrator.
    pub fn schema(&self) -> String {
        self.shared.dialect.ddl()
    }

    /// The statements that bring tables of an earlier version up to date, for an administrator. Processes of that
    /// version may go on using them meanwhile and afterwards.
    pub fn schema_upgrade(&self) -> String {
        self.shared.dialect.ddl_of_upgrade()
    }

    /// Creates the tables where they are missing, and brings those of an earlier version up to date. Connecting does it,
    /// too, unless the option `create=false` is set.
    ///
    /// # Cancel safety
    /// The statements may be executed even if this future is dropped.
    pub async fn create_schema(&self) -> Result<()> {
        self.lane.call::<SetUp>(true).await.map(|_| ()).map_err(|error| error.during(Operation::CreateSchema))
    }

    /// Deletes the rows of locks that have been free for `idle`, and says how many. It is done in the background as
    /// well, by the option `purge_after`. Tokens go on rising: a new row starts at the time in microseconds.
    ///
    /// # Cancel safety
    /// The rows may be deleted even if this future is dropped.
    pub async fn purge(&self, idle: Duration) -> Result<u64> {
        self.lane.call::<Purge>(idle).await.map(|(purged, _)| purged)
    }

    /// Starts the purge of idle rows. It ends with the last handle.
    fn keep_clean(&self) {
        let idle = self.shared.options.purge_after;
        if idle.is_zero() {
            return;
        }
        let (shared, lane) = (Arc::downgrade(&self.shared), self.lane.clone());
        let pause = (idle / 4).clamp(Duration::from_secs(1), Duration::from_hours(1));
        drop(tokio::spawn(async move {
            loop {
                // Jitter, so that the processes of a fleet that started together do not purge together.
                tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
                if shared.strong_count() == 0 {
                    return;
                }
                match lane.call::<Purge>(idle).await {
                    Ok((purged, _)) => tracing::debug!(purged, "idle lock rows deleted"),
                    // A user without the right to delete is a good idea, not a problem.
                    Err(error) => {
                        tracing::info!(error = format!("{error:#}"), "idle lock rows are not deleted");
                    }
                }
            }
        }));
    }

    fn grant(&self, claim: &Claim, token: FencingToken, sent: Moment) -> Grant {
        Grant::new(claim, token, sent).with_record(Arc::clone(&self.shared.record))
    }

    async fn take(&self, claim: &Claim, ticket: i64) -> Result<(Took, Moment)> {
        let ask = Ask { claim: claim.clone(), ticket };
        claim.within_wait(self.lane.call::<Take>(ask)).await
    }

    /// What the answer to a claim that does not stand in the queue comes to.
    fn first_answer(&self, claim: &Claim, (took, sent): (Took, Moment)) -> Result<Option<Grant>> {
        match took {
            Took::Granted(token) => return Ok(Some(self.grant(claim, token, sent))),
            Took::Clash(in_use) => return Err(Mode::clash(in_use, claim.mode())),
            // Nobody knows, so it is to be cleaned up like a place in the queue.
            Took::Blocked => claim.note_queued(),
            Took::Busy(_) | Took::Member(_) | Took::Stale => (),
        }
        Ok(None)
    }

    /// Queues and waits for the turn.
    ///
    /// The order of steps leaves no gap for a lost wake-up. The place in the queue is visible before the lock is asked
    /// for again, so whoever frees the lock after that sees it. A release that was already under way may have missed
    /// it: the looks at growing distances are for that one.
    async fn wait_for_turn(&self, claim: &Claim) -> Result<Option<Grant>> {
        let seats = &self.shared.seats;
        self.shared.wake.ready().await;
        claim.note_queued();
        let (ticket, mut refreshed) = claim.within_wait(self.lane.call::<Enroll>(claim.clone())).await?;
        let mut seat = seats.sit(claim.name(), ticket);
        let mut early_looks = [4u64, 25, 150].map(Duration::from_millis).into_iter();
        loop {
            let (took, sent) = self.take(claim, seat.ticket).await?;
            let free_in = match took {
                Took::Granted(token) => {
                    if Hold::of(claim) == Hold::Alone && !D::TIDIES_UP {
                        // The place is of no use any more. Until it is gone, it is passed over, being the holder's.
                        self.lane.send::<Tidy>(seat.ticket);
                    }
                    claim.note_left_queue();
                    return Ok(Some(self.grant(claim, token, sent)));
                }
                Took::Clash(in_use) => {
                    // It was something else before we stood in the queue. The error must leave nothing behind.
                    self.leave(claim).await?;
                    claim.note_left_queue();
                    return Err(Mode::clash(in_use, claim.mode()));
                }
                Took::Busy(free_in) => free_in,
                // Whoever has the row has the lock, for us.
                Took::Blocked => Some(Duration::from_millis(20)),
                Took::Member(_) | Took::Stale => None,
            };
            let nap = early_looks.next().unwrap_or(SEAT_REFRESH).min(lease_end(free_in));
            tokio::select! {
                () = seat.called() => (),
                () = tokio::time::sleep(nap) => (),
                () = claim.given_up() => return Ok(None),
            }
            if refreshed.after(SEAT_REFRESH) <= Moment::now() {
                let (still_there, asked) = claim.within_wait(self.lane.call::<Stay>(seat.ticket)).await?;
                refreshed = asked;
                if !still_there {
                    // We were away for longer than a place is kept, and start again at the end.
                    let (ticket, _) = claim.within_wait(self.lane.call::<Enroll>(claim.clone())).await?;
                    seat = seats.sit(claim.name(), ticket);
                }
            }
        }
    }

    /// Gives the place in the queue up; answers whether there was one.
    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let (freed, _) = self.lane.call::<Leave>(claim.clone()).await?;
        self.wake(freed.next);
        Ok(freed.released)
    }

    fn wake(&self, tickets: Vec<i64>) {
        for ticket in tickets {
            self.shared.seats.wake(ticket);
        }
    }

    /// Asks for what must not be done while a transaction has the lock's row: it waits for that, beside the others.
    async fn call_patiently<E: Errand<D>>(&self, input: impl Fn() -> E::Input) -> Result<E::Output> {
        let (mut lane, mut pause) = (&self.lane, Duration::from_millis(5));
        loop {
            match lane.call::<E>(input()).await {
                Err(error) if error.kind() == ErrorKind::Held && pause < Duration::from_secs(2) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    lane = self.siding.get_or_init(|| self.shared.lane());
                }
                other => return other.map(|(output, _)| output),
            }
        }
    }

    async fn renew_once(&self, grants: &[Grant]) -> Result<(Vec<Extension>, Moment)> {
        let shortest = grants.iter().map(|grant| grant.claim().ttl()).min().unwrap_or(SEAT_LIFE);
        self.lane.call_within::<Renew>(grants.to_vec(), lease::Lease::patience(shortest)).await
    }
}

/// When the lease of the holder ends, and a little later, so that waiters of several processes do not meet.
fn lease_end(free_in: Option<Duration>) -> Duration {
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 9.0 * rand::random::<f64>());
    free_in.map_or(SEAT_REFRESH, |left| left.saturating_add(jitter))
}

#[async_trait]
impl<D: Dialect> DistributedLock for SqlLock<D> {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let took = self.take(claim, NO_TICKET).await?;
        match self.first_answer(claim, took)? {
            None if claim.wait() != Wait::No => self.wait_for_turn(claim).await,
            answer => Ok(answer),
        }
    }

    /// All claims go into one statement.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        let asks = claims.iter().map(|claim| Ask { claim: claim.clone(), ticket: NO_TICKET });
        let answers = self.lane.call_each::<Take>(asks).await;
        let answered = claims.iter().zip(answers);
        answered.map(|(claim, took)| self.first_answer(claim, took?)).collect()
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewal> {
        let (answers, sent) = match self.renew_once(grants).await {
            Ok(answer) => answer,
            Err(error) => return grants.iter().map(|_| Renewal::Unknown(error.duplicate())).collect(),
        };
        let pairs = grants.iter().zip(answers);
        pairs
            .map(|(grant, answer)| match answer {
                Extension::Extended => Renewal::Renewed(lease::belief(sent, grant.claim().ttl())),
                Extension::Lost => Renewal::Lost,
                Extension::Blocked => Renewal::Unknown(Error::new(
                    ErrorKind::Held,
                    "a transaction that has verified this lock is still open",
                )),
            })
            .collect()
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        match self.call_patiently::<Downgrade>(|| grant.clone()).await? {
            Some(next) => {
                self.wake(next);
                Ok(grant.downgraded())
            }
            None => Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade")),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let left = claim.may_be_queued() && self.leave(claim).await?;
        // A transaction that verified the lock holds its row. The lock must not be free before it ends.
        let mut freed = Freed::default();
        if Hold::of(claim) == Hold::Alone {
            freed = self.call_patiently::<Release>(|| claim.clone()).await?;
        }
        if !freed.released {
            // A writer is a member by now if it was downgraded and the answer was lost.
            freed = self.call_patiently::<Part>(|| claim.clone()).await?;
        }
        self.wake(freed.next);
        Ok(if freed.released || left { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.lane.call::<Inspect>(name.clone()).await.map(|(status, _)| status)
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let ((freed, next), _) = self.lane.call::<Force>(name.clone()).await?;
        self.wake(next);
        Ok(freed)
    }

    fn for_keeper(&self) -> Option<Arc<dyn DistributedLock>> {
        Some(Arc::new(Self::on(Arc::clone(&self.shared))))
    }

    async fn close(&self) {
        self.lane.close();
    }
}

impl<D: Dialect> fmt::Debug for SqlLock<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlLock").field("dialect", &self.shared.dialect).finish_non_exhaustive()
    }
}
