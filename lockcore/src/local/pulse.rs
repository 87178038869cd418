//! Whether somebody drives the one that has the turn to claim.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::task::Waker;

use crate::system::{lock, wake_tasks};

/// The polls of one claim at the server.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<(u64, Option<Waker>)>);

impl Pulse {
    /// Counts the polls of a claim.
    pub(crate) async fn over<T>(&self, claiming: impl Future<Output = T>) -> T {
        let mut claiming = pin!(claiming);
        poll_fn(|cx| {
            let polled = claiming.as_mut().poll(cx);
            let mut polls = lock(&self.0);
            polls.0 += 1;
            if polled.is_pending() && !polls.1.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                let before = polls.1.replace(cx.waker().clone());
                // Outside of the mutex: with its last waker a task is dropped.
                drop(polls);
                drop(before);
            }
            polled
        })
        .await
    }

    pub(crate) fn polls(&self) -> u64 {
        lock(&self.0).0
    }

    /// Has the claim polled, if its runtime is driven.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.0).1.clone();
        if let Some(waker) = waker {
            wake_tasks(|| waker.wake());
        }
    }
}
