//! How the waiters of this process learn that it is their turn.
//!
//! One task per runtime and database, whatever the number of locks and waiters. Where the database can push, the task
//! listens. Where it cannot, it asks for all names at once, often while locks are changing hands and rarely while nothing
//! happens. Behind both stands a timer of each waiter, so a lost notification costs time, not the lock.
//!
//! A subscription that was accepted proves nothing: a pooler may have given it to another connection, and a network may
//! have forgotten ours. So the task sends itself a word over the connection for requests, at first and every few seconds.
//! Until it hears the word, and when it does not hear it any more, it asks; and it subscribes anew.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockcore::Moment;
use lockcore::backend::{Backoff, Batcher, Waiters};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::client::job;
use crate::dialect::{Dialect, Told};
use crate::requests::{Context, Route};
use crate::service::Statements;

/// How long the task stays when nobody waits any more.
const LINGER: Duration = Duration::from_secs(20);
/// How long a waiter waits for the subscription before it goes on without.
const SUBSCRIBE: Duration = Duration::from_secs(1);
const FASTEST: Duration = Duration::from_millis(1);
const SLOWEST: Duration = Duration::from_millis(20);
/// How often to look although the database says that nothing has changed: leases end without a change.
const LOOK_ANYWAY: Duration = Duration::from_millis(100);
/// How long a new subscription may stay unproven before the task asks.
const UNPROVEN: Duration = Duration::from_millis(100);
/// How often the task sends itself a word.
const SPEAK_EVERY: Duration = Duration::from_secs(2);
/// How long a word may take once the database has taken it.
const HEAR_WITHIN: Duration = Duration::from_secs(1);
/// The longest pause between two subscriptions that do not work.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(30);
/// How long the task asks over one connection: the address may lead to another server since.
const ASK_FOR: Duration = Duration::from_secs(20);
/// How often the connection to a file is checked while nobody waits.
const CHECK_IDLE: Duration = Duration::from_millis(500);

/// What is known of the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    Unproven,
    Proven,
    /// There is none, or nothing comes.
    Deaf,
}

pub(crate) struct Wake<D: Dialect> {
    parts: Parts<D>,
    task: Mutex<Option<(JoinHandle<()>, watch::Receiver<bool>)>>,
}

impl<D: Dialect> Wake<D> {
    /// `requests` are those of this runtime, and none of them may take longer than `limit`.
    pub(crate) fn new(
        dialect: Arc<D>,
        waiters: Arc<Waiters>,
        requests: Batcher<Statements<D>>,
        limit: Duration,
    ) -> Self {
        let hears = Arc::default();
        Self { parts: Parts { dialect, waiters, requests, limit, hears }, task: Mutex::new(None) }
    }

    /// Whether this process hears what it is notified of.
    pub(crate) fn hears(&self) -> bool {
        self.parts.hears.load(Ordering::Relaxed)
    }

    /// Makes sure that the task runs, and waits until it has subscribed. A waiter calls this before it queues, so that
    /// no notification is sent before somebody listens.
    pub(crate) async fn ready(&self) {
        let mut subscribed = {
            let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            match &*task {
                Some((handle, subscribed)) if !handle.is_finished() => subscribed.clone(),
                _ => {
                    let (tell, subscribed) = watch::channel(false);
                    let parts = self.parts.clone();
                    let handle = tokio::spawn(async move { parts.attend(&tell).await });
                    *task = Some((handle, subscribed.clone()));
                    subscribed
                }
            }
        };
        // Without a subscription the waiter's own timer must do.
        drop(timeout(SUBSCRIBE, subscribed.wait_for(|ready| *ready)).await);
    }
}

impl<D: Dialect> Drop for Wake<D> {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((handle, _)) = task {
            handle.abort();
        }
    }
}

/// What the task works with.
struct Parts<D: Dialect> {
    dialect: Arc<D>,
    waiters: Arc<Waiters>,
    requests: Batcher<Statements<D>>,
    limit: Duration,
    hears: Arc<AtomicBool>,
}

