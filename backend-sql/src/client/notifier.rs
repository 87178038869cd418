//! How the waiters of this process learn that it is their turn.
//!
//! There is one task per runtime and database, whatever the number of locks and waiters. Where the database
//! can push, the task subscribes. Where it cannot, the task polls for all names at once, often while locks
//! change hands and rarely while nothing happens. Each waiter also has a timer, so a lost notification delays
//! the lock and does not lose it.
//!
//! A subscription that was accepted may still not work: a pooler may have given it to another connection, and
//! the network may have dropped ours. So the task sends a probe to itself over the connection for requests,
//! at first and every few seconds. While the probes do not arrive, the task polls, and subscribes again.
//!
//! One heartbeat counts for all places of a client, also for that of a future that nobody polls. Once it was
//! its turn, and it has not asked, the task gives its place up, so that others get theirs. It enters the
//! queue again when it is polled.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::{Backoff, lock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::client::asker::Asker;
use crate::client::sweeper::sweep_while_waiting;
use crate::dialect::Dialect;
use crate::dialect::requests::{Request, Route};
use crate::words::Notification;

/// How long the task runs on when nobody waits any more.
const LINGER: Duration = Duration::from_secs(20);
/// How long waiters wait for the first subscription of a task before they go on without one.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(1);
const SHORTEST_POLL_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_POLL_PAUSE: Duration = Duration::from_millis(20);
/// How often to poll although the database says that nothing has changed: a lease ends without a change.
const POLL_ANYWAY: Duration = Duration::from_millis(100);
/// How long a new subscription may stay unverified before the task polls.
const VERIFY_WITHIN: Duration = Duration::from_millis(100);
/// How often the task sends itself a probe.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// How long a probe may take after the database has accepted it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest pause before the next subscription when they fail.
const LONGEST_RESUBSCRIBE_PAUSE: Duration = Duration::from_secs(30);
/// How long the task polls over one connection. Afterwards the address may lead to another server.
const POLL_CONNECTION_FOR: Duration = Duration::from_secs(20);
/// How often the task looks for waiters that do not hear their notifications, and how many looks it takes. A
/// runtime that was late is late with the looks, too.
const LOOK_FOR_UNHEARD_EVERY: Duration = Duration::from_millis(200);
const UNHEARD_LOOKS: i32 = 3;
/// How often the connection to a file is checked while nobody waits.
const CHECK_IDLE: Duration = Duration::from_millis(500);

/// Whether notifications are known to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Unverified,
    Verified,
    /// There is no subscription, or notifications do not arrive.
    Broken,
}

pub(crate) struct Notifier<D: Dialect> {
    state: Arc<NotifierTask<D>>,
    task: Mutex<Option<Subscribing>>,
}

/// The task since it was started.
struct Subscribing {
    handle: JoinHandle<()>,
    began: Moment,
    subscribed: watch::Receiver<bool>,
}

impl<D: Dialect> Notifier<D> {
    pub(crate) fn new(asker: Arc<Asker<D>>) -> Self {
        let state = NotifierTask {
            asker,
            receives: AtomicBool::default(),
            has_subscribed: AtomicBool::default(),
            has_warned: AtomicBool::default(),
            resubscribed: Notify::default(),
        };
        Self { state: Arc::new(state), task: Mutex::new(None) }
    }

    /// Whether notifications arrive at this process.
    pub(crate) fn receives(&self) -> bool {
        self.state.receives.load(Ordering::Relaxed)
    }

