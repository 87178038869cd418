//! All watches of a connection, on one stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use lockwell_core::backend::lock;
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
    /// The revision at which the server began the first of two watches, when it has.
    first: Option<i64>,
    /// One of two was cancelled, since it is not needed.
    is_single: bool,
    begun: Option<oneshot::Sender<Begun>>,
    event: oneshot::Sender<()>,
}

struct Begun {
    revision: i64,
    is_single: bool,
}

/// A watch, which ends when this is dropped.
///
/// etcd tells a watch that begins at an earlier revision nothing until it has caught up, which it does every
/// 100 ms: long where a lock is passed on. One that begins at the present revision is told at once. But in
/// etcd 3.4 and other releases it counts as an earlier one if something is written while the server makes it,
/// which happens to a few in a hundred under load. So it is made twice, with numbers that differ in the last
/// bit, and the first event of either counts.
///
/// The server makes one after the other, and names the revision that it read before. If both name the same
/// one, nothing was written while it made the first, and the second is cancelled.
pub(crate) struct Watch {
    watches: Arc<Watches>,
    id: i64,
    begun: oneshot::Receiver<Begun>,
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
        let waiter = Waiter { first: None, is_single: false, begun: Some(tell_begun), event: tell_event };
        let id = self.begin(watch, waiter);
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
        if let Some(waiting) = &mut *lock(&live.waiting) {
            waiting.insert(id, waiter);
        }
        if watch.start_revision == PRESENT {
            live.send(WatchWish::Create(WatchCreate { id: id | SECOND, ..watch.clone() }));
        }
        live.send(WatchWish::Create(WatchCreate { id, ..watch }));
        id
    }

    fn lock(&self) -> MutexGuard<'_, Option<Live>> {
        lock(&self.live)
    }
}

impl Watch {
    pub(super) fn is_of(&self, watches: &Arc<Watches>) -> bool {
        Arc::ptr_eq(&self.watches, watches)
    }

    /// The revision after which all changes are told; `None` if the watch has ended, or is told of a change
    /// before it is told where it begins: [`event`](Self::event) knows which.
    pub(crate) async fn begun(&mut self) -> Option<i64> {
        let Begun { revision, is_single } = (&mut self.begun).await.ok()?;
        if is_single && let Some(live) = &*self.watches.lock() {
            live.send(WatchWish::Cancel(WatchCancel { id: self.id }));
        }
        Some(revision)
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
            if let Some(waiting) = &mut *lock(&live.waiting) {
                waiting.remove(&self.id);
            }
            for id in [self.id | SECOND, self.id] {
                live.send(WatchWish::Cancel(WatchCancel { id }));
            }
        }
    }
}

/// Passes an answer of the server to whom it concerns.
fn tell(waiting: &mut HashMap<i64, Waiter>, reply: &WatchReply) {
    let id = reply.id & !SECOND;
    if reply.canceled {
        if reply.id < 0 {
            // A server that refuses a watch may not say which. All look again then.
            waiting.clear();
        } else if waiting.get(&id).is_some_and(|waiter| !waiter.is_single || reply.id != id) {
            waiting.remove(&id);
        }
    } else if !reply.events.is_empty() {
        if let Some(waiter) = waiting.remove(&id) {
            // It may just have stopped waiting.
            waiter.event.send(()).unwrap_or_default();
        }
    } else if reply.created
        && let Some(waiter) = waiting.get_mut(&id)
    {
        // Without a header, nothing is known.
        let revision = reply.header.unwrap_or_default().revision;
        if reply.id != id {
            waiter.first = Some(revision);
        } else if let Some(begun) = waiter.begun.take() {
            waiter.is_single = revision > 0 && waiter.first == Some(revision);
            drop(begun.send(Begun { revision, is_single: waiter.is_single }));
        }
    }
}

impl Live {
    fn open(line: Line, last: i64) -> Self {
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (for_answers, for_end) = (Arc::clone(&waiting), Arc::clone(&waiting));
        let answer = move |reply: WatchReply| {
            if let Some(waiting) = &mut *lock(&for_answers) {
                tell(waiting, &reply);
            }
        };
        let end = move |_| drop(lock(&for_end).take());
        let duplex = Duplex::open(line, "/etcdserverpb.Watch/Watch", answer, end);
        Self { duplex, waiting, last }
    }

    fn is_over(&self) -> bool {
        lock(&self.waiting).is_none()
    }

    fn send(&self, wish: WatchWish) {
        self.duplex.send(WatchRequest { wish: Some(wish) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Event, Header};

    const ID: i64 = 2;

    fn created(id: i64, revision: i64) -> WatchReply {
        let header = Some(Header { revision, ..Default::default() });
        WatchReply { header, id, created: true, ..Default::default() }
    }

    /// What a watch hears of such answers: where it begins, whether it is single, and whether there was an
    /// event.
    fn heard(answers: &[WatchReply]) -> (Option<(i64, bool)>, bool) {
        let (tell_begun, mut begun) = oneshot::channel();
        let (tell_event, mut event) = oneshot::channel();
        let waiter = Waiter { first: None, is_single: false, begun: Some(tell_begun), event: tell_event };
        let mut waiting = HashMap::from([(ID, waiter)]);
        for answer in answers {
            tell(&mut waiting, answer);
        }
        let begun = begun.try_recv().ok().map(|it| (it.revision, it.is_single));
        (begun, event.try_recv().is_ok())
    }

    #[test]
    fn what_the_two_watches_are_told_counts_once() {
        let event = |id| WatchReply { id, events: vec![Event {}], ..Default::default() };
        let cancelled = |id| WatchReply { id, canceled: true, ..Default::default() };
        let (first, second) = (ID | SECOND, ID);
        // Something was written in between.
        assert_eq!(heard(&[created(first, 4), created(second, 5)]), (Some((5, false)), false));
        assert_eq!(heard(&[created(first, 4), created(second, 5), event(first)]), (Some((5, false)), true));
        assert_eq!(heard(&[created(first, 4), created(second, 5), event(second)]), (Some((5, false)), true));
        // The event may overtake the answer.
        assert_eq!(heard(&[created(first, 4), event(first), created(second, 5)]), (None, true));
        // Nothing was.
        let single = [created(first, 4), created(second, 4), cancelled(second), event(first)];
        assert_eq!(heard(&single), (Some((4, true)), true));
        // The server ends one.
        assert!(!heard(&[created(first, 4), created(second, 4), cancelled(first), event(first)]).1);
        assert!(!heard(&[created(first, 4), created(second, 5), cancelled(second), event(first)]).1);
        // Without headers nothing is known.
        assert_eq!(heard(&[created(first, 0), created(second, 0)]), (Some((0, false)), false));
    }
}
