//! Signals to lockwell, with the command running and before.

use rustix::process::Signal;

use crate::support::{Group, Running, Site, block_on, is_alive, is_stopped, wait_until};

#[test]
fn signals_are_passed_on() {
    let site = Site::new();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        if is_ignored(signal) {
            // As under `nohup`: it is handed down, and lockwell and its command keep to it.
            testbed::cannot_run(name, "it is ignored here");
            continue;
        }
        let ready = format!("ready-{name}");
        let script = format!("exec 2>&-; trap 'exit 7' {name}; echo > {ready}; while :; do sleep 0.02; done");
        let run = Running::start(&mut site.lockwell(&["run", "a", "--", "sh", "-c", &script]));
        site.wait_for_file(&ready);
        run.signal(signal);
        let run = run.finish();
        assert_eq!((run.status, run.err.as_str()), (7, ""), "{name}");
    }
}

/// Whether this process was started to ignore the signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(set.trim(), 16).unwrap_or(0) & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn the_whole_group_gets_the_signal() {
    let site = Site::new();
    let script = "sh -c 'echo $$ > grandchild; exec sleep 60' & wait";
    let run = Running::start(&mut site.lockwell(&["run", "a", "--", "sh", "-c", script]));
    let grandchild = Group::of(&site.wait_for_file("grandchild"));
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status, 143);
    wait_until("the end of the grandchild", || !is_alive(grandchild.0));
}

#[test]
fn a_command_that_ignores_the_signal_goes_on_under_the_lock() {
    let site = Site::new();
    let script = "trap '' TERM; echo > ready; while [ ! -e go ]; do sleep 0.02; done";
    let mut run = Running::start(&mut site.lockwell(&["run", "a", "--", "sh", "-c", script]));
    site.wait_for_file("ready");
    run.signal(Signal::TERM);
    assert_eq!(site.finish(&["run", "--wait", "200ms", "a", "--", "true"]).status, 75);
    assert!(run.is_running());
    std::fs::write(site.path("go"), "").unwrap();
    assert_eq!(run.finish().status, 0);
}

#[test]
fn what_lockwell_ignores_the_command_ignores_too() {
    let site = Site::new();
    let mut nohup = site.lockwell(&[]);
    let script = "trap '' HUP; exec \"$0\" run a -- sh -c 'echo > ready; sleep 0.5; echo done'";
    let nohup = std::mem::replace(&mut nohup, std::process::Command::new("sh"))
        .get_envs()
        .fold(&mut nohup, |command, (name, value)| match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        })
        .args(["-c", script, env!("CARGO_BIN_EXE_lockwell")])
        .current_dir(site.path(""))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let run = Running::start(nohup);
    site.wait_for_file("ready");
    run.signal(Signal::HUP);
    let run = run.finish();
    assert_eq!((run.status, run.out.as_str()), (0, "done\n"), "{run:?}");
}

#[test]
fn a_signal_ends_the_wait_and_leaves_nothing_in_the_queue() {
    let site = Site::new();
    block_on(async {
        let locks = site.locks().await;
        let guard = locks.lock("a").await.unwrap();
        for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::USR1, 138)] {
            let run = Running::start(&mut site.lockwell(&["run", "a", "--", "touch", "ran"]));
            wait_until("a waiter", || site.waiters("a") == 1);
            run.signal(signal);
            let run = run.finish();
            assert_eq!((run.status, run.err.as_str()), (status, ""));
            assert_eq!(locks.inspect("a").await.unwrap().waiters, 0);
        }
        guard.release().await.unwrap();
        assert!(!site.path("ran").exists());
        assert!(!locks.inspect("a").await.unwrap().is_held());
    });
}

#[test]
fn a_stopped_lockwell_stops_its_command() {
    let site = Site::new();
    // One process: a shell that is about to start another one may be stopped in a state of its own.
    let script = "echo $$ > pid; exec sleep 60";
    let mut run = Running::start(&mut site.lockwell(&["run", "--ttl", "30s", "a", "--", "sh", "-c", script]));
    let command = Group::of(&site.wait_for_file("pid"));
    run.signal(Signal::TSTP);
    wait_until("both stopped", || is_stopped(run.pid()) && is_stopped(command.0));
    run.signal(Signal::CONT);
    wait_until("the command goes on", || !is_stopped(command.0));
    assert!(run.is_running());
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status, 143);
}
