//! What the end of the process waits for, though no call of Python does.

use std::sync::{Arc, Mutex};

use lockwell::backend::{PerProcess, lock};
use tokio::sync::oneshot;

static PENDING: PerProcess<Arc<Mutex<Pending>>> = PerProcess::new();

fn with<R>(act: impl FnOnce(&mut Pending) -> R) -> R {
    act(&mut lock(&PENDING.get_or_init(Arc::default)))
}

#[derive(Default)]
struct Pending {
    count: usize,
    /// Who waits for the end of all.
    waiters: Vec<oneshot::Sender<()>>,
}

/// Something that the end of the process waits for until this is dropped.
pub(crate) struct Awaited(());

impl Awaited {
    pub(crate) fn new() -> Self {
        with(|pending| pending.count += 1);
        Self(())
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        with(|pending| {
            pending.count = pending.count.saturating_sub(1);
            if pending.count == 0 {
                // It fails if the waiter is gone.
                pending.waiters.drain(..).for_each(|waiter| waiter.send(()).unwrap_or_default());
            }
        });
    }
}

/// Ends when all that there is now has been dropped, and what begins before that.
pub(crate) fn all_ended() -> impl Future<Output = ()> + Send + 'static {
    let waits = with(|pending| {
        (pending.count > 0).then(|| {
            let (waiter, waits) = oneshot::channel();
            pending.waiters.push(waiter);
            waits
        })
    });
    async move {
        if let Some(waits) = waits {
            // The sender is there until it sends.
            drop(waits.await);
        }
    }
}
