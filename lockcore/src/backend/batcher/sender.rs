//! A sender: what sends the requests of a key, as a task or driven by a caller.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::entry::Entry;
use super::flight::Sending;
use super::queues::Step;
use super::service::Service;
use super::shared::Shared;
use super::tries;
use crate::backend::batcher_sync::{self, lock};
use crate::{Error, ErrorKind};

/// Sends batches of a key, one after the other, until none of its requests waits.
struct Sender<S: Service> {
    shared: Arc<Shared<S>>,
    key: S::Key,
    /// What it sends at this moment.
    batch: Vec<Arc<Entry<S>>>,
    /// It waits for the end of a pause.
    pauses: bool,
    has_ended: bool,
}

/// The queues count it already.
fn sender<S: Service>(shared: &Arc<Shared<S>>, key: &S::Key) -> Sender<S> {
    Sender {
        shared: Arc::clone(shared),
        key: key.clone(),
        batch: Vec::new(),
        pauses: false,
        has_ended: false,
    }
}

/// Starts one as a task. Beside another sender it first lets the callers run that are ready: they share its
/// call. A runtime with several threads would run the new task before them, and each of them would then wait
/// for the end of a call.
pub(super) fn start<S: Service>(shared: &Arc<Shared<S>>, key: &S::Key, beside: bool) {
    let sender = sender(shared, key);
    spawn(shared, async move {
        if beside {
            tokio::task::yield_now().await;
        }
        sender.run().await;
    });
}

/// One for a caller that drives it.
pub(super) fn sending<S: Service>(shared: &Arc<Shared<S>>, key: &S::Key) -> Sending {
    Box::pin(sender(shared, key).run())
}

/// Gives a sender to a task.
pub(super) fn spawn<S: Service>(shared: &Shared<S>, sending: impl Future<Output = ()> + Send + 'static) {
    batcher_sync::spawn(shared.runtime.as_ref(), sending);
}

impl<S: Service> Sender<S> {
    async fn run(mut self) {
        loop {
            let shared = &self.shared;
            let step =
                lock(&shared.queues).step(&self.key, &shared.service, shared.bounds, shared.clock.now());
            match step {
                Step::Send(batch) => self.send(batch).await,
                Step::Pause(until, came) => {
                    self.pauses = true;
                    tokio::select! {
                        () = self.shared.clock.sleep_until(until) => (),
                        () = came.notified() => (),
                    }
                    self.end_pause();
                }
                Step::End => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    fn end_pause(&mut self) {
        if std::mem::take(&mut self.pauses) {
            lock(&self.shared.queues).end_pause(&self.key);
        }
    }

    async fn send(&mut self, batch: Vec<Arc<Entry<S>>>) {
        self.batch.clone_from(&batch);
        let is_one = batch.len() == 1;
        let sent = AssertUnwindSafe(tries::run(&self.shared, batch)).catch_unwind().await;
        if sent.is_err() {
            let panicked = || Error::new(ErrorKind::Internal, "the backend has panicked");
            self.batch.iter().for_each(|entry| entry.settle(Err(panicked())));
        }
        self.batch.clear();
        if !is_one {
            // Those that were answered often ask again at once. When they have run, their requests share a
            // call.
            tokio::task::yield_now().await;
        }
    }
}

impl<S: Service> Drop for Sender<S> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Its runtime has ended.
        for entry in &self.batch {
            entry.give_up();
        }
        self.end_pause();
        lock(&self.shared.queues).leave(&self.key);
    }
}