impl<D: Dialect> Clone for Parts<D> {
    fn clone(&self) -> Self {
        Self {
            dialect: Arc::clone(&self.dialect),
            waiters: Arc::clone(&self.waiters),
            requests: self.requests.clone(),
            limit: self.limit,
            hears: Arc::clone(&self.hears),
        }
    }
}

impl<D: Dialect> Parts<D> {
    /// Until nobody waits any more. A waiter that comes at that moment starts the task again when it asks next.
    async fn attend(&self, tell: &watch::Sender<bool>) {
        let (hearing, heard) = watch::channel(Hearing::Unproven);
        let _deaf = Deaf(&self.hears);
        tokio::select! {
            () = self.hear(&hearing, tell) => (),
            () = self.ask_while_deaf(heard, tell) => (),
            () = async {
                loop {
                    sleep(LINGER).await;
                    if self.waiters.is_empty() {
                        return;
                    }
                }
            } => (),
        }
    }

    /// Listens, and subscribes again when that fails.
    async fn hear(&self, hearing: &watch::Sender<Hearing>, tell: &watch::Sender<bool>) {
        let new_backoff = || Backoff::new(Duration::from_millis(20), SUBSCRIBE_AGAIN);
        let mut backoff = new_backoff();
        let mut said = false;
        loop {
            let end = match within(self.limit, self.dialect.subscribe(self.waiters.client())).await {
                Ok(Some(mut subscription)) => {
                    tell.send_replace(true);
                    // Notifications between the last connection and this one are lost.
                    self.waiters.notify_all();
                    self.listen(&mut subscription, hearing).await
                }
                Ok(None) => {
                    hearing.send_replace(Hearing::Deaf);
                    return std::future::pending().await;
                }
                Err(error) => error,
            };
            self.hears.store(false, Ordering::Relaxed);
            let worked = hearing.send_replace(Hearing::Deaf) == Hearing::Proven;
            if worked {
                (backoff, said) = (new_backoff(), false);
            }
            if !said {
                tracing::warn!(
                    error = %end,
                    "notifications of the database do not arrive; waiters ask for their turn until they do"
                );
                said = true;
            }
            backoff.pause().await;
        }
    }

