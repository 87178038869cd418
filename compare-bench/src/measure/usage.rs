//! What processes need, as Linux counts it.

use std::collections::{HashMap, HashSet};

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};

/// What processes and all their descendants have needed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// The time of processors in nanoseconds, of each thread: process and thread.
    threads: HashMap<(i32, i32), u64>,
    pub(crate) memory_kib: u64,
}

impl Usage {
    /// Of these processes, and of those that descend from them. One that ends meanwhile is left out.
    pub(crate) fn of(roots: &[u32]) -> Self {
        let mut this = Self::default();
        for process in family(roots) {
            this.memory_kib += memory_kib(&process).unwrap_or(0);
            for task in process.tasks().into_iter().flatten().flatten() {
                let time = task.schedstat().map(|stat| ((task.pid, task.tid), stat.sum_exec_runtime));
                this.threads.extend(time);
            }
        }
        this
    }

    /// The time of processors since then, in nanoseconds. Threads that ended meanwhile are left out.
    pub(crate) fn nanos_since(&self, before: &Self) -> u64 {
        let spent = |(thread, now): (&(i32, i32), &u64)| {
            now.saturating_sub(before.threads.get(thread).copied().unwrap_or(0))
        };
        self.threads.iter().map(spent).sum()
    }
}

/// What is shared with others counts in part. Where that is unknown, all of it counts.
fn memory_kib(process: &Process) -> Option<u64> {
    let all = process.smaps_rollup().ok();
    let shared = all.and_then(|all| all.memory_map_rollup.0.first()?.extension.map.get("Pss").copied());
    shared.map(|bytes| bytes / 1024).or_else(|| process.status().ok()?.vmrss)
}

/// These processes and their descendants.
fn family(roots: &[u32]) -> Vec<Process> {
    let all = all_processes().into_iter().flatten().flatten();
    let mut others: Vec<(i32, Process)> =
        all.filter_map(|process| Some((process.stat().ok()?.ppid, process))).collect();
    let is_root =
        |(_, process): &mut (i32, Process)| u32::try_from(process.pid).is_ok_and(|pid| roots.contains(&pid));
    let mut found: Vec<Process> = others.extract_if(.., is_root).map(|(_, process)| process).collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).map(|process| process.pid) {
        found.extend(others.extract_if(.., |(parent, _)| *parent == pid).map(|(_, process)| process));
        next += 1;
    }
    found
}

/// How many TCP connections a process has.
pub(crate) fn connections(process: u32) -> u64 {
    let count = || {
        let process = Process::new(i32::try_from(process).ok()?).ok()?;
        let sockets = process.tcp().into_iter().chain(process.tcp6()).flatten();
        let open: HashSet<u64> =
            sockets.filter(|it| it.state == TcpState::Established).map(|it| it.inode).collect();
        let files = process.fd().ok()?.flatten();
        let is_open = |target: &FDTarget| matches!(target, FDTarget::Socket(inode) if open.contains(inode));
        u64::try_from(files.filter(|file| is_open(&file.target)).count()).ok()
    };
    count().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_is_seen_and_so_are_children() {
        let me = std::process::id();
        let before = Usage::of(&[me]);
        let began = Instant::now();
        let mut turns = 0_u64;
        while began.elapsed() < Duration::from_millis(60) {
            turns = std::hint::black_box(turns + 1);
        }
        let after = Usage::of(&[me]);
        let spent = Duration::from_nanos(after.nanos_since(&before));
        assert!(spent >= Duration::from_millis(5), "{spent:?} of 60 ms, with others on the machine");
        assert!(after.memory_kib > 100, "{}", after.memory_kib);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(family(&[me]).iter().any(|it| u32::try_from(it.pid) == Ok(child.id())));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn open_connections_are_counted() {
        let me = std::process::id();
        let before = connections(me);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        // Both ends are ours; other tests of this process may have some, too.
        assert!(connections(me) >= 2, "{before} before");
        drop((client, server));
    }
}
