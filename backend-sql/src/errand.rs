//! The kinds of requests that travel on a lane.

use std::future::Future;
use std::time::Duration;

use lockcore::seats::Seats;
use lockcore::{Claim, Error, ErrorKind, Grant, LockName, LockStatus, Result};

use crate::batch;
use crate::dialect::{Ask, Dialect, Extension, Freed, Hold, Took};
use crate::lane::{Request, Server};

/// One kind of request: what goes in, what comes out, and how a batch of them is carried out.
pub(crate) trait Errand<D: Dialect>: Sized + Send + 'static {
    type Input: Send + Sync + 'static;
    type Output: Send + 'static;

    fn job(request: Request<D, Self>) -> Job<D>;

    /// Carries a batch out. One output for each input, in order.
    fn run(
        dialect: &D,
        seats: &Seats,
        conn: &mut D::Conn,
        inputs: &[Self::Input],
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Output>>> + Send;

    /// Corrects the output of a batch that was repeated after a lost answer, where the first try shows in it.
    fn after_doubt(_: &mut Self::Output) {}

    /// Whether two requests want the same row, so that neither waits for what would not hold up the other.
    fn is_about_one(_: &Self::Input, _: &Self::Input) -> bool {
        false
    }

    /// Whether to ask again for a while when a row is locked, rather than to take that for an answer.
    fn insists(_: &Self::Input) -> bool {
        false
    }

    /// Whether this output says that a row is locked by somebody's transaction.
    fn is_blocked(_: &Self::Output) -> bool {
        false
    }

    /// What to say when a row is locked by somebody's transaction.
    fn blocked() -> Result<Self::Output> {
        Err(Error::new(ErrorKind::Held, "a transaction that has verified this lock is still open"))
    }
}

/// A request that waits for its turn on the lane.
pub(crate) enum Job<D: Dialect> {
    Take(Request<D, Take>),
    Release(Request<D, Release>),
    Part(Request<D, Part>),
    Renew(Request<D, Renew>),
    Downgrade(Request<D, Downgrade>),
    Enroll(Request<D, Enroll>),
    Stay(Request<D, Stay>),
    Tidy(Request<D, Tidy>),
    Leave(Request<D, Leave>),
    Inspect(Request<D, Inspect>),
    Force(Request<D, Force>),
    Purge(Request<D, Purge>),
    SetUp(Request<D, SetUp>),
}

/// Serves all that has come together on a lane, kind by kind.
///
/// Kinds may change places with each other, since nobody has more than one request for one claim under way. Renewals go
/// first, because time is running for them; then whatever frees locks; then whatever wants them.
pub(crate) async fn serve_all<D: Dialect>(server: &mut Server<D>, jobs: Vec<Job<D>>) {
    let (mut renew, mut tidy, mut release, mut part) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut stay, mut take, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        match job {
            Job::Renew(request) => renew.push(request),
            Job::Tidy(request) => tidy.push(request),
            Job::Release(request) => release.push(request),
            Job::Part(request) => part.push(request),
            Job::Stay(request) => stay.push(request),
            Job::Take(request) => take.push(request),
            other => rest.push(other),
        }
    }
    for request in renew {
        server.serve_batch(vec![request]).await;
    }
    if !tidy.is_empty() {
        server.serve_batch(tidy).await;
    }
    if !release.is_empty() {
        server.serve_batch(release).await;
    }
    if !part.is_empty() {
        server.serve_batch(part).await;
    }
    for job in rest {
        match job {
            Job::Downgrade(request) => server.serve_batch(vec![request]).await,
            Job::Enroll(request) => server.serve_batch(vec![request]).await,
            Job::Leave(request) => server.serve_batch(vec![request]).await,
            Job::Inspect(request) => server.serve_batch(vec![request]).await,
            Job::Force(request) => server.serve_batch(vec![request]).await,
            Job::Purge(request) => server.serve_batch(vec![request]).await,
            Job::SetUp(request) => server.serve_batch(vec![request]).await,
            Job::Take(_) | Job::Release(_) | Job::Part(_) | Job::Renew(_) | Job::Stay(_) | Job::Tidy(_) => (),
        }
    }
    if !stay.is_empty() {
        server.serve_batch(stay).await;
    }
    if !take.is_empty() {
        server.serve_batch(take).await;
    }
}

macro_rules! errand {
    ($(#[$doc:meta])* $name:ident($input:ty) -> $output:ty,
     |$dialect:ident, $seats:ident, $conn:ident, $inputs:ident| $run:expr
     $(, after_doubt: $doubt:expr)? $(, is_blocked: $is_blocked:expr)?
     $(, blocked: $blocked:expr)? $(, about_one: $about_one:expr)? $(, insists: $insists:expr)?) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl<D: Dialect> Errand<D> for $name {
            type Input = $input;
            type Output = $output;

            fn job(request: Request<D, Self>) -> Job<D> {
                Job::$name(request)
            }

            async fn run(
                $dialect: &D,
                $seats: &Seats,
                $conn: &mut D::Conn,
                $inputs: &[$input],
            ) -> sqlx::Result<Vec<$output>> {
                $run
            }

            $(fn blocked() -> Result<$output> {
                Ok($blocked)
            })?

            $(fn is_about_one(one: &$input, other: &$input) -> bool {
                $about_one(one, other)
            })?

            $(fn insists(input: &$input) -> bool {
                $insists(input)
            })?

            $(fn is_blocked(output: &$output) -> bool {
                $is_blocked(output)
            })?

            $(fn after_doubt(output: &mut $output) {
                $doubt(output);
            })?
        }
    };
}

