//! The lock on top of a dialect: the same for all databases.

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod hand_over;
pub(crate) mod purge;
mod records;
pub(crate) mod turn;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockwell_core::backend::{ClaimReply, PerRuntime, valid_until};
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Operation, Record, RecordKind, RecordWrite, Released, Renewal, Result, async_trait,
};

use crate::client::Client;
use crate::client::service::about_file;
use crate::dialect::Dialect;
use crate::dialect::groups::find_next;
use crate::dialect::requests::{Request, Route, blocked};
use crate::lock::purge::purge;
use crate::lock::turn::Acquire;
use crate::sql::options::SqlOptions;
use crate::words::{Extension, Forced, Freed, Hold, NO_TICKET, TakeRequest};

/// Locks in a table of a database.
///
/// Each runtime that uses it has one connection for its requests and, while anybody waits, one for
/// notifications; the keeper thread is one of them. The number of locks does not matter. Made by `connect`.
pub struct SqlLock<D: Dialect>(Arc<LockInner<D>>);

struct LockInner<D: Dialect> {
    dialect: Arc<D>,
    options: SqlOptions,
    clients: PerRuntime<Client<D>>,
    acquire: Acquire<D>,
    record: Arc<dyn Any + Send + Sync>,
}

impl<D: Dialect> SqlLock<D> {
    /// Connects, checks the tables, and creates them where they are missing and that is allowed.
    pub(crate) async fn open(
        dialect: D,
        options: SqlOptions,
        record: Arc<dyn Any + Send + Sync>,
        acquire: Acquire<D>,
    ) -> Result<Self> {
        let lock = Self(Arc::new(LockInner {
            dialect: Arc::new(dialect),
            options,
            clients: PerRuntime::new(),
            acquire,
            record,
        }));
        let backend = lock.capabilities().backend();
        let context =
            |error: Error| lock.0.options.named(error.during(Operation::Connect).on_backend(backend));
        lock.set_up().await.map_err(context)?;
        lock.set_up_records().await;
        lock.start_purging();
        Ok(lock)
    }

    /// The statements that create the tables, for an administrator.
    pub fn schema(&self) -> String {
        self.0.dialect.ddl()
    }

    /// Creates the tables where they are missing. Connecting does it, too, unless the option `create=false`
    /// is set.
    ///
    /// # Cancel safety
    /// The statements may be executed even if this future is dropped.
    pub async fn create_schema(&self) -> Result<()> {
        self.check(true).await.map_err(|error| error.during(Operation::CreateSchema))
    }

    /// Deletes the rows of locks that have been free for `idle`, and says how many. It is done in the
    /// background as well, by the option `purge_after`. Tokens go on rising: a new row starts at the time in
    /// microseconds.
    ///
    /// # Cancel safety
    /// The rows may be deleted even if this future is dropped.
    pub async fn purge(&self, idle: Duration) -> Result<u64> {
        self.0.purge(idle, false).await
    }
}

#[async_trait]
impl<D: Dialect> DistributedLock for SqlLock<D> {
    fn capabilities(&self) -> Capabilities {
        // A pooler may be noticed after connecting, and takes capabilities away.
        self.0.dialect.capabilities().promising(self.recording())
    }

    fn servers(&self) -> Option<&str> {
        self.0.options.server.as_deref()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        (self.0.acquire)(self.0.client()?, claim).await.map_err(about_file::<D>)
    }

