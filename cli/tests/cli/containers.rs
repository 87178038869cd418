//! lockwell as the first process of a container, and its helpers.

use crate::support::{Site, finish, is_alive, lockwell, pid_of, wait_until};

/// Orphans of the command are given to process 1. It must collect them, or they stay as zombies.
#[test]
#[cfg(target_os = "linux")]
fn process_1_collects_orphans() {
    let site = Site::new();
    // Orphans that end at once, and one that the command waits for.
    let script = "for n in 1 2 3; do sh -c 'sleep 0.1 & exit'; done; sleep 1; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l; exit 7";
    let program = env!("CARGO_BIN_EXE_lockwell");
    let mut command = std::process::Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", program, "run", "--url", &site.url()]);
    command.args(["a", "--", "sh", "-c", script]).env_remove("LOCKWELL_HELD");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let run = finish(&mut command);
    if run.status == 1 && run.err.contains("unshare") {
        testbed::not_run("process 1", &run.err);
        return;
    }
    assert_eq!((run.out.trim(), run.status), ("0", 7), "{run:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn the_helpers_have_names() {
    let site = Site::new();
    let holder = site.holder("a", &[]);
    let names = || {
        let children = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = crate::support::stat(pid_of(pid));
            (stat.get(1)? == &holder.pid().as_raw_nonzero().to_string())
                .then(|| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default())
        });
        children.collect::<Vec<_>>()
    };
    wait_until("the name of the watcher", || names().iter().any(|name| name.trim() == "lockwell-watch"));
    assert!(!names().iter().any(|name| name.trim() == "exe"), "{:?}", names());
    assert!(is_alive(holder.pid()));
    site.end(holder);
    drop(lockwell(&[]));
}
