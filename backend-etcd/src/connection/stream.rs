//! A stream of requests with its stream of answers.

use futures_util::stream;
use lockwell_core::backend::wake_tasks;
use prost::Message;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::AbortHandle;
use tonic::Status;

use super::line::Line;

/// Both directions of one stream. A task opens it and reads the answers.
pub(super) struct Duplex<Q> {
    requests: mpsc::UnboundedSender<Q>,
    reading: AbortHandle,
}

impl<Q: Message + Send + Sync + 'static> Duplex<Q> {
    /// `answer` is called with each answer, and `end` with the reason why there are no more.
    pub(super) fn open<A: Message + Default + Send + Sync + 'static>(
        line: Line,
        path: &'static str,
        answer: impl Fn(A) + Send + 'static,
        end: impl FnOnce(Status) + Send + 'static,
    ) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let reading = tokio::spawn(async move {
            let status = read(line, path, queue, answer).await;
            wake_tasks(|| end(status));
        });
        Self { requests, reading: reading.abort_handle() }
    }

    /// The task has a reader for as long as the stream lives; what is sent later is not answered.
    pub(super) fn send(&self, request: Q) {
        drop(self.requests.send(request));
    }
}

async fn read<Q, A>(line: Line, path: &'static str, queue: UnboundedReceiver<Q>, answer: impl Fn(A)) -> Status
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let next = |mut queue: UnboundedReceiver<Q>| async move { queue.recv().await.map(|it| (it, queue)) };
    let mut answers = match line.open(path, stream::unfold(queue, next)).await {
        Ok(answers) => answers,
        Err(status) => return status,
    };
    loop {
        match answers.message().await {
            // The stream is shared.
            Ok(Some(next)) => wake_tasks(|| answer(next)),
            Ok(None) => return Status::unavailable("the server has ended the stream"),
            Err(status) => return status,
        }
    }
}

impl<Q> Drop for Duplex<Q> {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
