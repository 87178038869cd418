//! What the other program says, in lines on standard input.

use std::fs::File;
use std::io::{self, BufRead as _, ErrorKind, IsTerminal as _, Read as _, stdin};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::exit::Failure;
use crate::say;

/// A line that is longer is no line of ours. It is read in parts.
const LONGEST: u64 = 1024;

/// How many lines wait for us.
const AHEAD: usize = 16;

/// The pause after a read for which an input that does not block had nothing.
const PAUSE: Duration = Duration::from_millis(10);

/// What the other program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Release,
    Check,
    Progress,
    /// It says nothing any more: it has closed the input, or has ended.
    End,
}

/// The lines as they arrive.
pub(super) struct Input(Receiver<Said>);

impl Input {
    /// Reads from now on, on a thread of its own.
    pub(super) fn listen() -> Result<Self, Failure> {
        if !may_stay_open()? {
            return Err(Failure::usage(
                "standard input must be a pipe, a socket or a terminal that the other program keeps open: its end frees \
                 the lock, and it would end at once",
            ));
        }
        let (said, input) = channel(AHEAD);
        // The thread ends with the process: nothing wakes it from a read.
        thread::Builder::new().name("lockwell-input".to_owned()).spawn(move || read(&said))?;
        Ok(Self(input))
    }

    /// The next line, and `End` from the end on.
    ///
    /// # Cancel safety
    /// Cancel safe: a line that was not returned is returned by the next call.
    pub(super) async fn next(&mut self) -> Said {
        self.0.recv().await.unwrap_or(Said::End)
    }
}

/// Whether the input can be without a line for a while. A file and /dev/null end at once.
fn may_stay_open() -> io::Result<bool> {
    let kind = File::from(stdin().as_fd().try_clone_to_owned()?).metadata()?.file_type();
    Ok(kind.is_fifo() || kind.is_socket() || stdin().is_terminal())
}

fn read(said: &Sender<Said>) {
    let mut input = stdin().lock();
    let mut line = Vec::new();
    loop {
        match (&mut input).take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => (),
            // What was read of the line is kept.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => {
                tracing::info!(%error, "standard input cannot be read");
                break;
            }
        }
        let text = String::from_utf8_lossy(&line);
        let meant = match text.trim() {
            "release" => Some(Said::Release),
            "check" => Some(Said::Check),
            "progress" => Some(Said::Progress),
            "" => None,
            _ => {
                say::warning("a line on standard input is none of release, check and progress");
                None
            }
        };
        line.clear();
        // Nobody listens any more at the end of the process.
        if meant.is_some_and(|meant| said.blocking_send(meant).is_err()) {
            return;
        }
    }
}
