//! The kinds of requests that travel on a lane.

use std::future::Future;
use std::time::Duration;

use lockcore::seats::Seats;
use lockcore::{Claim, Error, ErrorKind, Grant, LockName, LockStatus, Moment, Result};

use crate::dialect::{Ask, Dialect, Extension, Freed, Local, Took};
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

    /// What to say when a row is locked by somebody's transaction.
    fn blocked() -> Result<Self::Output> {
        Err(Error::new(ErrorKind::Held, "a transaction that has verified this lock is still open"))
    }
}

/// A request that waits for its turn on the lane.
pub(crate) enum Job<D: Dialect> {
    Take(Request<D, Take>),
    Release(Request<D, Release>),
    Renew(Request<D, Renew>),
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
    let (mut renew, mut tidy, mut release, mut stay, mut take, mut rest) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        match job {
            Job::Renew(request) => renew.push(request),
            Job::Tidy(request) => tidy.push(request),
            Job::Release(request) => release.push(request),
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
    for job in rest {
        match job {
            Job::Enroll(request) => server.serve_batch(vec![request]).await,
            Job::Leave(request) => server.serve_batch(vec![request]).await,
            Job::Inspect(request) => server.serve_batch(vec![request]).await,
            Job::Force(request) => server.serve_batch(vec![request]).await,
            Job::Purge(request) => server.serve_batch(vec![request]).await,
            Job::SetUp(request) => server.serve_batch(vec![request]).await,
            Job::Take(_) | Job::Release(_) | Job::Renew(_) | Job::Stay(_) | Job::Tidy(_) => (),
        }
    }
    if !stay.is_empty() {
        server.serve_batch(stay).await;
    }
    if !take.is_empty() {
        let behind = split_off_those_behind(&mut take);
        server.serve_batch(take).await;
        for request in behind {
            drop(request.reply.send(Ok((Took::Busy(None), Moment::now()))));
        }
    }
}

/// Of several requests for one name, only the one that stands first in the queue is worth a question: if it is refused,
/// so are those behind it; if not, they are refused by it.
fn split_off_those_behind<D: Dialect>(batch: &mut Vec<Request<D, Take>>) -> Vec<Request<D, Take>> {
    if batch.len() == 1 {
        return Vec::new();
    }
    batch.sort_by(|a, b| (a.input.claim.name(), a.input.ticket).cmp(&(b.input.claim.name(), b.input.ticket)));
    let (mut first, mut behind): (Vec<Request<D, Take>>, Vec<_>) = (Vec::new(), Vec::new());
    for request in batch.drain(..) {
        match first.last() {
            Some(ahead) if ahead.input.claim.name() == request.input.claim.name() => behind.push(request),
            _ => first.push(request),
        }
    }
    *batch = first;
    behind
}

macro_rules! errand {
    ($(#[$doc:meta])* $name:ident($input:ty) -> $output:ty,
     |$dialect:ident, $seats:ident, $conn:ident, $inputs:ident| $run:expr
     $(, after_doubt: $doubt:expr)? $(, blocked: $blocked:expr)?) => {
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

            $(fn after_doubt(output: &mut $output) {
                $doubt(output);
            })?
        }
    };
}

errand!(
    /// Takes a lock if it is free.
    Take(Ask) -> Took,
    |dialect, _seats, conn, asks| dialect.take(conn, asks).await,
    // Whoever has the row has the lock, for us.
    blocked: Took::Busy(Some(Duration::from_millis(20)))
);
errand!(
    /// Frees a lock.
    Release(Claim) -> Freed,
    |dialect, seats, conn, claims| {
        let waits_for = |name: &LockName| seats.waits_for(name);
        dialect.release(conn, claims, Local { client: seats.client, waits_for: &waits_for }).await
    },
    // The first try may have freed the lock, and another may have taken it since: that is no loss.
    after_doubt: |freed: &mut Freed| freed.released = true
);
errand!(
    /// Extends leases. A batch by itself.
    Renew(Vec<Grant>) -> Vec<Extension>,
    |dialect, _seats, conn, batches| {
        let mut answers = Vec::new();
        for grants in batches {
            answers.push(dialect.renew(conn, grants).await?);
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
        let waits_for = |name: &LockName| seats.waits_for(name);
        let mut freed = Vec::new();
        for claim in claims {
            let local = Local { client: seats.client, waits_for: &waits_for };
            freed.push(dialect.leave(conn, claim, local).await?);
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
    /// Frees a lock whoever holds it.
    Force(LockName) -> Freed,
    |dialect, seats, conn, names| {
        let waits_for = |name: &LockName| seats.waits_for(name);
        let mut freed = Vec::new();
        for name in names {
            let local = Local { client: seats.client, waits_for: &waits_for };
            freed.push(dialect.force_release(conn, name, local).await?);
        }
        Ok(freed)
    }
);
errand!(
    /// Deletes what nobody uses any more.
    Purge(Duration) -> u64,
    |dialect, _seats, conn, spans| {
        let mut purged = Vec::new();
        for idle in spans {
            purged.push(dialect.purge(conn, *idle).await?);
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
