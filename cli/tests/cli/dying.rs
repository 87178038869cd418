//! lockwell is killed while its command runs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Group, Running, Site, finish, is_alive, pid_of, wait_until};

/// Waits for the process id that a script writes to this file.
fn pid(site: &Site, file: &str) -> rustix::process::Pid {
    pid_of(site.wait_for_file(file).parse().unwrap())
}

#[test]
fn the_command_dies_with_lockwell_and_so_does_what_it_has_started() {
    let site = Site::new();
    let script = "sh -c 'echo $$ > grandchild; exec sleep 60' & echo $$ > pid; wait";
    let run = Running::start(&mut site.lockwell(&["run", "--ttl", "1s", "a", "--", "sh", "-c", script]));
    let (command, grandchild) = (pid(&site, "pid"), pid(&site, "grandchild"));
    let _group = Group(command);
    run.signal(Signal::KILL);
    let killed = Instant::now();
    // At once, not with the end of the lease: while it lasts, nobody else has the lock.
    wait_until("the end of the command", || !is_alive(command));
    wait_until("the end of the grandchild", || !is_alive(grandchild));
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(900), "{took:?}");
    let next = site.finish(&["run", "--wait", "10s", "a", "--", "true"]);
    assert_eq!(next.status, 0, "{next:?}");
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
}

/// The signal at the death of the parent does it alone, too: on a terminal there is no watcher.
#[test]
fn the_command_is_bound_to_lockwell_itself() {
    let site = Site::new();
    let script = "echo $$ > pid; exec sleep 60";
    let run = Running::start(&mut site.lockwell(&["run", "a", "--", "sh", "-c", script]));
    let command = pid(&site, "pid");
    let _group = Group(command);
    let watcher = children(run.pid()).into_iter().find(|child| *child != command).expect("a watcher");
    rustix::process::kill_process(watcher, Signal::KILL).unwrap();
    wait_until("the end of the watcher", || !is_alive(watcher));
    run.signal(Signal::KILL);
    wait_until("the end of the command", || !is_alive(command));
}

fn children(parent: rustix::process::Pid) -> Vec<rustix::process::Pid> {
    let path = format!("/proc/{0}/task/{0}/children", parent.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().map(|pid| pid_of(pid.parse().unwrap())).collect()
}

#[test]
fn a_command_that_is_kept_goes_on() {
    let site = Site::new();
    let script = "echo $$ > pid; exec sleep 60";
    let args = ["run", "--ttl", "1s", "--keep-child", "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&args));
    let command = Group::of(&site.wait_for_file("pid"));
    run.signal(Signal::KILL);
    let killed = Instant::now();
    let next = site.finish(&["run", "--wait", "10s", "a", "--", "true"]);
    assert_eq!(next.status, 0, "{next:?}");
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    assert!(is_alive(command.0), "the command goes on, as the help says");
}

#[test]
fn what_a_command_left_behind_before_is_not_killed() {
    let site = Site::new();
    let script = "sleep 60 >/dev/null 2>&1 & echo $! > behind";
    let run = site.finish(&["run", "a", "--", "sh", "-c", script]);
    assert_eq!(run.status, 0, "{run:?}");
    let behind = pid(&site, "behind");
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(behind));
    rustix::process::kill_process(behind, Signal::KILL).unwrap();
}

#[test]
fn a_command_whose_lockwell_died_before_it_began_is_not_begun() {
    let site = Site::new();
    // What runs when the parent is not the one that was told: init, or whoever adopted it.
    let mut helper = site.lockwell(&["__exec", "1", "touch", "ran"]);
    if std::process::id() == 1 {
        return;
    }
    assert_eq!(crate::support::finish(&mut helper).status, 76);
    assert!(!site.path("ran").exists());
}

/// Without /proc there is no program for the helper. That is not said of the command, which is there.
#[test]
#[cfg(target_os = "linux")]
fn a_lockwell_that_cannot_start_itself_says_so() {
    if !rustix::process::geteuid().is_root() {
        return testbed::cannot_run("", "only root can hide /proc from a process");
    }
    let site = Site::new();
    let hidden = |options: &[&str]| {
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /proc && PATH=/nowhere exec \"$0\" \"$@\"";
        command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_lockwell"), "run"]);
        command.args(options).args(["a", "--", "/bin/echo", "it ran"]).env("LOCKWELL_URL", site.url());
        command.env_remove("LOCKWELL_HELD").env_remove("RUST_LOG");
        finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    hidden(&[]).complains(70, "needs /proc and /dev/null");
    // It has not kept the lock.
    let kept = hidden(&["--no-wait", "--keep-child"]);
    assert_eq!((kept.status, kept.out.trim()), (0, "it ran"), "{kept:?}");
}
