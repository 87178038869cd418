//! The lock is lost while the command runs.

use std::io::{Write as _, pipe};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Group, Running, Site, block_on, is_alive, wait_until};

/// Starts a script under a lock with a short ttl, waits for its `pid` file, and gives the lock to another.
fn rob(site: &Site, grace: &str, script: &str) -> (Running, Group) {
    let args = ["run", "--ttl", "3s", "--grace", grace, "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&args));
    let group = Group::of(&site.wait_for_file("pid"));
    take_away(site);
    (run, group)
}

/// Gives the lock `a` to another.
pub(crate) fn take_away(site: &Site) {
    block_on(async {
        let locks = site.locks().await;
        assert_eq!(locks.force_release("a").await.unwrap(), 1);
        let thief = locks.lock("a").wait(Duration::from_secs(1)).await.unwrap();
        thief.release().await.unwrap();
    });
}

#[test]
fn the_command_gets_term() {
    let site = Site::new();
    let script =
        "exec 2>&-; trap 'echo got TERM > got; exit 3' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let (run, group) = rob(&site, "10s", script);
    let begun = Instant::now();
    run.finish().complains(76, "lost the lock \"a\": the lock server says that another has it");
    assert!(begun.elapsed() < Duration::from_secs(5), "the grace is not waited for: {:?}", begun.elapsed());
    assert_eq!(site.read("got"), "got TERM");
    assert!(!is_alive(group.0));
}

/// A pager that waits, a collector of logs that hangs, a terminal after Ctrl-S.
#[test]
fn a_reader_of_messages_that_does_not_read_lets_no_command_go_on() {
    let site = Site::new();
    let (_reader, mut full) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while matches!(full.write(&[b'x'; 4096]), Ok(1..)) {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let script =
        "exec 2>&-; trap 'echo got TERM > got; exit 3' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let args = ["run", "--ttl", "3s", "--grace", "10s", "a", "--", "sh", "-c", script];
    let run = Running::start(site.lockwell(&args).stderr(full));
    let group = Group::of(&site.wait_for_file("pid"));
    take_away(&site);
    assert_eq!(run.finish().status, 76);
    assert_eq!(site.read("got"), "got TERM");
    assert!(!is_alive(group.0));
}

/// Nobody else works before the command has ended.
#[test]
fn a_command_that_is_ended_by_max_hold_holds_the_lock_until_its_end() {
    let site = Site::new();
    let script =
        "exec 2>&-; trap 'sleep 1; echo > over; exit' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let args = ["run", "--max-hold", "500ms", "--grace", "20s", "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&args));
    let _group = Group::of(&site.wait_for_file("pid"));
    let next = site.finish(&["run", "--wait", "15s", "a", "--", "test", "-e", "over"]);
    assert_eq!(next.status, 0, "{next:?}");
    run.finish().complains(76, "--max-hold");
}

/// A service manager stops the leader while the lock server is away.
#[test]
fn a_term_while_the_command_is_being_ended_ends_the_campaign() {
    let site = Site::new();
    let script =
        "exec 2>&-; trap 'echo > ending; sleep 1; exit' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let args = ["lead", "--ttl", "3s", "--grace", "10s", "a", "--", "sh", "-c", script];
    let lead = Running::start(&mut site.lockwell(&args));
    let _group = Group::of(&site.wait_for_file("pid"));
    take_away(&site);
    site.wait_for_file("ending");
    lead.signal(Signal::TERM);
    assert_eq!(lead.finish().status, 143);
}

#[test]
fn what_ignores_term_gets_kill_after_the_grace() {
    let site = Site::new();
    let script = "exec 2>&-; trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let (run, group) = rob(&site, "400ms", script);
    let begun = Instant::now();
    run.finish().complains(76, "KILL after 400ms");
    assert!(begun.elapsed() > Duration::from_millis(350), "{:?}", begun.elapsed());
    wait_until("the end of the command", || !is_alive(group.0));
}

/// Service managers send TERM to lockwell. The lock must be freed before they send KILL to it.
#[test]
fn what_ignores_a_term_that_is_passed_on_gets_kill_after_the_grace() {
    let site = Site::new();
    let script = "exec 2>&-; trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    let run = Running::start(&mut site.lockwell(&["run", "--grace", "400ms", "a", "--", "sh", "-c", script]));
    let group = Group::of(&site.wait_for_file("pid"));
    let begun = Instant::now();
    run.signal(Signal::TERM);
    let run = run.finish();
    assert!(run.status == 137 && run.err.contains("400ms after TERM"), "{run:?}");
    assert!(begun.elapsed() > Duration::from_millis(350), "{:?}", begun.elapsed());
    wait_until("the end of the command", || !is_alive(group.0));
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
}

#[test]
fn what_the_command_has_started_is_ended_too() {
    let site = Site::new();
    let stubborn = "trap \"\" TERM; echo $$ > grandchild; while :; do sleep 0.02; done";
    let script = format!(
        "exec 2>&-; sh -c '{stubborn}' & while [ ! -s grandchild ]; do sleep 0.02; done; echo $$ > pid; wait"
    );
    let (run, _group) = rob(&site, "400ms", &script);
    run.finish().complains(76, "lost the lock");
    let grandchild = Group::of(&site.read("grandchild"));
    wait_until("the end of the grandchild", || !is_alive(grandchild.0));
}

#[test]
fn a_command_that_ends_before_the_loss_is_noticed_was_not_under_the_lock() {
    let site = Site::new();
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done";
    let args = ["run", "--ttl", "60s", "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&args));
    let _group = Group::of(&site.wait_for_file("pid"));
    block_on(async { site.locks().await.force_release("a").await.unwrap() });
    std::fs::write(site.path("go"), "").unwrap();
    run.finish().complains(76, "was lost while the command ran");
}

#[test]
fn a_lock_that_ended_during_a_stop_ends_the_command() {
    let site = Site::new();
    let script = "echo $$ > pid; exec sleep 60";
    let args = ["run", "--ttl", "2s", "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&args));
    let group = Group::of(&site.wait_for_file("pid"));
    run.signal(Signal::TSTP);
    let next = site.finish(&["run", "--wait", "10s", "a", "--", "true"]);
    assert_eq!(next.status, 0, "{next:?}");
    // A stop, and not only a busy machine.
    std::thread::sleep(Duration::from_secs(1));
    run.signal(Signal::CONT);
    run.finish().complains(76, "its lease ran out before it could be renewed: this process was stopped for ");
    assert!(!is_alive(group.0));
}
