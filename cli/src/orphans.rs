//! The duty of process 1, which the first process of a container is: it collects processes whose parents have
//! ended.

use std::fs;
use std::io;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Collects orphans, if this is process 1.
pub(crate) struct Orphans(Option<Signal>);

impl Orphans {
    pub(crate) fn new() -> io::Result<Self> {
        let is_first = getpid().as_raw_nonzero().get() == 1;
        Ok(Self(if is_first { Some(signal(SignalKind::child())?) } else { None }))
    }

    /// Collects orphans as they end, for ever. `own` are the processes that others wait for.
    ///
    /// # Cancel safety
    /// Cancel safe: an orphan that was not collected is collected with the next one.
    pub(crate) async fn collect(&mut self, own: &[Pid]) {
        let Some(signals) = &mut self.0 else { return std::future::pending().await };
        while signals.recv().await.is_some() {
            for pid in ended().into_iter().filter(|pid| !own.contains(pid)) {
                // Nobody else waits for it. An error says that it is gone.
                let _collected = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }
}

/// The children of this process that have ended.
fn ended() -> Vec<Pid> {
    let me = getpid().as_raw_nonzero().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let one = |entry: io::Result<fs::DirEntry>| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        is_ended_child(&stat, &me).then_some(pid)
    };
    processes.filter_map(one).collect()
}

/// Whether this text of `/proc/PID/stat` is of a child that has ended. The name before the state may contain
/// anything.
fn is_ended_child(stat: &str, parent: &str) -> bool {
    let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.next() == Some("Z") && words.next() == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_children_that_have_ended_are_collected() {
        assert!(is_ended_child("7 (a) b) Z 1 7 7", "1"));
        assert!(!is_ended_child("7 (a) Z 12 7 7", "1"));
        assert!(!is_ended_child("7 (a) S 1 7 7", "1"));
        assert!(!is_ended_child("", "1"));
    }
}
