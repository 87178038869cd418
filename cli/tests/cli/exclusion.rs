//! What the lock is for.

use std::time::{Duration, Instant};

use crate::support::{Group, Running, Site, block_on};

/// Reads a number from a file, thinks, and writes the next number back.
const COUNT: &str = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count";

#[test]
fn five_processes_count_without_losing_any() {
    let site = Site::new();
    std::fs::write(site.path("count"), "0\n").unwrap();
    let script =
        format!("for i in 1 2 3 4 5 6; do \"$LOCKWELL\" run counter -- sh -c '{COUNT}' || exit; done");
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &script]).current_dir(site.path("")).env("LOCKWELL_URL", site.url());
            Running::start(command.env("LOCKWELL", env!("CARGO_BIN_EXE_lockwell")))
        })
        .collect();
    for worker in workers {
        assert_eq!(worker.finish().status, 0);
    }
    assert_eq!(site.read("count"), "30");
}

#[test]
fn the_command_learns_name_and_token() {
    let site = Site::new();
    let token = || -> u64 {
        let run =
            site.finish(&["run", "orders/42 ü", "--", "sh", "-c", "echo \"$LOCKWELL_NAME=$LOCKWELL_TOKEN\""]);
        run.out.trim_end().strip_prefix("orders/42 ü=").unwrap().parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
}

#[test]
fn the_lock_is_renewed_for_as_long_as_the_command_runs() {
    let site = Site::new();
    let run = Running::start(&mut site.lockwell(&[
        "run",
        "--ttl",
        "1500ms",
        "a",
        "--",
        "sh",
        "-c",
        "echo started > started; sleep 4; echo ended > ended",
    ]));
    site.wait_for_file("started");
    block_on(async {
        let guard = site.locks().await.lock("a").await.unwrap();
        assert_eq!(site.read("ended"), "ended");
        guard.release().await.unwrap();
    });
    assert_eq!(run.finish().status, 0);
}

#[test]
fn what_the_command_leaves_behind_does_not_hold_the_lock() {
    let site = Site::new();
    let script = "sleep 60 >/dev/null 2>&1 & echo $$ > pid";
    let begun = Instant::now();
    let run = site.finish(&["run", "a", "--", "sh", "-c", script]);
    let left_behind = Group::of(&site.wait_for_file("pid"));
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
    drop(left_behind);
}
