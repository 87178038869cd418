//! Wakes at a moment, within some tens of microseconds.
//!
//! A timer of tokio wakes up to two milliseconds late: too much for a network of one millisecond each way.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;

struct Alarm {
    due: Instant,
    waiter: oneshot::Sender<()>,
}

/// The thread that waits for all of them. Without it, as where no thread can be started, tokio waits.
static THREAD: LazyLock<Option<Sender<Alarm>>> = LazyLock::new(|| {
    let (sender, alarms) = mpsc::channel();
    let thread = thread::Builder::new().name("lockwell-proxy-alarm".to_owned());
    thread.spawn(move || run(&alarms)).ok().map(|_| sender)
});

/// Waits until this moment.
pub(super) async fn sleep_until(due: Instant) {
    let (waiter, rings) = oneshot::channel();
    let is_set = THREAD.as_ref().is_some_and(|thread| thread.send(Alarm { due, waiter }).is_ok());
    if !is_set || rings.await.is_err() {
        tokio::time::sleep_until(due.into()).await;
    }
}

fn run(alarms: &mpsc::Receiver<Alarm>) {
    let mut waiting = Waiting::default();
    loop {
        let next = match waiting.first() {
            None => alarms.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => alarms.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match next {
            Ok(alarm) => waiting.add(alarm),
            Err(RecvTimeoutError::Timeout) => waiting.ring(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The alarms that have not rung, by their moments and their order.
#[derive(Default)]
struct Waiting {
    waiters: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    last: u64,
}

impl Waiting {
    fn first(&self) -> Option<Instant> {
        self.waiters.first_key_value().map(|((due, _), _)| *due)
    }

    fn add(&mut self, Alarm { due, waiter }: Alarm) {
        self.last += 1;
        self.waiters.insert((due, self.last), waiter);
    }

    fn ring(&mut self, now: Instant) {
        while let Some(first) = self.waiters.first_entry().filter(|first| first.key().0 <= now) {
            // The connection may have ended meanwhile.
            first.remove().send(()).unwrap_or(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_wakes_at_its_moment() {
        let mut late = Duration::MAX;
        for _ in 0..200 {
            let due = Instant::now() + Duration::from_millis(1);
            sleep_until(due).await;
            let now = Instant::now();
            assert!(now >= due);
            late = late.min(now - due);
        }
        // The best of many: the machine may be busy.
        assert!(late < Duration::from_micros(500), "{late:?}");
    }

    #[tokio::test]
    async fn each_wakes_at_its_own() {
        let began = Instant::now();
        let order = std::sync::Mutex::new(Vec::new());
        let note = async |millis| {
            sleep_until(began + Duration::from_millis(millis)).await;
            order.lock().unwrap().push(millis);
        };
        tokio::join!(note(300), note(100), note(0), note(200));
        assert_eq!(order.into_inner().unwrap(), [0, 100, 200, 300]);
    }
}
