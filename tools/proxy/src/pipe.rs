//! One way through the proxy: collects bytes as they come, and delivers them when they are due.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};

use crate::alarm::sleep_until;
use crate::switches::{Entry, Flow, Mode};
use crate::way::TO_SERVER;

/// The most that is read at once.
const CHUNK: u16 = 16 * 1024;

/// The most bytes that may be under way. Beyond that the sender is slowed down, as by a real network.
const UNDER_WAY: usize = 8 * 1024 * 1024;

/// How long a server has to process what came late, before the client's end of the connection is closed; and
/// then to close its own.
const LATE_CLOSE_PAUSE: Duration = Duration::from_millis(300);

/// The connection has to end abruptly.
#[derive(Debug)]
pub(super) struct Reset;

/// Bytes, or an end, that are under way, and when they are to arrive.
#[derive(Debug)]
pub(super) struct Delivery {
    due: Instant,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    Bytes(Vec<u8>),
    /// The sender has closed its side.
    End,
    /// The sender has gone.
    Reset,
}

/// What became of an attempt to deliver.
enum Attempt {
    Delivered(usize),
    Lost,
    /// The receiver takes no more at the moment, or a fault holds the bytes.
    Wait,
    /// The receiver has gone.
    Broken,
}

/// One direction of one connection.
#[derive(Debug)]
pub(super) struct Way<'a> {
    entry: &'a Entry,
    index: usize,
    line: &'a mpsc::UnboundedSender<Delivery>,
    /// The other way, on which the sender learns that the receiver has gone.
    back: &'a mpsc::UnboundedSender<Delivery>,
    room: Semaphore,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        entry: &'a Entry,
        index: usize,
        line: &'a mpsc::UnboundedSender<Delivery>,
        back: &'a mpsc::UnboundedSender<Delivery>,
    ) -> Self {
        Self { entry, index, line, back, room: Semaphore::new(UNDER_WAY) }
    }

    /// Puts on the line what the sender sends. Returns only when it has met the reply that is to be dropped.
    pub(super) async fn collect(&self, source: &mut ReadHalf<'_>) -> Reset {
        let mut buffer = vec![0; usize::from(CHUNK)];
        let mut last_due = Instant::now();
        loop {
            let Ok(room) = self.room.acquire_many(CHUNK.into()).await else { return pending().await };
            let contents = match read(source, &mut buffer).await {
                Ok(0) => Contents::End,
                Ok(length) => {
                    if !self.note_bytes(&buffer[..length]) {
                        return Reset;
                    }
                    if self.index == TO_SERVER {
                        self.entry.connection.keep(length);
                    }
                    room.forget();
                    self.room.add_permits(usize::from(CHUNK) - length);
                    Contents::Bytes(buffer[..length].to_vec())
                }
                Err(_) => Contents::Reset,
            };
            let last = !matches!(contents, Contents::Bytes(_));
            // Nothing overtakes what was sent before it while the line was longer.
            last_due = last_due.max(Instant::now() + self.entry.shared.delay());
            put(self.line, last_due, contents);
            if last {
                return pending().await;
            }
        }
    }

    fn flow(&self, mode: &Mode) -> Flow {
        self.entry.connection.flow(mode, self.index)
    }

    fn note_bytes(&self, bytes: &[u8]) -> bool {
        let Entry { shared, connection } = self.entry;
        if self.index == TO_SERVER {
            shared.on_request_bytes(connection, bytes);
            return true;
        }
        shared.on_reply_bytes(connection, bytes)
    }

    /// Delivers what is on the line. Returns when the sender's end of the conversation has arrived.
    pub(super) async fn deliver(
        &self,
        line: &mut mpsc::UnboundedReceiver<Delivery>,
        sink: &mut WriteHalf<'_>,
    ) -> Result<(), Reset> {
        let mut broken = false;
        while let Some(Delivery { due, contents }) = line.recv().await {
            if due > Instant::now() {
                sleep_until(due.into_std()).await;
            }
            match contents {
                Contents::Bytes(bytes) => {
                    if !broken && self.deliver_bytes(&bytes, sink).await.is_err() {
                        broken = true;
                        let due = Instant::now() + self.entry.shared.delay();
                        put(self.back, due, Contents::Reset);
                    }
                    if self.index == TO_SERVER {
                        self.entry.connection.let_go(bytes.len());
                    }
                    self.room.add_permits(bytes.len());
                }
                Contents::End | Contents::Reset if !self.passes().await => {}
                Contents::End | Contents::Reset if self.index == TO_SERVER && self.is_late() => {
                    return self.close_late(sink).await;
                }
                // The receiver has gone.
                Contents::End if broken => return Ok(()),
                Contents::End => return sink.shutdown().await.map_err(|_| Reset),
                Contents::Reset => return Err(Reset),
            }
        }
        pending().await
    }

    fn is_late(&self) -> bool {
        let Entry { shared, connection } = self.entry;
        shared.with_mode(|mode| connection.is_late(mode))
    }

    /// Closes a connection whose client has left while it was held back. The server has just received what
    /// the client had sent: a reset, or an early end, could prevent that it is processed.
    async fn close_late(&self, sink: &mut WriteHalf<'_>) -> Result<(), Reset> {
        sleep(LATE_CLOSE_PAUSE).await;
        sink.shutdown().await.map_err(|_| Reset)?;
        sleep(LATE_CLOSE_PAUSE).await;
        put(self.back, Instant::now(), Contents::End);
        Ok(())
    }

    async fn deliver_bytes(&self, bytes: &[u8], sink: &WriteHalf<'_>) -> Result<(), Reset> {
        let mut mode = self.entry.shared.mode();
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.attempt(rest, sink) {
                Attempt::Delivered(length) => rest = &rest[length..],
                Attempt::Lost => return Ok(()),
                Attempt::Broken => return Err(Reset),
                Attempt::Wait => {
                    // No waiting for room while bytes are held: there may be room all the time.
                    let held = self.flow(&mode.borrow_and_update()) == Flow::Hold;
                    tokio::select! {
                        // An error shows again in the attempt.
                        _ = sink.writable(), if !held => {}
                        changed = mode.changed() => if changed.is_err() { return Err(Reset) },
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the faults and writes in one step: a fault that was set before has an effect.
    fn attempt(&self, bytes: &[u8], sink: &WriteHalf<'_>) -> Attempt {
        let Entry { shared, connection } = self.entry;
        shared.with_mode(|mode| match self.flow(mode) {
            Flow::Swallow => {
                connection.lose(self.index);
                Attempt::Lost
            }
            Flow::Hold => Attempt::Wait,
            // The task is about to be ended.
            Flow::Pass if connection.must_reset(mode) => Attempt::Lost,
            Flow::Pass => match sink.try_write(bytes) {
                Ok(length) => {
                    shared.count(connection, self.index, length);
                    Attempt::Delivered(length)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Attempt::Wait,
                Err(_) => Attempt::Broken,
            },
        })
    }

    /// Waits while the way is held. False if it is a black hole, which has taken what was to pass.
    async fn passes(&self) -> bool {
        let mut mode = self.entry.shared.mode();
        let Ok(mode) = mode.wait_for(|mode| self.flow(mode) != Flow::Hold).await else { return false };
        let passes = self.flow(&mode) == Flow::Pass;
        if !passes {
            self.entry.connection.lose(self.index);
        }
        passes
    }
}

async fn read(source: &ReadHalf<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        source.readable().await?;
        match source.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

fn put(line: &mpsc::UnboundedSender<Delivery>, due: Instant, contents: Contents) {
    // Both ends live in the same task, so the other one is there.
    if line.send(Delivery { due, contents }).is_err() {
        tracing::debug!("nobody at the end of the line");
    }
}
