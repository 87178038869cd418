//! `jobs`: what has become of `run --once`.

use rustix::process::Signal;
use serde_json::Value;

use crate::json::is_as_told;
use crate::support::{Running, Site, is_alive, pid_of, wait_until};

fn once<'a>(key: &'a str, options: &[&'a str], name: &'a str, script: &'a str) -> Vec<&'a str> {
    [&["run", "--once", key][..], options, &[name, "--", "sh", "-c", script]].concat()
}

/// Name, key, state and attempts of each.
fn jobs(site: &Site, names: &[&str]) -> Vec<[String; 4]> {
    let run = site.finish(&[&["jobs", "--json"], names].concat());
    assert_eq!(run.status, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.out).unwrap();
    is_as_told("jobs", &report);
    let one = |job: &Value| {
        assert!(job["since"].as_str().unwrap().ends_with('Z'), "{job}");
        let ended = ["done", "failed"].contains(&job["state"].as_str().unwrap());
        assert_eq!(job["took_ms"].is_u64(), ended, "{job}");
        ["name", "key", "state", "attempts"].map(|field| job[field].to_string().replace('"', ""))
    };
    report["jobs"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn each_job_and_its_last_keys() {
    let site = Site::new().prepared();
    assert_eq!(site.finish(&["jobs"]).out, "no job is known\n");
    assert_eq!(site.finish(&once("1", &[], "a", "true")).status, 0);
    assert_eq!(site.finish(&once("2", &["--label", "web-1"], "a", "exit 5")).status, 5);
    assert_eq!(site.finish(&once("1", &[], "b", "true")).status, 0);
    assert_eq!(jobs(&site, &[]), [["a", "2", "failed", "1"], ["b", "1", "done", "1"]]);
    let of_a = [["a", "2", "failed", "1"], ["a", "1", "done", "1"]];
    assert_eq!(jobs(&site, &["a"]), of_a);
    let text = site.finish(&["jobs", "a"]).out;
    let [first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(first.starts_with("a 2: failed, since 2") && first.contains("Z by web-1, took "), "{text}");
    assert!(second.starts_with("a 1: done, since 2") && second.ends_with(", 1 attempt"), "{text}");
    assert_eq!(site.finish(&once("2", &[], "a", "true")).status, 0);
    assert_eq!(jobs(&site, &["a"])[0], ["a", "2", "done", "2"]);
}

#[test]
fn one_that_runs_and_one_that_died() {
    let site = Site::new();
    let script = "echo $$ > pid; exec sleep 60";
    let run = Running::start(&mut site.lockwell(&once("1", &["--ttl", "2s"], "a", script)));
    let command = pid_of(site.wait_for_file("pid").parse().unwrap());
    assert_eq!(jobs(&site, &[]), [["a", "1", "running", "1"]]);
    run.signal(Signal::KILL);
    assert_eq!(run.finish().status, -1);
    wait_until("the end of the command", || !is_alive(command));
    wait_until("the end of the lease", || jobs(&site, &["a"]) == [["a", "1", "died", "1"]]);
    // Another holder of the lock is not the one that began it.
    let held = site.holder("a", &[]);
    assert_eq!(jobs(&site, &[]), [["a", "1", "died", "1"]]);
    site.end(held);
}

#[test]
fn a_key_is_forgotten_and_runs_again() {
    let site = Site::new();
    for key in ["1", "2"] {
        assert_eq!(site.finish(&once(key, &[], "a", "echo x >> ran")).status, 0);
    }
    for names in [&[][..], &["a", "b"]] {
        site.finish(&[&["jobs", "--forget", "1"], names].concat()).complains(64, "exactly one NAME");
    }
    let run = site.finish(&["jobs", "--forget", "1", "a"]);
    assert!(run.status == 0 && run.out.starts_with("a 2: done") && run.out.lines().count() == 1, "{run:?}");
    site.finish(&["jobs", "--forget", "1", "a"]).complains(1, "has no key \"1\"");
    assert_eq!(site.finish(&once("1", &[], "a", "echo x >> ran")).status, 0);
    assert_eq!(site.read("ran").lines().count(), 3);
}

#[test]
fn whether_it_is_done_in_time() {
    let site = Site::new().prepared();
    site.finish(&["jobs", "--done-within", "26h"]).complains(1, "no job is known");
    site.finish(&["jobs", "--done-within", "26h", "a"]).complains(1, "not done within 1day 2h: \"a\"");
    assert_eq!(site.finish(&once("1", &[], "a", "true")).status, 0);
    // The next key does not hide the last one that is done.
    assert_eq!(site.finish(&once("2", &[], "a", "exit 5")).status, 5);
    for names in [&[][..], &["a"]] {
        let run = site.finish(&[&["jobs", "--done-within", "26h"], names].concat());
        assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
        site.finish(&[&["jobs", "--done-within", "1ms"], names].concat()).complains(1, "\"a\"");
    }
    assert_eq!(site.finish(&once("1", &[], "b", "exit 5")).status, 5);
    site.finish(&["jobs", "--done-within", "26h"]).complains(1, "1day 2h: \"b\"");
}
