//! `run --once`: the table of statuses, and a machine that dies in the middle.

use rustix::process::Signal;

use crate::support::{Running, Site, is_alive, pid_of, wait_until};

fn once<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run", "--once", "2026-11-29"][..], options, &["job", "--", "sh", "-c", script]].concat()
}

#[test]
fn a_key_is_done_once_on_all_machines() {
    let site = Site::new();
    let script = "echo $LOCKWELL_ONCE $LOCKWELL_ATTEMPT >> ran";
    for _ in 0..3 {
        let run = site.finish(&once(&[], script));
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    }
    assert_eq!(site.read("ran").trim(), "2026-11-29 1");
    assert_eq!(site.finish(&["run", "--once", "2026-11-28", "job", "--", "sh", "-c", script]).status, 0);
    assert_eq!(site.read("ran").lines().count(), 2, "a missed day is another key");
}

#[test]
fn failures_are_counted_and_given_up() {
    let site = Site::new();
    for attempt in 1..=2 {
        let run = site.finish(&once(&["--attempts", "2"], "exit $((LOCKWELL_ATTEMPT + 4))"));
        assert_eq!(run.status, attempt + 4, "{run:?}");
    }
    for options in [&["--attempts", "2"][..], &["--attempts", "2", "-q", "--exit-code-held", "0"]] {
        site.finish(&once(options, "echo > ran")).complains(78, "given up after 2 attempts");
    }
    assert!(!site.path("ran").exists());
    assert_eq!(site.finish(&once(&["--attempts", "3"], "true")).status, 0);
}

#[test]
fn who_waits_takes_over_from_one_that_is_killed_and_not_from_one_that_failed() {
    let site = Site::new();
    let holds = "echo $$ > pid; exec sleep 60";
    let first = Running::start(&mut site.lockwell(&once(&["--ttl", "500ms"], holds)));
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
fn one_that_loses_the_lock_has_not_failed() {
    let site = Site::new();
    let run = Running::start(&mut site.lockwell(&once(&["--ttl", "2s"], "echo > started; exec sleep 60")));
    site.wait_for_file("started");
    assert_eq!(site.finish(&["release", "--force", "--yes", "job"]).status, 0);
    run.finish().complains(76, "lost the lock");
    assert_eq!(site.finish(&once(&["--no-wait"], "exit $((LOCKWELL_ATTEMPT + 4))")).status, 6);
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

#[test]
fn what_contradicts_it_or_is_gone_is_refused() {
    let site = Site::new();
    for options in [&["--read"][..], &["--permits", "2"], &["--attempts", "0"]] {
        assert_eq!(site.finish(&once(options, "true")).status, 64, "{options:?}");
    }
    site.finish(&["run", "--once", "", "job", "--", "true"]).complains(64, "key");
    site.finish(&["run", "--at-least", "50s", "job", "--", "true"]).complains(64, "--once");
}
