//! `lockwell why`.

use std::process::Command;

use serde_json::Value;

use crate::json::is_as_told;
use crate::support::{Finished, Running, Site, wait_until};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A lockwell that holds one lock, and runs another that wants a second one, when the file `go-FIRST` is there.
fn nested(site: &Site, first: &str, second: &str) -> Running {
    Running::start(&mut nested_command(site, first, second))
}

fn nested_command(site: &Site, first: &str, second: &str) -> Command {
    let script = format!(
        "echo > has-{first}; while [ ! -e go-{first} ]; do sleep 0.02; done; \
         exec {} run --url {} --label 'inner {first}' {second} -- true",
        env!("CARGO_BIN_EXE_lockwell"),
        site.url()
    );
    let mut command =
        site.lockwell(&["run", "--label", &format!("outer {first}"), first, "--", "sh", "-c", &script]);
    command.env("LOCKWELL_URL", site.url());
    command
}

fn go(site: &Site, first: &str, second: &str) {
    std::fs::write(site.path(&format!("go-{first}")), "").unwrap();
    wait_until("the inner one waits", || site.waiters(second) > 0);
}

fn why(site: &Site, args: &[&str]) -> (Finished, Value) {
    let text = site.finish(&[&["why"], args].concat());
    let told = site.finish(&[&["why", "--json"], args].concat());
    let report: Value = serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    is_as_told("why", &report);
    assert_eq!(text.status, told.status, "{text:?} {told:?}");
    (text, report)
}

#[test]
fn a_deadlock_over_two_names_is_found() {
    for trace in [None, Some(TRACE)] {
        let site = Site::new();
        let start = |first, second| {
            let mut command = nested_command(&site, first, second);
            if let Some(trace) = trace {
                command.env("TRACEPARENT", trace);
            }
            let running = Running::start(&mut command);
            site.wait_for_file(&format!("has-{first}"));
            running
        };
        let (one, two) = (start("a", "b"), start("b", "a"));
        go(&site, "a", "b");
        // One who waits is no deadlock.
        let (text, report) = why(&site, &["a"]);
        assert_eq!((text.status, &report["deadlocks"]), (0, &Value::Array(vec![])), "{text:?}");
        let chain = "\n  inner a waits for \"b\", for ";
        assert!(text.out.contains(chain) && text.out.contains(", held by outer b for "), "{text:?}");
        assert_eq!(
            text.out.contains(", trace 4bf92f3577b34da6a3ce929d0e0e4736"),
            trace.is_some(),
            "{text:?}"
        );
        go(&site, "b", "a");
        let third = site.finish(&["run", "--no-wait", "c", "--", "true"]);
        assert_eq!(third.status, 0);
        for args in [&["a"][..], &["b"], &[]] {
            let (text, report) = why(&site, args);
            assert_eq!(text.status, 79, "{args:?}: {text:?}");
            let said = "deadlock: outer a holds \"a\" and waits for \"b\" as inner a, for ";
            assert!(text.out.contains(said) && !text.out.contains("possible"), "{args:?}: {text:?}");
            assert!(
                text.out.contains("; outer b holds \"b\" and waits for \"a\" as inner b, for "),
                "{text:?}"
            );
            let [deadlock] = report["deadlocks"].as_array().unwrap().as_slice() else { panic!("{report}") };
            assert_eq!((&deadlock["sure"], &deadlock["waits"][1]["for"]), (&true.into(), &"a".into()));
        }
        // Another lock has no part in it.
        assert_eq!(why(&site, &["c"]).0.status, 0);
        drop((one, two));
    }
}

/// Commands of one trace side by side: the holder ends, although another of them waits for a lock that is not free.
#[test]
fn what_runs_beside_each_other_is_no_deadlock() {
    let site = Site::new();
    let start = |name: &str, script: &str| {
        let mut command = site.lockwell(&["run", name, "--", "sh", "-c", script]);
        command.env("TRACEPARENT", TRACE);
        Running::start(&mut command)
    };
    let ends = start("a", "echo > has-a; while [ ! -e go ]; do sleep 0.02; done");
    site.wait_for_file("has-a");
    let one = {
        let mut command = nested_command(&site, "b", "a");
        Running::start(command.env("TRACEPARENT", TRACE))
    };
    site.wait_for_file("has-b");
    let waits = start("b", "true");
    wait_until("it waits", || site.waiters("b") == 1);
    go(&site, "b", "a");
    let (text, report) = why(&site, &[]);
    assert_eq!((text.status, &report["deadlocks"]), (0, &Value::Array(vec![])), "{text:?}");
    assert_eq!(report["waits"][0]["name"], "b", "{report}");
    std::fs::write(site.path("go"), "").unwrap();
    for run in [ends, one, waits] {
        assert_eq!(run.finish().status, 0);
    }
}

#[test]
fn those_with_waiters_come_first() {
    let site = Site::new().prepared();
    assert_eq!(why(&site, &[]).0.out, "no lock is held\n");
    assert!(why(&site, &["a"]).0.out.starts_with("a: free, nobody waits\n"));
    let holder = site.holder("b", &["--also", "a", "--label", "job 7"]);
    let waiting = Running::start(&mut site.lockwell(&["run", "--label", "next", "b", "--", "true"]));
    wait_until("a waiter", || site.waiters("b") == 1);
    let (text, report) = why(&site, &[]);
    assert!(text.out.starts_with("b: held, 1 waits, for "), "{text:?}");
    assert!(text.out.contains("\n  waits: next, for "), "{text:?}");
    assert_eq!(report["locks"][1]["name"], "a", "{report}");
    site.end(holder);
    assert_eq!(waiting.finish().status, 0);
}

#[test]
fn grants_are_seen_while_it_looks() {
    let site = Site::new();
    let holder = site.holder("a", &[]);
    let looking = Running::start(&mut site.lockwell(&["why", "--json", "--for", "4s", "a"]));
    let next = nested(&site, "a", "b");
    wait_until("a waiter", || site.waiters("a") == 1);
    site.end(holder);
    site.wait_for_file("has-a");
    let looked = looking.finish();
    let report: Value = serde_json::from_str(&looked.out).expect(&looked.err);
    is_as_told("why", &report);
    let [grant] = report["grants"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((&grant["name"], &grant["label"]), (&"a".into(), &"outer a".into()));
    drop(next);
}
