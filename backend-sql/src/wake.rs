//! How the waiters of this process learn that it is their turn.
//!
//! One task per runtime and database, on one connection, whatever the number of locks and waiters. Where the database
//! can push, the task listens. Where it cannot, it asks for all names at once, often while locks are changing hands and
//! rarely while nothing happens. Behind both stands a timer of each waiter, so a lost notification costs time, not the lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockcore::Moment;
use lockcore::backend::{Backoff, Waiters};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::dialect::Dialect;

/// How long the task stays when nobody waits any more.
const LINGER: Duration = Duration::from_secs(20);
/// How long a waiter waits for the subscription before it goes on without.
const SUBSCRIBE: Duration = Duration::from_secs(1);
const FASTEST: Duration = Duration::from_millis(1);
const SLOWEST: Duration = Duration::from_millis(20);
/// How often to look although the database says that nothing has changed: leases end without a change.
const LOOK_ANYWAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Wake<D: Dialect> {
    dialect: Arc<D>,
    waiters: Arc<Waiters>,
    task: Mutex<Option<(JoinHandle<()>, watch::Receiver<bool>)>>,
}

impl<D: Dialect> Wake<D> {
    pub(crate) fn new(dialect: Arc<D>, waiters: Arc<Waiters>) -> Self {
        Self { dialect, waiters, task: Mutex::new(None) }
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
                    let (dialect, waiters) = (Arc::clone(&self.dialect), Arc::clone(&self.waiters));
                    let handle = tokio::spawn(async move { attend(&*dialect, &waiters, &tell).await });
                    *task = Some((handle, subscribed.clone()));
                    subscribed
                }
            }
        };
        // Without a subscription the waiter's own timer must do.
        drop(tokio::time::timeout(SUBSCRIBE, subscribed.wait_for(|ready| *ready)).await);
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

async fn attend<D: Dialect>(dialect: &D, waiters: &Waiters, tell: &watch::Sender<bool>) {
    let new_backoff = || Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
    let mut backoff = new_backoff();
    loop {
        let began = Moment::now();
        let outcome = match dialect.subscribe(waiters.client()).await {
            Ok(Some(subscription)) => {
                tell.send_replace(true);
                // Notifications between the last connection and this one are lost.
                waiters.notify_all();
                listen::<D>(subscription, waiters).await
            }
            Ok(None) => {
                tell.send_replace(true);
                poll(dialect, waiters).await
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => return,
            Err(error) => tracing::info!(%error, "no notifications from the database; it is tried again"),
        }
        if Moment::now().since(began) > Duration::from_secs(5) {
            backoff = new_backoff();
        }
        backoff.pause().await;
    }
}

/// Listens until nobody waits any more.
async fn listen<D: Dialect>(mut subscription: D::Subscription, waiters: &Waiters) -> sqlx::Result<()> {
    loop {
        tokio::select! {
            heard = D::notification(&mut subscription) => match heard? {
                Some(ticket) => waiters.notify(ticket),
                None => waiters.notify_all(),
            },
            () = tokio::time::sleep(LINGER) => if waiters.is_empty() {
                return Ok(());
            },
        }
    }
}

/// Asks whose turn it is until nobody waits any more.
async fn poll<D: Dialect>(dialect: &D, waiters: &Waiters) -> sqlx::Result<()> {
    let mut conn = dialect.connect().await?;
    let (mut pause, mut seen, mut looked) = (FASTEST, None, Moment::now());
    loop {
        if waiters.is_empty() {
            let next = tokio::time::timeout(LINGER, waiters.arrival()).await;
            if next.is_err() && waiters.is_empty() {
                return Ok(());
            }
            pause = FASTEST;
            continue;
        }
        dialect.pause(&mut conn, pause).await?;
        pause = (pause * 3 / 2).min(SLOWEST);
        let version = dialect.version(&mut conn).await?;
        dialect.intact(&conn)?;
        if version.is_some() && version == seen && looked.after(LOOK_ANYWAY) > Moment::now() {
            continue;
        }
        seen = version;
        looked = Moment::now();
        let turns = dialect.turns(&mut conn, waiters, &waiters.names()).await?;
        if !turns.is_empty() {
            pause = FASTEST;
        }
        for ticket in turns {
            waiters.notify(ticket);
        }
    }
}
