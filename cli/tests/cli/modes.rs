//! Readers, permits, and the limits of a hold.

use std::time::{Duration, Instant};

use crate::support::{Running, Site, finish, wait_until};

/// Starts a holder that stays until the file `go` is there.
fn holder(site: &Site, number: usize, options: &[&str]) -> Running {
    let script = format!("echo > started{number}; while [ ! -e go ]; do sleep 0.02; done");
    let run =
        Running::start(&mut site.lockwell(&[&["run"], options, &["a", "--", "sh", "-c", &script]].concat()));
    site.wait_for_file(&format!("started{number}"));
    run
}

fn end(site: &Site, holders: Vec<Running>) {
    std::fs::write(site.path("go"), "").unwrap();
    for holder in holders {
        assert_eq!(holder.finish().status, 0);
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    let site = Site::new();
    let readers = vec![holder(&site, 1, &["--read"]), holder(&site, 2, &["--read"])];
    finish(&mut site.lockwell(&["run", "--no-wait", "a", "--", "true"])).complains(75, "held");
    end(&site, readers);
    assert_eq!(finish(&mut site.lockwell(&["run", "--no-wait", "a", "--", "true"])).status, 0);
}

#[test]
fn permits_are_counted_and_limits_agree() {
    let site = Site::new();
    let permits = ["--permits", "2"];
    let holders = vec![holder(&site, 1, &permits), holder(&site, 2, &permits)];
    finish(&mut site.lockwell(&["run", "--no-wait", "--permits", "2", "a", "--", "true"]))
        .complains(75, "held");
    let other = finish(&mut site.lockwell(&["run", "--no-wait", "--permits", "3", "a", "--", "true"]));
    other.complains(75, "limit 2");
    let mutex = finish(&mut site.lockwell(&["run", "--no-wait", "a", "--", "true"]));
    mutex.complains(75, "exclusive");
    end(&site, holders);
}

#[test]
fn a_hold_has_an_end() {
    let site = Site::new();
    let began = Instant::now();
    let long = ["run", "--max-hold", "400ms", "a", "--", "sleep", "30"];
    Running::start(&mut site.lockwell(&long)).finish().complains(76, "--max-hold");
    assert!(began.elapsed() < Duration::from_secs(10));
    wait_until("the lock is free", || {
        finish(&mut site.lockwell(&["run", "--no-wait", "a", "--", "true"])).status == 0
    });
}

#[test]
fn a_crash_is_followed_by_the_lock_delay() {
    let site = Site::new();
    let script = "echo $$ > pid; exec sleep 30";
    let options = ["run", "--ttl", "300ms", "--lock-delay", "2s", "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&options));
    site.wait_for_file("pid");
    run.signal(rustix::process::Signal::KILL);
    let died = Instant::now();
    assert_eq!(finish(&mut site.lockwell(&["run", "--wait", "20s", "a", "--", "true"])).status, 0);
    assert!(died.elapsed() >= Duration::from_secs(2), "the lock delay was too short: {:?}", died.elapsed());
}
