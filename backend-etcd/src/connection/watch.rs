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
type Waiting = Arc<Mutex<Option<HashMap<i64, Waiter>>>>;

/// The start revision of a watch that begins at the present one.
pub(crate) const PRESENT: i64 = 0;

/// The bit by which the numbers of two equal watches differ.
const SECOND: i64 = 1;

struct Waiter {
    begun: Option<oneshot::Sender<i64>>,
    event: oneshot::Sender<()>,
}

/// A watch, which ends when this is dropped.
///
/// etcd tells of what came after an earlier revision only once in 100 ms, which is long where a lock is passed
/// on. A watch that begins at the present revision is told at once, unless something is written while etcd
/// makes it: a few in a hundred under load. So such a watch is made twice, with numbers that differ in the
/// last bit, and the first event of either counts.
pub(crate) struct Watch {
    watches: Arc<Watches>,
    id: i64,
    begun: oneshot::Receiver<i64>,
    event: oneshot::Receiver<()>,
}

struct Live {
    duplex: Duplex<WatchRequest>,
    waiting: Waiting,
    last: i64,
}

impl Watches {
    pub(super) fn new(line: Line) -> Self {
        Self { line, live: Mutex::default() }
    }

    pub(super) fn open(self: &Arc<Self>, watch: WatchCreate) -> Watch {
        let (tell_begun, begun) = oneshot::channel();
        let (tell_event, event) = oneshot::channel();
        let id = self.begin(watch, Waiter { begun: Some(tell_begun), event: tell_event });
        Watch { watches: Arc::clone(self), id, begun, event }
    }

    fn begin(&self, watch: WatchCreate, waiter: Waiter) -> i64 {
        let mut live = self.lock();
        if live.as_ref().is_none_or(Live::is_over) {
            // A later watch must not have the number of an earlier one that is still to be cancelled.
            let last = live.as_ref().map_or(0, |live| live.last);
            *live = Some(Live::open(self.line.clone(), last));
        }
        let Some(live) = &mut *live else { return 0 };
        live.last += 2;
        let id = live.last;
        if let Some(waiting) = &mut *held(&live.waiting) {
            waiting.insert(id, waiter);
        }
        if watch.start_revision == PRESENT {
            live.send(WatchWish::Create(WatchCreate { id: id | SECOND, ..watch.clone() }));
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

impl Watch {
    /// The revision after which all changes are told at once; `None` if the watch has ended.
    pub(crate) async fn begun(&mut self) -> Option<i64> {
        (&mut self.begun).await.ok()
    }

    /// True at an event. False if the watch ended without one, with its stream or because its revision was
    /// compacted: then it is unknown whether there was one.
    pub(crate) async fn event(&mut self) -> bool {
        (&mut self.event).await.is_ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(live) = &*self.watches.lock() {
            if let Some(waiting) = &mut *held(&live.waiting) {
                waiting.remove(&self.id);
            }
            for id in [self.id | SECOND, self.id] {
                live.send(WatchWish::Cancel(WatchCancel { id }));
            }
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
            let id = reply.id & !SECOND;
            if reply.canceled {
                // Without a number where the server refuses the watch. All look again then.
                waiting.remove(&id);
                if reply.id < 0 {
                    waiting.clear();
                }
            } else if !reply.events.is_empty()
                && let Some(waiter) = waiting.remove(&id)
            {
                // It may just have stopped waiting.
                waiter.event.send(()).unwrap_or_default();
            } else if reply.created
                // The other one was created before.
                && reply.id == id
                && let Some(begun) = waiting.get_mut(&id).and_then(|waiter| waiter.begun.take())
            {
                begun.send(reply.header.unwrap_or_default().revision).unwrap_or_default();
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