    /// Makes sure that the task runs, and waits until notifications are known to arrive. A waiter calls this
    /// before it enters the queue: so no notification is sent before the subscription, and its place says
    /// from the beginning that a release may grant the lock to it.
    pub(crate) async fn ready(&self) {
        let (began, mut subscribed) = {
            let mut task = lock(&self.task);
            match &*task {
                Some(task) if !task.handle.is_finished() => (task.began, task.subscribed.clone()),
                _ => {
                    let (ready, subscribed) = watch::channel(false);
                    let (state, began) = (Arc::clone(&self.state), Moment::now());
                    let handle = tokio::spawn(async move { state.run(&ready).await });
                    *task = Some(Subscribing { handle, began, subscribed: subscribed.clone() });
                    (began, subscribed)
                }
            }
        };
        // Without a subscription the waiter depends on its timer. It waits once, not before each request:
        // others that come later and need not wait would enter the queue before it.
        let left = began.after(SUBSCRIBE_TIMEOUT).remaining();
        drop(timeout(left, subscribed.wait_for(|ready| *ready)).await);
    }

    /// Ends the subscription.
    pub(crate) async fn close(&self) {
        let task = lock(&self.task).take();
        if let Some(task) = task {
            task.handle.abort();
            // Its runtime may not be driven.
            drop(timeout(Duration::from_millis(200), task.handle).await);
        }
    }
}

impl<D: Dialect> Drop for Notifier<D> {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.handle.abort();
        }
    }
}

/// The state of the task.
struct NotifierTask<D: Dialect> {
    asker: Arc<Asker<D>>,
    receives: AtomicBool,
    has_subscribed: AtomicBool,
    /// Whether the log has it that notifications do not arrive. They may go on arriving and failing.
    has_warned: AtomicBool,
    /// Notified after each subscription of this client but the first.
    resubscribed: Notify,
}

impl<D: Dialect> NotifierTask<D> {
    /// Runs until nobody waits any more. A waiter that comes at that moment starts the task again with its
    /// next request.
    async fn run(&self, ready: &watch::Sender<bool>) {
        let (delivery, received) = watch::channel(Delivery::Unverified);
        let _stop = StopReceiving(&self.receives);
        tokio::select! {
            () = self.keep_subscribed(&delivery, ready) => (),
            () = self.poll_while_unverified(received, ready) => (),
            () = sweep_while_waiting(&self.asker, &self.resubscribed) => (),
            () = self.ask_while_receiving() => (),
            () = self.leave_unheard() => (),
            () = async {
                loop {
                    sleep(LINGER).await;
                    if self.asker.waiters.is_empty() {
                        return;
                    }
                }
            } => (),
        }
    }