    /// All claims go into one statement.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        let client = match self.0.client() {
            Ok(client) => client,
            Err(error) => return claims.iter().map(|_| Err(error.duplicate())).collect(),
        };
        let requests = claims.iter().map(|claim| TakeRequest::new(claim, NO_TICKET));
        let answers = client.take_each(requests).await;
        let answered = claims.iter().zip(answers);
        let granted = |(claim, took): (&Claim, Result<_>)| match client.answer(claim, took?, None)? {
            ClaimReply::Granted(grant) => Ok(Some(grant)),
            ClaimReply::Unavailable { error, .. } => Err(error),
            // Refused, or nothing was decided.
            _ => Ok(None),
        };
        answered.map(granted).collect()
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let renewed = async {
            let client = self.0.client()?;
            let (mut answers, sent) = client.renew(grants, until).await?;
            // The write of a record has the row for a moment; a transaction that has verified the lock, for long.
            let places: Vec<_> = (0..grants.len()).filter(|&at| answers[at] == Extension::Blocked).collect();
            if !places.is_empty() {
                let blocked: Vec<_> = places.iter().map(|&at| grants[at].clone()).collect();
                match client.renew(&blocked, until).await {
                    // Its validity counts from the first request, which was earlier.
                    Ok((again, _)) => {
                        places.into_iter().zip(again).for_each(|(at, again)| answers[at] = again);
                    }
                    // The others have their answers.
                    Err(error) => {
                        tracing::debug!(%error, "leases whose rows were locked are not renewed yet");
                    }
                }
            }
            Ok::<_, Error>((answers, sent))
        };
        let (answers, sent) = match renewed.await {
            Ok(answer) => answer,
            Err(error) => return Renewal::all_unknown(grants, &error),
        };
        let pairs = grants.iter().zip(answers);
        pairs
            .map(|(grant, answer)| match answer {
                Extension::Extended => Renewal::Renewed(valid_until(sent, grant.claim().ttl())),
                Extension::Lost => Renewal::Lost,
                Extension::Blocked => Renewal::Unknown(blocked(None)),
            })
            .collect()
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let client = self.0.client()?;
        let next = until_unblocked(|route| {
            let grant = grant.clone();
            client.run(route, move |dialect, conn| {
                let grant = grant.clone();
                Box::pin(async move {
                    if !dialect.downgrade(conn, &grant).await? {
                        return Ok(None);
                    }
                    find_next(dialect, conn, grant.claim().name()).await.map(Some)
                })
            })
        });
        match next.await? {
            Some(next) => {
                client.notify(next);
                Ok(grant.downgraded())
            }
            None => Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade")),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let client = self.0.client()?;
        let is_queued = claim.may_be_queued();
        let left = is_queued && client.leave(claim).await?;
        // A transaction that verified the lock holds its row. The lock must not be free before it ends.
        let mut freed = Freed::default();
        if Hold::of(claim) == Hold::Alone {
            freed = until_freed(&client, claim, Request::Release).await?;
        }
        let mut in_doubt = freed.in_doubt;
        if !freed.released {
            // A writer is a member by now if it was downgraded and the answer was lost.
            freed = until_freed(&client, claim, Request::LeaveGroup).await?;
            in_doubt |= freed.in_doubt;
        }
        let released = freed.released || left;
        freed.notify_next(&client.waiters);
        if !is_queued && claim.in_doubt_until().is_some() {
            // A late copy of a request may have taken a place. To leave it is no part of the release.
            if let Err(error) = client.leave(claim).await {
                tracing::debug!(%error, "a place may be left until its client has ended");
            }
        }
        Ok(Released::from_answer(released, in_doubt))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let (client, name) = (self.0.client()?, name.clone());
        let status = client.run(Route::Main, move |dialect, conn| {
            let name = name.clone();
            Box::pin(async move { dialect.inspect(conn, &name).await })
        });
        status.await
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        let client = self.0.client()?;
        let names = client.run(Route::Main, |dialect, conn| Box::pin(dialect.names(conn)));
        Ok(names.await?.into_iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let client = self.0.client()?;
        client.run(Route::Main, |dialect, conn| Box::pin(dialect.examine(conn))).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let (client, name) = (self.0.client()?, name.clone());
        let seen = Arc::<Forced>::default();
        let forced = client.run(Route::Main, move |dialect, conn| {
            let (name, seen) = (name.clone(), Arc::clone(&seen));
            Box::pin(async move {
                let holders = dialect.force_release(conn, &name, &seen).await?;
                Ok((holders, find_next(dialect, conn, &name).await?))
            })
        });
        let (freed, next) = forced.await?;
        client.notify(next);
        Ok(freed)
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.write(grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.read(name, kind, under).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.recorded(kind).await
    }

    async fn grace_left(&self) -> Result<Option<Duration>> {
        let client = self.0.client()?;
        client.run(Route::Main, |dialect, conn| Box::pin(dialect.grace_left(conn))).await
    }

    async fn begin_grace(&self) -> Result<Duration> {
        let client = self.0.client()?;
        let begun = client.run(Route::Main, |dialect, conn| Box::pin(dialect.begin_grace(conn)));
        begun.await?.ok_or_else(|| {
            let text = "these lock tables have no grace periods: PostgreSQL has them on tables that were made with \
                        durability=grace";
            Error::new(ErrorKind::Unsupported, text)
        })
    }

    async fn close(&self) {
        for client in self.0.clients.take_all() {
            client.close().await;
        }
    }
}

impl<D: Dialect> fmt::Debug for SqlLock<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlLock").field("dialect", &self.0.dialect).finish_non_exhaustive()
    }
}

