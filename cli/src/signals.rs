//! The signals that lockwell receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Failure;

/// Signals that end a process which does nothing about them.
const ENDING: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Signals that are ignored while there is no command to pass them on to.
const PASSING: [Signal; 3] = [Signal::TSTP, Signal::CONT, Signal::WINCH];

/// The signals that arrive, from the moment of listening on.
pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Listens to all signals but those that lockwell was started to ignore, as `nohup` does with HUP: the
    /// command ignores them too, since that is handed down.
    pub(crate) fn listen() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored_by(&status);
        let handled = ENDING.into_iter().chain(PASSING).filter(|one| ignored & bit(*one) == 0);
        handled
            .map(|one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Cancel safe: a signal that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (number, stream) in &mut self.0 {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a process. Ctrl-Z does what it does to every program.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => stop_self(),
                one if ENDING.contains(&one) => return one,
                _ => (),
            }
        }
    }
}

/// Does work that a signal ends by default. The system delivers no such signal to the first process of a
/// container, so that one asks for them. Elsewhere the default is better: it also ends a process that waits
/// for a reader of its output.
pub(crate) async fn interruptible(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    if !getpid().is_init() {
        return work.await;
    }
    let mut signals = Signals::listen()?;
    tokio::select! {
        biased;
        signal = signals.next_ending() => Ok(status_of(signal)),
        ended = work => ended,
    }
}

/// Stops this process, which goes on with the next CONT.
pub(crate) fn stop_self() {
    if let Err(error) = kill_process(getpid(), Signal::STOP) {
        tracing::warn!(%error, "cannot stop");
    }
}

/// The exit status for a signal.
pub(crate) fn status_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(crate::exit::SOFTWARE)
}

/// The set of ignored signals in the text of `/proc/self/status`. Elsewhere than on Linux it is empty.
fn ignored_by(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let ignored = ignored_by("Name:\tlockwell\nSigBlk:\tffff\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert_eq!(ignored, bit(Signal::HUP) | bit(Signal::PIPE));
        assert_eq!(ignored_by(""), 0);
    }

    #[test]
    fn the_status_of_a_signal_is_that_of_a_shell() {
        assert_eq!(status_of(Signal::TERM), 143);
        assert_eq!(status_of(Signal::INT), 130);
    }
}
