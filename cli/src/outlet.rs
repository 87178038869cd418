//! Lines for a reader that may be slow, or stopped.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lockwell::backend::lock;
use tokio::sync::Notify;

/// How many lines wait for a reader. Lines that come after them are refused.
pub(crate) const LIMIT: usize = 1000;

/// The pause after a write for which a pipe that does not block had no room.
const PAUSE: Duration = Duration::from_millis(10);

/// Where lines go out. A thread of its own writes them, since a pipe that is full blocks its writer, and
/// whoever holds a lock must not be blocked by its reader.
#[derive(Debug)]
pub(crate) struct Outlet(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Told when the reader is gone.
    closed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// Whether a line is being written.
    writing: bool,
    closed: bool,
}

impl Outlet {
    pub(crate) fn start(to: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        // The thread ends with the process.
        thread::Builder::new().name("lockwell-outlet".to_owned()).spawn(move || writer.write_to(to))?;
        Ok(Self(shared))
    }

    /// Puts a line into the queue. False: it is full, or the reader is gone.
    pub(crate) fn send(&self, line: impl Into<Vec<u8>>) -> bool {
        self.send_if(line, |queue| queue.lines.len() < LIMIT)
    }

    /// Puts a line into the queue, also into a full one.
    pub(crate) fn send_last(&self, line: impl Into<Vec<u8>>) {
        self.send_if(line, |_| true);
    }

    fn send_if(&self, line: impl Into<Vec<u8>>, has_room: impl FnOnce(&Queue) -> bool) -> bool {
        let mut queue = self.0.lock();
        let takes = !queue.closed && has_room(&queue);
        if takes {
            queue.lines.push_back(line.into());
            self.0.changed.notify_all();
        }
        takes
    }

    /// Resolves when the reader is gone. That is noticed by a line that cannot be written.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn closed(&self) {
        loop {
            let told = self.0.closed.notified();
            if self.0.lock().closed {
                return;
            }
            told.await;
        }
    }

    /// Blocks until all lines are written, for this time at most.
    pub(crate) fn drain(&self, limit: Duration) {
        let under_way = |queue: &mut Queue| !queue.closed && (queue.writing || !queue.lines.is_empty());
        drop(self.0.changed.wait_timeout_while(self.0.lock(), limit, under_way));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn write_to(&self, mut to: impl Write) {
        loop {
            let line = {
                let idle = |queue: &mut Queue| queue.lines.is_empty();
                let waited = self.changed.wait_while(self.lock(), idle);
                let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
                queue.writing = true;
                queue.lines.pop_front().unwrap_or_default()
            };
            let written = write_all(&mut to, &line);
            let mut queue = self.lock();
            queue.writing = false;
            queue.closed = written.is_err();
            self.changed.notify_all();
            if written.is_err() {
                queue.lines.clear();
                drop(queue);
                self.closed.notify_waiters();
                return;
            }
        }
    }
}

/// The parent may have given us an output that does not block.
fn write_all(to: &mut impl Write, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match to.write(line) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(many) => line = &line[many..],
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, pipe};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reader_that_does_not_read_blocks_nobody() {
        let (read, write) = pipe().unwrap();
        let outlet = Outlet::start(write).unwrap();
        let line = "x".repeat(999) + "\n";
        let begun = Instant::now();
        // More than the pipe and the queue take together.
        let taken = (0..20 * LIMIT).take_while(|_| outlet.send(line.clone())).count();
        assert!((LIMIT..20 * LIMIT).contains(&taken), "{taken}");
        outlet.send_last("last\n");
        outlet.drain(Duration::from_millis(50));
        assert!(begun.elapsed() < Duration::from_secs(10));
        let mut lines = BufReader::new(read).lines().map(Result::unwrap);
        let (mut seen, mut last) = (0, String::new());
        while last != "last" {
            (seen, last) = (seen + 1, lines.next().unwrap());
        }
        assert_eq!(seen, taken + 1, "in order, and none is lost");
        outlet.drain(Duration::from_mins(1));
        assert!(outlet.send("more\n"));
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_noticed() {
        let (read, write) = pipe().unwrap();
        let outlet = Outlet::start(write).unwrap();
        drop(read);
        assert!(outlet.send("a\n"));
        outlet.closed().await;
        assert!(!outlet.send("b\n"));
        outlet.send_last("c\n");
        outlet.drain(Duration::from_mins(1));
    }

    #[test]
    fn an_output_that_does_not_block_gets_whole_lines() {
        let (mut read, write) = pipe().unwrap();
        rustix::io::ioctl_fionbio(&write, true).unwrap();
        let outlet = Outlet::start(write).unwrap();
        for _ in 0..100 {
            assert!(outlet.send("y".repeat(4095) + "\n"));
        }
        let mut text = vec![0; 4096 * 100];
        read.read_exact(&mut text).unwrap();
        assert!(text.chunks(4096).all(|line| line.ends_with(b"yy\n")));
    }
}
