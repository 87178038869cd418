//! All watches of a connection, on one stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::line::Line;
use super::stream::Duplex;
use crate::messages::{WatchCancel, WatchCreate, WatchReply, WatchRequest, WatchWish};

pub(super) struct Watches {
    line: Line,
    live: Mutex<Option<Live>>,
}

/// Who waits for which watch; `None` when the stream has ended.
type Waiting = Arc<Mutex<Option<HashMap<i64, oneshot::Sender<()>>>>>;

struct Live {
    duplex: Duplex<WatchRequest>,
    waiting: Waiting,
    last: i64,
}

impl Watches {
    pub(super) fn new(line: Line) -> Self {
        Self { line, live: Mutex::default() }
    }

    /// True at an event. False if the watch ended without one, with its stream or because its revision was
    /// compacted: then it is unknown whether there was one.
    pub(super) async fn wait(&self, watch: WatchCreate) -> bool {
        let (sender, event) = oneshot::channel();
        let _ends = Watch { watches: self, id: self.begin(watch, sender) };
        event.await.is_ok()
    }

    fn begin(&self, watch: WatchCreate, sender: oneshot::Sender<()>) -> i64 {
        let mut live = self.lock();
        if live.as_ref().is_none_or(Live::is_over) {
            // A later watch must not have the number of an earlier one that is still to be cancelled.
            let last = live.as_ref().map_or(0, |live| live.last);
            *live = Some(Live::open(self.line.clone(), last));
        }
        let Some(live) = &mut *live else { return 0 };
        live.last += 1;
        let id = live.last;
        if let Some(waiting) = &mut *held(&live.waiting) {
            waiting.insert(id, sender);
        }
        live.send(WatchWish::Create(WatchCreate { id, ..watch }));
        id
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A watch, which ends when this is dropped.
struct Watch<'a> {
    watches: &'a Watches,
    id: i64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(live) = &*self.watches.lock() {
            if let Some(waiting) = &mut *held(&live.waiting) {
                waiting.remove(&self.id);
            }
            live.send(WatchWish::Cancel(WatchCancel { id: self.id }));
        }
    }
}

impl Live {
    fn open(line: Line, last: i64) -> Self {
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (for_answers, for_end) = (Arc::clone(&waiting), Arc::clone(&waiting));
        let answer = move |reply: WatchReply| {
            let mut waiting = held(&for_answers);
            let Some(waiting) = &mut *waiting else { return };
            if reply.canceled {
                // Without a number where the server refuses the watch. All look again then.
                waiting.remove(&reply.id);
                if reply.id < 0 {
                    waiting.clear();
                }
            } else if !reply.events.is_empty()
                && let Some(waiter) = waiting.remove(&reply.id)
            {
                // It may just have stopped waiting.
                waiter.send(()).unwrap_or_default();
            }
        };
        let end = move |_| drop(held(&for_end).take());
        let duplex = Duplex::open(line, "/etcdserverpb.Watch/Watch", answer, end);
        Self { duplex, waiting, last }
    }

    fn is_over(&self) -> bool {
        held(&self.waiting).is_none()
    }

    fn send(&self, wish: WatchWish) {
        self.duplex.send(WatchRequest { wish: Some(wish) });
    }
}