errand!(
    /// Takes a lock if it is free.
    Take(Ask) -> Took,
    |dialect, seats, conn, asks| batch::take(dialect, seats, conn, asks).await,
    blocked: Took::Blocked,
    about_one: |one: &Ask, other: &Ask| one.claim.name() == other.claim.name(),
    // Those who come and go in a group lock its row for a moment, and that is no reason to stay outside.
    insists: |ask: &Ask| Hold::of(&ask.claim) == Hold::Together
);
errand!(
    /// Frees a lock that is held alone.
    Release(Claim) -> Freed,
    |dialect, seats, conn, claims| dialect.release(conn, claims, seats).await,
    // The first try may have freed the lock, and another may have taken it since: that is no loss.
    after_doubt: |freed: &mut Freed| freed.released = true,
    is_blocked: |freed: &Freed| freed.blocked
);
errand!(
    /// Leaves a group. Not together with releases: what is tried again must not have been done in part.
    Part(Claim) -> Freed,
    |dialect, seats, conn, claims| dialect.part(conn, claims, seats).await,
    after_doubt: |freed: &mut Freed| freed.released = true
);
errand!(
    /// Extends leases. A batch by itself.
    Renew(Vec<Grant>) -> Vec<Extension>,
    |dialect, _seats, conn, batches| {
        let mut answers = Vec::new();
        for grants in batches {
            answers.push(batch::renew(dialect, conn, grants).await?);
        }
        Ok(answers)
    }
);
errand!(
    /// Turns a writer into a reader. `None`: it does not hold the lock. Otherwise the tickets of those who are next.
    Downgrade(Grant) -> Option<Vec<i64>>,
    |dialect, seats, conn, grants| {
        let mut answers = Vec::new();
        for grant in grants {
            let claim = grant.claim();
            let next = if dialect.downgrade(conn, claim).await? {
                Some(dialect.next(conn, claim.name(), seats).await?)
            } else {
                None
            };
            answers.push(next);
        }
        Ok(answers)
    }
);
errand!(
    /// Takes a place in the queue.
    Enroll(Claim) -> i64,
    |dialect, seats, conn, claims| {
        let mut tickets = Vec::new();
        for claim in claims {
            tickets.push(dialect.enroll(conn, claim, seats.client).await?);
        }
        Ok(tickets)
    }
);
errand!(
    /// Keeps a place in the queue; answers whether it is still there.
    Stay(i64) -> bool,
    |dialect, _seats, conn, tickets| {
        let alive = dialect.stay(conn, tickets).await?;
        Ok(tickets.iter().map(|ticket| alive.contains(ticket)).collect())
    }
);
errand!(
    /// Forgets the place of a waiter that has got its lock.
    Tidy(i64) -> (),
    |dialect, _seats, conn, tickets| {
        dialect.tidy(conn, tickets).await?;
        Ok(vec![(); tickets.len()])
    }
);
errand!(
    /// Gives a place in the queue up.
    Leave(Claim) -> Freed,
    |dialect, seats, conn, claims| {
        let mut freed = Vec::new();
        for claim in claims {
            let left = dialect.leave(conn, claim).await?;
            // A statement of its own, which sees all places that were taken before we left.
            freed.push(Freed::new(left, dialect.next(conn, claim.name(), seats).await?));
        }
        Ok(freed)
    }
);
errand!(
    /// Reads who holds a lock.
    Inspect(LockName) -> LockStatus,
    |dialect, _seats, conn, names| {
        let mut statuses = Vec::new();
        for name in names {
            statuses.push(dialect.inspect(conn, name).await?);
        }
        Ok(statuses)
    }
);
errand!(
    /// Frees a lock whoever holds it: how many did, and the tickets of those who are next.
    Force(LockName) -> (usize, Vec<i64>),
    |dialect, seats, conn, names| {
        let mut freed = Vec::new();
        for name in names {
            let holders = dialect.force_release(conn, name).await?;
            freed.push((holders, dialect.next(conn, name, seats).await?));
        }
        Ok(freed)
    }
);
errand!(
    /// Deletes what nobody uses any more.
    Purge(Duration) -> u64,
    |dialect, seats, conn, spans| {
        let mut purged = Vec::new();
        for idle in spans {
            purged.push(batch::purge(dialect, seats, conn, *idle).await?);
        }
        Ok(purged)
    }
);
errand!(
    /// Checks the tables, or creates them where that is wished for.
    SetUp(bool) -> (),
    |dialect, _seats, conn, creates| {
        for create in creates {
            if *create {
                dialect.create(conn).await?;
            }
            dialect.check(conn).await?;
        }
        Ok(vec![(); creates.len()])
    }
);
