//! What processes need, as Linux counts it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// What processes and all their descendants have needed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// The time of processors in nanoseconds, of each thread: process and thread.
    threads: HashMap<(u32, u32), u64>,
    pub(crate) memory_kib: u64,
}

impl Usage {
    /// Of these processes, and of those that descend from them. One that ends meanwhile is left out.
    pub(crate) fn of(roots: &[u32]) -> Self {
        let mut this = Self::default();
        for process in family(roots) {
            this.memory_kib += memory_kib(process);
            let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
                if let (Some(thread), Some(nanos)) = (thread, on_processor(&task.path())) {
                    this.threads.insert((process, thread), nanos);
                }
            }
        }
        this
    }

    /// The time of processors since then, in nanoseconds. Threads that ended meanwhile are left out.
    pub(crate) fn nanos_since(&self, before: &Self) -> u64 {
        let spent = |(thread, now): (&(u32, u32), &u64)| {
            now.saturating_sub(before.threads.get(thread).copied().unwrap_or(0))
        };
        self.threads.iter().map(spent).sum()
    }
}

/// How long a thread has run, in nanoseconds.
fn on_processor(task: &Path) -> Option<u64> {
    fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// What is shared with others counts in part. Where that is unknown, all of it counts.
fn memory_kib(process: u32) -> u64 {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let field = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    field(&read("smaps_rollup"), "Pss:").or_else(|| field(&read("status"), "VmRSS:")).unwrap_or(0)
}

/// These processes and their descendants.
fn family(roots: &[u32]) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers.filter_map(|process| Some((process, parent(process)?))).collect();
    let mut found: Vec<u32> = roots.to_vec();
    let mut next = 0;
    while let Some(one) = found.get(next).copied() {
        let children = parents.iter().filter(|(process, its)| *its == one && !found.contains(process));
        let children: Vec<u32> = children.map(|(process, _)| *process).collect();
        found.extend(children);
        next += 1;
    }
    found
}

fn parent(process: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program is in brackets, and can hold anything.
    line.get(line.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()
}

/// How many TCP connections a process has.
pub(crate) fn connections(process: u32) -> u64 {
    let open: HashSet<String> =
        ["tcp", "tcp6"].into_iter().flat_map(|table| established(process, table)).collect();
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok()?.to_str().map(str::to_owned));
    let sockets =
        links.filter_map(|link| Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()));
    let count = sockets.filter(|inode| open.contains(inode)).count();
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The inodes of connections that are open, in the network of this process.
fn established(process: u32, table: &str) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
    let rows = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(3) == Some(&ESTABLISHED))
        .filter_map(|row| row.get(9).map(|it| (*it).to_owned()))
        .collect()
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
        assert!(family(&[me]).contains(&child.id()));
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
