//! Looks at and signals a process together with all its descendants.
//!
//! Process groups do not do: each Postgres backend is a session of its own.

use std::{
    collections::HashSet,
    fs, thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::Error;

/// How long the kernel gets to stop or end processes. Only one that waits for a disk takes long.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One line of `/proc/*/stat`, as far as we need it.
#[derive(Clone, Copy)]
struct Stat {
    state: u8,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in brackets and can hold anything, brackets and blanks too.
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some(Stat { state, parent: fields.next()?.parse().ok()? })
}

/// True if the process exists and still runs code. A zombie does not.
pub(crate) fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, b'Z' | b'X'))
}

fn stopped(pid: u32) -> bool {
    stat(pid).is_none_or(|stat| matches!(stat.state, b'T' | b't' | b'Z' | b'X'))
}

/// The process and its descendants, parents before their children.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| pid));
        next += 1;
    }
    found
}

/// Sends a signal. A process that has gone in the meantime is no error.
pub(crate) fn signal(pid: u32, signal: Signal) -> Result<(), Error> {
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Err(Error::State(format!("{pid} is not a process id")));
    };
    match kill_process(target, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(Error::io(format!("signal to process {pid}"))(errno.into())),
    }
}

/// Stops the whole tree and returns it. Nothing in it runs any more when this returns.
pub(crate) fn stop(root: u32) -> Result<Vec<u32>, Error> {
    let mut seen = HashSet::new();
    loop {
        let tree = tree(root);
        // A stopped process cannot fork, so when a pass finds no new process, all are stopped.
        let fresh: Vec<u32> = tree.iter().copied().filter(|pid| seen.insert(*pid)).collect();
        if fresh.is_empty() {
            return Ok(tree);
        }
        for pid in &fresh {
            signal(*pid, Signal::STOP)?;
        }
        wait_until("stop", || fresh.iter().all(|pid| stopped(*pid)))?;
    }
}

/// Lets a stopped tree go on.
pub(crate) fn resume(root: u32) -> Result<(), Error> {
    // Children first: a parent that wakes before them can take them for stuck.
    tree(root).into_iter().rev().try_for_each(|pid| signal(pid, Signal::CONT))
}

/// Kills a process with all its descendants, and waits until nothing of them runs.
pub fn kill(root: u32) -> Result<(), Error> {
    // Stopped first, so that no new child escapes between the listing and the signal.
    let tree = stop(root)?;
    for pid in &tree {
        signal(*pid, Signal::KILL)?;
    }
    wait_until("end", || !tree.iter().any(|pid| alive(*pid)))
}

fn wait_until(what: &str, done: impl Fn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        if Instant::now() > deadline {
            return Err(Error::State(format!("the server's processes did not {what} within {TIMEOUT:?}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
