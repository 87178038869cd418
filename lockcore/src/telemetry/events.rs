//! The stream of the events of a client's locks.

use std::fmt;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream, Fuse, Stream, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Sender, channel};

use crate::system::wake_tasks;
use crate::{FencingToken, LockName, Loss, Mode};

/// How many events are kept for streams that are behind.
const KEPT: usize = 1024;

/// An event of a lock of this client.
///
/// A hold begins with `Granted` and ends with `Released` or `Lost`, never with both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// Another claim holds the lock, and a request of this client waits for its turn.
    Waiting {
        /// The lock.
        name: LockName,
        /// How it is to be held.
        mode: Mode,
    },
    /// A request of this client has the lock.
    Granted {
        /// The lock.
        name: LockName,
        /// How it is held.
        mode: Mode,
        /// The token of this hold.
        token: FencingToken,
    },
    /// A renewal failed or is overdue: the lock is held until its deadline, but may be lost then.
    Suspect {
        /// The lock.
        name: LockName,
        /// The token of this hold.
        token: FencingToken,
    },
    /// A lock that was in doubt has been renewed.
    Recovered {
        /// The lock.
        name: LockName,
        /// The token of this hold.
        token: FencingToken,
    },
    /// The lock is lost. Another claim may hold it now.
    Lost {
        /// The lock.
        name: LockName,
        /// The token of this hold.
        token: FencingToken,
        /// Why.
        loss: Loss,
    },
    /// The holder has released the lock; the request is on its way to the server.
    Released {
        /// The lock.
        name: LockName,
        /// The token of this hold.
        token: FencingToken,
    },
    /// The reader of this stream was too slow, and has missed this number of events.
    Missed(u64),
}

impl LockEvent {
    /// The lock; none for [`Missed`](Self::Missed).
    pub fn name(&self) -> Option<&LockName> {
        match self {
            Self::Waiting { name, .. }
            | Self::Granted { name, .. }
            | Self::Suspect { name, .. }
            | Self::Recovered { name, .. }
            | Self::Lost { name, .. }
            | Self::Released { name, .. } => Some(name),
            Self::Missed(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
enum Message {
    Event(LockEvent),
    End,
}

/// Sends events to the streams of one client. It does nothing before the first stream is made.
#[derive(Debug, Default)]
pub(super) struct Announcer(OnceLock<Sender<Message>>);

impl Announcer {
    pub(super) fn announce(&self, event: impl FnOnce() -> LockEvent) {
        if let Some(sender) = self.0.get() {
            send(sender, Message::Event(event()));
        }
    }

    pub(super) fn end(&self) {
        if let Some(sender) = self.0.get() {
            send(sender, Message::End);
        }
    }

    pub(super) fn listen(&self) -> Events {
        let sender = self.0.get_or_init(|| channel(KEPT).0);
        let events = stream::unfold(sender.subscribe(), |mut receiver| async move {
            let event = match receiver.recv().await {
                Ok(Message::Event(event)) => event,
                Err(RecvError::Lagged(many)) => LockEvent::Missed(many),
                Ok(Message::End) | Err(RecvError::Closed) => return None,
            };
            Some((event, receiver))
        });
        Events(events.boxed().fuse())
    }
}

fn send(sender: &Sender<Message>, message: Message) {
    // It fails if there is no stream, which does not matter.
    wake_tasks(|| drop(sender.send(message)));
}

/// A stream of the events of a client and its clones: see [`Locks::events`](crate::Locks::events).
///
/// A reader that is more than 1,024 events behind misses the oldest, and gets [`LockEvent::Missed`] with
/// their number. Locks never wait for a reader.
///
/// The stream ends when the client has been [closed](crate::Locks::close), or its clones and guards are gone.
#[must_use = "events that nobody reads are forgotten"]
pub struct Events(Fuse<BoxStream<'static, LockEvent>>);

impl Events {
    pub(crate) fn ended() -> Self {
        Self(stream::empty().boxed().fuse())
    }

    /// Waits for the next event; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Cancel safe: an event that was not returned is returned by the next call.
    pub async fn next(&mut self) -> Option<LockEvent> {
        self.0.next().await
    }
}

impl Stream for Events {
    type Item = LockEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LockEvent>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("ended", &self.0.is_done()).finish()
    }
}
