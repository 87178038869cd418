//! Keep-alives of all leases on a few streams.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use lockwell_core::backend::lock;
use tokio::sync::oneshot;
use tonic::Status;

use super::line::Line;
use super::stream::Duplex;
use crate::messages::{Lease, LeaseReply};

/// A server answers the requests of a stream one after the other, and a follower asks its leader about each:
/// a stream carries one renewal in a round trip between the two, however many were sent. So there are more
/// streams where more is under way.
const STREAMS: usize = 100;

/// How many requests are under way on each stream before there is another one.
const ON_EACH: usize = 4;

type AnswerSender = oneshot::Sender<Result<LeaseReply, Status>>;

/// Who waits for the answers of a stream; `None` when it has ended.
type Waiting = Arc<Mutex<Option<HashMap<i64, VecDeque<AnswerSender>>>>>;

pub(super) struct KeepAlives {
    line: Line,
    streams: Mutex<Vec<Live>>,
}

struct Live {
    duplex: Duplex<Lease>,
    waiting: Waiting,
}

impl KeepAlives {
    pub(super) fn new(line: Line) -> Self {
        Self { line, streams: Mutex::default() }
    }

    pub(super) async fn ask(&self, id: i64) -> Result<LeaseReply, Status> {
        let (sender, answer) = oneshot::channel();
        self.send(id, sender);
        answer.await.unwrap_or_else(|_| Err(Status::unavailable("the stream of keep-alives has ended")))
    }

    fn send(&self, id: i64, sender: AnswerSender) {
        let mut streams = lock(&self.streams);
        streams.retain(|live| live.under_way().is_some());
        let freest = streams.iter().map(Live::under_way).enumerate().min_by_key(|(_, count)| *count);
        let at = match freest {
            Some((at, count)) if count < Some(ON_EACH) || streams.len() >= STREAMS => at,
            _ => {
                streams.push(Live::open(self.line.clone()));
                streams.len() - 1
            }
        };
        streams[at].send(id, sender);
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

    /// How many requests have no answer; `None` if the stream has ended.
    fn under_way(&self) -> Option<usize> {
        lock(&self.waiting).as_ref().map(HashMap::len)
    }

    /// If the stream has ended meanwhile, the sender is dropped, and so whoever waits is told.
    fn send(&self, id: i64, sender: AnswerSender) {
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.entry(id).or_default().push_back(sender);
            self.duplex.send(Lease { id });
        }
    }
}
