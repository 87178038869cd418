//! How the waiters of this process learn that it is their turn.
//!
//! One task per process and database, on one connection, whatever the number of locks and waiters. Where the database
//! can push, the task listens. Where it cannot, it asks for all names at once, often while locks are changing hands and
//! rarely while nothing happens. Behind both stands a timer of each waiter, so a lost word costs time, not the lock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockcore::Moment;
use lockcore::seats::Seats;
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
    seats: Arc<Seats>,
    task: Mutex<Option<(JoinHandle<()>, watch::Receiver<bool>)>>,
}

impl<D: Dialect> Wake<D> {
    pub(crate) fn new(dialect: Arc<D>, seats: Arc<Seats>) -> Self {
        Self { dialect, seats, task: Mutex::new(None) }
    }

    /// Makes sure that the task runs, and waits until it has subscribed. A waiter calls this before it queues, so that
    /// no word can be sent before somebody listens.
    pub(crate) async fn ready(&self) {
        let mut subscribed = {
            let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            match &*task {
                Some((handle, subscribed)) if !handle.is_finished() => subscribed.clone(),
                _ => {
                    let (tell, subscribed) = watch::channel(false);
                    let (dialect, seats) = (Arc::clone(&self.dialect), Arc::clone(&self.seats));
                    let handle = tokio::spawn(async move { attend(&*dialect, &seats, &tell).await });
                    *task = Some((handle, subscribed.clone()));
                    subscribed
                }
            }
        };
        // Without a subscription the waiter's own timer must do.
        drop(tokio::time::timeout(SUBSCRIBE, subscribed.wait_for(|ready| *ready)).await);
    }
}

async fn attend<D: Dialect>(dialect: &D, seats: &Seats, tell: &watch::Sender<bool>) {
    let mut backoff = Duration::from_millis(20);
    loop {
        let began = Moment::now();
        let outcome = match dialect.listen(seats.client).await {
            Ok(Some(ear)) => {
                tell.send_replace(true);
                // Words between the last connection and this one are lost.
                seats.wake_all();
                listen::<D>(ear, seats).await
            }
            Ok(None) => {
                tell.send_replace(true);
                poll(dialect, seats).await
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => return,
            Err(error) => tracing::info!(%error, "no wake-ups from the database; it is tried again"),
        }
        if Moment::now().since(began) > Duration::from_secs(5) {
            backoff = Duration::from_millis(20);
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(Duration::from_secs(2));
    }
}

/// Listens until nobody waits any more.
async fn listen<D: Dialect>(mut ear: D::Ear, seats: &Seats) -> sqlx::Result<()> {
    loop {
        tokio::select! {
            heard = D::hear(&mut ear) => match heard? {
                Some(ticket) => seats.wake(ticket),
                None => seats.wake_all(),
            },
            () = tokio::time::sleep(LINGER) => if seats.is_empty() {
                return Ok(());
            },
        }
    }
}

/// Asks whose turn it is until nobody waits any more.
async fn poll<D: Dialect>(dialect: &D, seats: &Seats) -> sqlx::Result<()> {
    let mut conn = dialect.connect().await?;
    let (mut pause, mut seen, mut looked) = (FASTEST, None, Moment::now());
    loop {
        if seats.is_empty() {
            let next = tokio::time::timeout(LINGER, seats.taken.notified()).await;
            if next.is_err() && seats.is_empty() {
                return Ok(());
            }
            pause = FASTEST;
            continue;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(SLOWEST);
        let version = dialect.version(&mut conn).await?;
        if version.is_some() && version == seen && looked.after(LOOK_ANYWAY) > Moment::now() {
            continue;
        }
        seen = version;
        looked = Moment::now();
        let turns = dialect.turns(&mut conn, seats, &seats.names()).await?;
        if !turns.is_empty() {
            pause = FASTEST;
        }
        for ticket in turns {
            seats.wake(ticket);
        }
    }
}