    /// Subscribes, and subscribes again when a subscription fails.
    async fn keep_subscribed(&self, delivery: &watch::Sender<Delivery>, ready: &watch::Sender<bool>) {
        let new_backoff = || Backoff::new(Duration::from_millis(20), LONGEST_RESUBSCRIBE_PAUSE);
        let mut backoff = new_backoff();
        loop {
            let end = match within(self.asker.limit, self.asker.dialect.subscribe(&self.asker.waiters)).await
            {
                Ok(Some(mut subscription)) => self.listen(&mut subscription, delivery, ready).await,
                Ok(None) => {
                    delivery.send_replace(Delivery::Broken);
                    return std::future::pending().await;
                }
                Err(error) => error,
            };
            self.receives.store(false, Ordering::Relaxed);
            let worked = delivery.send_replace(Delivery::Broken) == Delivery::Verified;
            if worked {
                backoff = new_backoff();
            }
            if self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::debug!(error = %end, "notifications of the database do not arrive again");
            } else {
                tracing::warn!(
                    error = %end,
                    "notifications of the database do not arrive; waiters ask for their turn until they do"
                );
            }
            backoff.pause().await;
        }
    }

    /// Delivers notifications until the subscription fails or a probe does not arrive. Returns the reason.
    async fn listen(
        &self,
        subscription: &mut D::Subscription,
        delivery: &watch::Sender<Delivery>,
        ready: &watch::Sender<bool>,
    ) -> sqlx_core::Error {
        loop {
            // No ticket is negative.
            let probe = -2 - i64::from(rand::random::<u32>());
            let mut sending = pin!(self.send_probe(probe));
            let (mut received, mut sent, mut by) = (false, false, Moment::NEVER);
            while !(received && sent) {
                tokio::select! {
                    biased;
                    outcome = &mut sending, if !sent => match outcome {
                        Ok(needed) => {
                            (sent, received) = (true, received || !needed);
                            by = Moment::now().after(PROBE_TIMEOUT);
                        }
                        Err(error) => return sqlx_core::Error::Protocol(format!("{error:#}")),
                    },
                    note = D::notification(subscription) => match note {
                        Ok(Some(Notification { ticket, .. })) if ticket == probe => received = true,
                        Ok(Some(notification)) => self.asker.waiters.deliver(notification),
                        Ok(None) => return lost(),
                        Err(error) => return error,
                    },
                    () = sleep(by.remaining()), if sent => {
                        return sqlx_core::Error::Protocol("a notification to ourselves has not come back".into());
                    }
                }
            }
            if !self.receives.swap(true, Ordering::Relaxed) {
                ready.send_replace(true);
                // Notifications between the last connection and this one are lost. And the places that were
                // entered meanwhile say that a release cannot grant the lock to them: each waiter that asks
                // now corrects its own.
                self.asker.waiters.notify_all();
                if self.has_subscribed.swap(true, Ordering::Relaxed) {
                    self.resubscribed.notify_one();
                }
            }
            if delivery.send_replace(Delivery::Verified) != Delivery::Verified {
                tracing::debug!("notifications of the database arrive");
            }
            let mut pause = pin!(sleep(PROBE_EVERY));
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    note = D::notification(subscription) => match note {
                        Ok(Some(notification)) => self.asker.waiters.deliver(notification),
                        Ok(None) => return lost(),
                        Err(error) => return error,
                    },
                }
            }
        }
    }

    /// Asks now and then whose turn it is, although notifications arrive: none is sent when a lease ends, or
    /// when the process that releases a lock is killed before it sends one.
    async fn ask_while_receiving(&self) {
        let Some(every) = D::ASKS_EVERY else { return std::future::pending().await };
        loop {
            // Jitter, so that the clients of a file do not ask together.
            sleep(every.mul_f64(0.75 + 0.5 * rand::random::<f64>())).await;
            if self.asker.waiters.is_empty() || !self.receives.load(Ordering::Relaxed) {
                continue;
            }
            let names = self.asker.waiters.names();
            let asking = self.asker.run(Route::Main, move |dialect, conn| {
                let names = names.clone();
                Box::pin(async move { dialect.turns(conn, &names).await })
            });
            match asking.await {
                Ok(turns) => turns.into_iter().for_each(|ticket| self.asker.waiters.notify(ticket)),
                Err(error) => {
                    tracing::debug!(error = format!("{error:#}"), "it was not found out whose turn it is");
                }
            }
        }
    }

    /// Gives up the places of waiters that were notified and do not ask, since nobody polls their futures.
    async fn leave_unheard(&self) {
        loop {
            sleep(LOOK_FOR_UNHEARD_EVERY).await;
            let unheard = self.asker.waiters.unheard(UNHEARD_LOOKS);
            for claim in unheard.into_iter().filter_map(|number| self.asker.places.claim(number)) {
                match self.asker.free(Route::Main, Request::Leave(claim)).await {
                    Ok(freed) => freed.notify_next(&self.asker.waiters),
                    Err(error) => {
                        tracing::debug!(error = format!("{error:#}"), "a place that nobody uses is kept");
                    }
                }
            }
        }
    }

    /// Sends a probe to our own subscription. False: this database needs none.
    async fn send_probe(&self, probe: i64) -> lockwell_core::Result<bool> {
        let sending = self.asker.run(Route::Main, move |dialect, conn| Box::pin(dialect.probe(conn, probe)));
        sending.await
    }

    /// Polls while notifications are not known to arrive.
    async fn poll_while_unverified(
        &self,
        mut delivery: watch::Receiver<Delivery>,
        ready: &watch::Sender<bool>,
    ) {
        let new_backoff = || Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
        let mut backoff = new_backoff();
        loop {
            if delivery.wait_for(|it| *it != Delivery::Verified).await.is_err() {
                return;
            }
            let wait = if *delivery.borrow() == Delivery::Broken { Duration::ZERO } else { VERIFY_WITHIN };
            let mut others = delivery.clone();
            let is_verified = async |its: &mut watch::Receiver<Delivery>| {
                drop(its.wait_for(|it| *it == Delivery::Verified).await);
            };
            tokio::select! {
                () = is_verified(&mut others) => continue,
                _ = delivery.wait_for(|it| *it == Delivery::Broken), if !wait.is_zero() => continue,
                () = sleep(wait) => (),
            }
            let began = Moment::now();
            tokio::select! {
                () = is_verified(&mut others) => continue,
                outcome = self.poll(ready) => match outcome {
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

    /// Polls over one connection: asks whose turn it is, and notifies those waiters.
    async fn poll(&self, ready: &watch::Sender<bool>) -> sqlx_core::Result<()> {
        let mut conn = within(self.asker.limit, self.asker.dialect.connect(&self.asker.waiters)).await?;
        ready.send_replace(true);
        let end = Moment::now().after(POLL_CONNECTION_FOR);
        let (mut pause, mut seen, mut polled) = (SHORTEST_POLL_PAUSE, None, Moment::now());
        let mut last_turns = Vec::<i64>::new();
        while !(D::IS_REMOTE && end.has_passed()) {
            if self.asker.waiters.is_empty() {
                if let Err(lost) = self.arrival(&mut conn).await {
                    // The file is not opened again, or even created, before somebody needs it.
                    drop(conn);
                    self.asker.waiters.arrival().await;
                    return Err(lost);
                }
                pause = SHORTEST_POLL_PAUSE;
                continue;
            }
            self.asker.dialect.pause(&mut conn, pause).await?;
            pause = (pause * 3 / 2).min(LONGEST_POLL_PAUSE);
            let version = within(self.asker.limit, self.asker.dialect.version(&mut conn)).await?;
            self.asker.dialect.intact(&conn)?;
            if version.is_some() && version == seen && polled.after(POLL_ANYWAY) > Moment::now() {
                continue;
            }
            seen = version;
            polled = Moment::now();
            let names = self.asker.waiters.names();
            let mut turns = within(self.asker.limit, self.asker.dialect.turns(&mut conn, &names)).await?;
            turns.sort_unstable();
            // A turn that is not taken stays the same, such as while nothing is granted after a crash.
            if !turns.is_empty() && turns != last_turns {
                pause = SHORTEST_POLL_PAUSE;
            }
            for ticket in &turns {
                self.asker.waiters.notify(*ticket);
            }
            last_turns = turns;
        }
        Ok(())
    }

    /// Waits for a waiter. It does not keep a connection to a file that was removed meanwhile: see
    /// [`idle`](crate::client::idle).
    async fn arrival(&self, conn: &mut D::Conn) -> sqlx_core::Result<()> {
        loop {
            if D::IS_REMOTE {
                self.asker.waiters.arrival().await;
                return Ok(());
            }
            if timeout(CHECK_IDLE, self.asker.waiters.arrival()).await.is_ok() {
                return Ok(());
            }
            self.asker.dialect.intact(conn)?;
        }
    }
}

/// Notes on drop that notifications do not arrive any more.
struct StopReceiving<'a>(&'a AtomicBool);

impl Drop for StopReceiving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn lost() -> sqlx_core::Error {
    sqlx_core::Error::Protocol("the connection was lost".into())
}

/// Fails if there is no answer in time. The connection must not be used then.
async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = sqlx_core::Result<T>>,
) -> sqlx_core::Result<T> {
    let late = |_| Err(sqlx_core::Error::Io(std::io::Error::from(std::io::ErrorKind::TimedOut)));
    timeout(limit, answer).await.unwrap_or_else(late)
}