    /// Listens until the subscription fails, or the task does not hear itself. Returns why.
    async fn listen(
        &self,
        subscription: &mut D::Subscription,
        hearing: &watch::Sender<Hearing>,
    ) -> sqlx::Error {
        loop {
            // No ticket is negative.
            let word = -2 - i64::from(rand::random::<u32>());
            let mut speaking = pin!(self.speak(word));
            let (mut heard, mut spoken, mut by) = (false, false, Moment::NEVER);
            while !(heard && spoken) {
                tokio::select! {
                    biased;
                    outcome = &mut speaking, if !spoken => match outcome {
                        Ok(needed) => {
                            (spoken, heard) = (true, heard || !needed);
                            by = Moment::now().after(HEAR_WITHIN);
                        }
                        Err(error) => return sqlx::Error::Protocol(format!("{error:#}")),
                    },
                    note = D::notification(subscription) => match note {
                        Ok(Some(Told { ticket, .. })) if ticket == word => heard = true,
                        Ok(Some(told)) => told.tell(&self.waiters),
                        Ok(None) => return lost(),
                        Err(error) => return error,
                    },
                    () = sleep(by.remaining()), if spoken => {
                        return sqlx::Error::Protocol("a notification to ourselves has not come back".into());
                    }
                }
            }
            self.hears.store(true, Ordering::Relaxed);
            if hearing.send_replace(Hearing::Proven) != Hearing::Proven {
                tracing::debug!("notifications of the database arrive");
            }
            let mut pause = pin!(sleep(SPEAK_EVERY));
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    note = D::notification(subscription) => match note {
                        Ok(Some(told)) => told.tell(&self.waiters),
                        Ok(None) => return lost(),
                        Err(error) => return error,
                    },
                }
            }
        }
    }

    /// Sends a word to our own subscription. False: it needs no proof.
    async fn speak(&self, word: i64) -> lockcore::Result<bool> {
        let speaking = job(&self.requests, Route::Main, self.limit, None, move |context| {
            let Context { dialect, waiters, conn } = context;
            let client = waiters.client();
            Box::pin(async move { dialect.announce(conn, client, word).await })
        });
        speaking.await
    }

    /// Asks whose turn it is while nothing is heard.
    async fn ask_while_deaf(&self, mut hearing: watch::Receiver<Hearing>, tell: &watch::Sender<bool>) {
        let new_backoff = || Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        let mut backoff = new_backoff();
        loop {
            if hearing.wait_for(|it| *it != Hearing::Proven).await.is_err() {
                return;
            }
            let wait = if *hearing.borrow() == Hearing::Deaf { Duration::ZERO } else { UNPROVEN };
            let mut others = hearing.clone();
            let is_proven = async |its: &mut watch::Receiver<Hearing>| {
                drop(its.wait_for(|it| *it == Hearing::Proven).await);
            };
            tokio::select! {
                () = is_proven(&mut others) => continue,
                _ = hearing.wait_for(|it| *it == Hearing::Deaf), if !wait.is_zero() => continue,
                () = sleep(wait) => (),
            }
            let began = Moment::now();
            tokio::select! {
                () = is_proven(&mut others) => continue,
                outcome = self.ask(tell) => match outcome {
                    Ok(()) => continue,
                    Err(error) => tracing::info!(%error, "it is not known whose turn it is; the database is asked again"),
                },
            }
            if Moment::now().since(began) > Duration::from_secs(5) {
                backoff = new_backoff();
            }
            backoff.pause().await;
        }
    }

    /// Asks whose turn it is, over one connection.
    async fn ask(&self, tell: &watch::Sender<bool>) -> sqlx::Result<()> {
        let mut conn = within(self.limit, self.dialect.connect()).await?;
        tell.send_replace(true);
        let end = Moment::now().after(ASK_FOR);
        let (mut pause, mut seen, mut looked) = (FASTEST, None, Moment::now());
        while !(D::IS_REMOTE && end.has_passed()) {
            if self.waiters.is_empty() {
                if let Err(lost) = self.arrival(&mut conn).await {
                    // Not opened again, and perhaps created, before somebody needs it.
                    drop(conn);
                    self.waiters.arrival().await;
                    return Err(lost);
                }
                pause = FASTEST;
                continue;
            }
            self.dialect.pause(&mut conn, pause).await?;
            pause = (pause * 3 / 2).min(SLOWEST);
            let version = within(self.limit, self.dialect.version(&mut conn)).await?;
            self.dialect.intact(&conn)?;
            if version.is_some() && version == seen && looked.after(LOOK_ANYWAY) > Moment::now() {
                continue;
            }
            seen = version;
            looked = Moment::now();
            let names = self.waiters.names();
            let turns = within(self.limit, self.dialect.turns(&mut conn, &self.waiters, &names)).await?;
            if !turns.is_empty() {
                pause = FASTEST;
            }
            for ticket in turns {
                self.waiters.notify(ticket);
            }
        }
        Ok(())
    }

    /// Waits for a waiter. A connection to a file that was removed is not kept meanwhile: see [`idle`](crate::idle).
    async fn arrival(&self, conn: &mut D::Conn) -> sqlx::Result<()> {
        loop {
            if D::IS_REMOTE {
                self.waiters.arrival().await;
                return Ok(());
            }
            if timeout(CHECK_IDLE, self.waiters.arrival()).await.is_ok() {
                return Ok(());
            }
            self.dialect.intact(conn)?;
        }
    }
}

/// Notes that nothing is heard any more.
struct Deaf<'a>(&'a AtomicBool);

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn lost() -> sqlx::Error {
    sqlx::Error::Protocol("the connection was lost".into())
}

/// What has no answer in time has failed, and its connection with it.
async fn within<T>(limit: Duration, answer: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = |_| Err(sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::TimedOut)));
    timeout(limit, answer).await.unwrap_or_else(late)
}
