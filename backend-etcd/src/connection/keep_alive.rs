//! Keep-alives of all leases on a few streams.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use lockwell_core::backend::lock;
use tokio::sync::oneshot;
use tonic::Status;

use super::line::Line;
use super::stream::Duplex;
use crate::messages::{Lease, LeaseReply};

/// A server answers the requests of a stream one after the other, and a follower asks its leader about each.
/// So a second stream carries twice as many.
const STREAMS: usize = 4;

type AnswerSender = oneshot::Sender<Result<LeaseReply, Status>>;

/// Who waits for the answers of a stream; `None` when it has ended.
type Waiting = Arc<Mutex<Option<HashMap<i64, VecDeque<AnswerSender>>>>>;

pub(super) struct KeepAlives {
    line: Line,
    streams: [Mutex<Option<Live>>; STREAMS],
}

struct Live {
    duplex: Duplex<Lease>,
    waiting: Waiting,
}

impl KeepAlives {
    pub(super) fn new(line: Line) -> Self {
        Self { line, streams: Default::default() }
    }

    pub(super) async fn ask(&self, id: i64) -> Result<LeaseReply, Status> {
        let (sender, answer) = oneshot::channel();
        self.send(id, sender);
        answer.await.unwrap_or_else(|_| Err(Status::unavailable("the stream of keep-alives has ended")))
    }

    fn send(&self, id: i64, mut sender: AnswerSender) {
        let at = usize::try_from(id.unsigned_abs()).unwrap_or_default() % STREAMS;
        let mut stream = lock(&self.streams[at]);
        if let Some(live) = &*stream {
            match live.send(id, sender) {
                Ok(()) => return,
                Err(back) => sender = back,
            }
        }
        let live = stream.insert(Live::open(self.line.clone()));
        // It cannot have ended: its task has not run, or ends it for whoever waits.
        drop(live.send(id, sender));
    }
}

impl Live {
    fn open(line: Line) -> Self {
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (for_answers, for_end) = (Arc::clone(&waiting), Arc::clone(&waiting));
        let answer = move |reply: LeaseReply| {
            let mut waiting = lock(&for_answers);
            let Some(waiting) = &mut *waiting else { return };
            if let Some(queue) = waiting.get_mut(&reply.id) {
                let first = queue.pop_front();
                if queue.is_empty() {
                    waiting.remove(&reply.id);
                }
                // Whoever asked may not wait any more.
                drop(first.map(|first| first.send(Ok(reply))));
            }
        };
        let end = move |status: Status| {
            let waiting = lock(&for_end).take();
            for waiter in waiting.into_iter().flat_map(HashMap::into_values).flatten() {
                drop(waiter.send(Err(status.clone())));
            }
        };
        let duplex = Duplex::open(line, "/etcdserverpb.Lease/LeaseKeepAlive", answer, end);
        Self { duplex, waiting }
    }

    /// Gives the sender back if the stream has ended.
    fn send(&self, id: i64, sender: AnswerSender) -> Result<(), AnswerSender> {
        let mut waiting = lock(&self.waiting);
        let Some(waiting) = &mut *waiting else { return Err(sender) };
        waiting.entry(id).or_default().push_back(sender);
        self.duplex.send(Lease { id });
        Ok(())
    }
}
