//! `run --once`: who takes over, and what is refused. `once_everywhere.rs` has the table of statuses.

use rustix::process::{Signal, kill_process, test_kill_process};

use crate::support::{Running, Site, is_alive, is_stopped, pid_of, wait_until};

fn once<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run", "--once", "2026-11-29"][..], options, &["job", "--", "sh", "-c", script]].concat()
}

#[test]
fn who_waits_takes_over_from_one_that_is_killed_and_not_from_one_that_failed() {
    let site = Site::new();
    let holds = "echo $$ > pid; exec sleep 60";
    let first = Running::start(&mut site.lockwell(&once(&["--ttl", "2s"], holds)));
    let command = pid_of(site.wait_for_file("pid").parse().unwrap());
    site.finish(&once(&["--no-wait"], "true")).complains(75, "is held by");
    let quiet = site.finish(&once(&["--no-wait", "-q", "--exit-code-held", "7"], "true"));
    assert_eq!((quiet.status, quiet.err.as_str()), (7, ""));
    first.signal(Signal::KILL);
    assert_eq!(first.finish().status, -1);
    wait_until("the end of the command", || !is_alive(command));
    assert_eq!(site.finish(&once(&["--wait", "20s"], "exit $((LOCKWELL_ATTEMPT + 4))")).status, 6);

    let held = site.holder("job", &[]);
    let runs: Vec<_> = (0..3)
        .map(|_| {
            Running::start(
                &mut site.lockwell(&once(&["--wait", "20s", "--attempts", "9"], "echo >> failed; exit 5")),
            )
        })
        .collect();
    wait_until("three that wait", || site.waiters("job") == 3);
    site.end(held);
    let mut statuses: Vec<_> = runs.into_iter().map(|run| run.finish().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [5, 75, 75]);
}

#[test]
fn one_that_is_asked_to_end_has_not_failed() {
    let site = Site::new();
    let run =
        Running::start(&mut site.lockwell(&once(&[], "trap 'exit 9' TERM; echo > started; sleep 60 & wait")));
    site.wait_for_file("started");
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status, 9);
    let next = site.finish(&once(&[], "exit $((LOCKWELL_ATTEMPT + 4))"));
    assert_eq!(next.status, 6, "{next:?}");
}

/// Whoever ends a control group ends both, and the command perhaps first.
#[test]
fn one_that_is_ended_together_with_lockwell_has_not_failed() {
    for (signal, script, status) in [
        (Signal::TERM, "trap 'exit 9' TERM; echo $$ > pid; sleep 60 & wait", 9),
        (Signal::USR1, "echo $$ > pid; exec sleep 60", 138),
    ] {
        let site = Site::new();
        let run = Running::start(&mut site.lockwell(&once(&[], script)));
        let command = pid_of(site.wait_for_file("pid").parse().unwrap());
        kill_process(command, signal).unwrap();
        wait_until("lockwell to have seen the end", || test_kill_process(command).is_err());
        run.signal(signal);
        assert_eq!(run.finish().status, status);
        let jobs = site.finish(&["jobs", "job"]).out;
        assert!(jobs.contains(": died, "), "{jobs}");
    }
}

/// The command ends with success, and lockwell has not noticed yet that a lock was lost meanwhile.
#[test]
fn another_lock_that_is_lost_is_not_hidden_by_a_success() {
    for (lost, status, state) in [("other", 76, "died"), ("job", 0, "done")] {
        let site = Site::new();
        let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done";
        let run = Running::start(&mut site.lockwell(&once(&["--also", "other"], script)));
        let command = pid_of(site.wait_for_file("pid").parse().unwrap());
        run.signal(Signal::STOP);
        wait_until("a stop", || is_stopped(run.pid()));
        assert_eq!(site.finish(&["release", "--force", "--yes", lost]).status, 0);
        std::fs::write(site.path("go"), "").unwrap();
        wait_until("the end of the command", || !is_alive(command));
        run.signal(Signal::CONT);
        let end = run.finish();
        assert_eq!(end.status, status, "{end:?}");
        assert!(status == 0 || end.err.contains("the lock \"other\" was lost"), "{end:?}");
        let jobs = site.finish(&["jobs", "job"]).out;
        assert!(jobs.contains(&format!(": {state}, ")), "{jobs}");
    }
}

#[test]
fn what_contradicts_it_or_is_gone_is_refused() {
    let site = Site::new();
    for options in [&["--read"][..], &["--permits", "2"], &["--attempts", "0"]] {
        assert_eq!(site.finish(&once(options, "true")).status, 64, "{options:?}");
    }
    site.finish(&["run", "--once", "", "job", "--", "true"]).complains(64, "key");
    site.finish(&["run", "--at-least", "50s", "job", "--", "true"]).complains(64, "--once");
}