impl<D: Dialect> SqlLock<D> {
    async fn set_up(&self) -> Result<()> {
        match self.check(false).await {
            Err(error) if error.kind() == ErrorKind::Misconfigured && self.0.options.create => {
                // The tables may be missing. If creating them does not help, the first error says more.
                match self.check(true).await {
                    Err(second) if second.kind() == ErrorKind::Refused => Err(Error::new(
                        ErrorKind::Misconfigured,
                        "the lock tables are missing or not of the form that this version needs, and this user may \
                         not create them; let an administrator run the statements that `lockwell schema` prints",
                    )
                    .with_source(format!("{error:#}; and then: {second:#}"))),
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Checks the tables; with `create`, creates them before.
    async fn check(&self, create: bool) -> Result<()> {
        let client = self.0.client()?;
        let checked = client.run(Route::Main, move |dialect, conn| {
            Box::pin(async move {
                if create {
                    dialect.create(conn).await?;
                }
                dialect.check(conn).await
            })
        });
        checked.await
    }

    /// Starts the purge of idle rows. It ends with the last handle.
    fn start_purging(&self) {
        let idle = self.0.options.purge_after;
        if idle.is_zero() {
            return;
        }
        let inner = Arc::downgrade(&self.0);
        let pause = (idle / 4).clamp(Duration::from_secs(1), Duration::from_hours(1));
        drop(tokio::spawn(async move {
            loop {
                // Jitter, so that the processes of a fleet that started together do not purge together.
                tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
                let Some(inner) = inner.upgrade() else { return };
                match inner.purge(idle, true).await {
                    Ok(purged) => tracing::debug!(lockwell.purged = purged, "idle lock rows deleted"),
                    // A user may well be without the right to delete.
                    Err(error) => {
                        tracing::info!(error = format!("{error:#}"), "idle lock rows are not deleted");
                    }
                }
            }
        }));
    }
}

impl<D: Dialect> LockInner<D> {
    fn client(&self) -> Result<Arc<Client<D>>> {
        self.clients.get(|| Client::new(&self.dialect, self.options.timeout, &self.record))
    }

    async fn purge(&self, idle: Duration, stops: bool) -> Result<u64> {
        purge(&*self.client()?, idle, stops).await
    }
}

/// Repeats a request until no transaction has locked the lock's row. It does so on a connection of its own,
/// so that other requests do not wait.
async fn until_unblocked<T, F: Future<Output = Result<T>>>(request: impl Fn(Route) -> F) -> Result<T> {
    let (mut route, mut pause) = (Route::Main, Duration::from_millis(5));
    loop {
        match request(route).await {
            Err(error) if error.kind() == ErrorKind::Held && pause < Duration::from_secs(2) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
                route = Route::BlockedRows;
            }
            other => return other,
        }
    }
}

/// Releases a claim, [again](until_unblocked) while a transaction has locked the lock's row.
async fn until_freed<D: Dialect>(
    client: &Client<D>,
    claim: &Claim,
    request: fn(Claim) -> Request<D>,
) -> Result<Freed> {
    // An earlier request, of which an answer was lost, may have been carried out before the row was locked.
    let in_doubt = &AtomicBool::new(false);
    let freed = until_unblocked(|route| async move {
        let freed = client.free(route, request(claim.clone())).await?;
        in_doubt.fetch_or(freed.in_doubt, Ordering::Relaxed);
        if freed.blocked { Err(blocked(None)) } else { Ok(freed) }
    });
    let freed = freed.await?;
    Ok(Freed { in_doubt: in_doubt.load(Ordering::Relaxed), ..freed })
}
