//! The one hint that helps.

use crate::support::{Site, finish, lockwell};

#[test]
fn mistakes_get_the_hint_that_helps() {
    let site = Site::new();
    assert_eq!(site.finish(&["run", "a", "sh", "-c", "exit 3"]).status, 3);
    let run = site.finish(&["run", "--", "nice", "true"]);
    assert!(run.status == 64 && run.err.contains("stands before --"), "{run:?}");
    let run = finish(&mut lockwell(&["run", "-a", "--", "true"]));
    assert!(run.status == 64 && run.err.contains("cannot begin with -"), "{run:?}");
    let taken = site.finish(&["acquire", "--for", "9s", "--", "-a"]);
    assert_eq!(site.finish(&["release", taken.out.trim_end()]).status, 0);
    site.finish(&["run", "a", "--", "echo a | wc"]).complains(127, "sh -c 'EXPRESSION'");
    let at = |url: &str| finish(lockwell(&["status"]).env("LOCKWELL_URL", url));
    at("sqlite:///tmp/x.db?ttl=5").complains(64, "ttl=5s");
    at("zookeeper://h").complains(64, "zk:// may be meant");
    at("postgre://h/app").complains(64, "postgres:// may be meant");
}

#[test]
fn a_nested_run_says_where_its_address_is() {
    let site = Site::new();
    let program = env!("CARGO_BIN_EXE_lockwell");
    site.finish(&["run", "a", "--", program, "run", "b", "--", "true"])
        .complains(64, "unless it has --pass-url");
    assert_eq!(site.finish(&["run", "--pass-url", "a", "--", program, "run", "b", "--", "true"]).status, 0);
}

/// A reader within a reader waits for nobody, unless a writer has come in between.
#[test]
fn a_reader_may_read_within_a_reader() {
    let site = Site::new();
    let program = env!("CARGO_BIN_EXE_lockwell");
    let within = |outer: &[&str], inner: &[&str]| {
        let inner = [&[program, "run"], inner, &["a", "--", "true"]].concat();
        site.finish(&[&["run", "--pass-url"], outer, &["a", "--"], &inner].concat())
    };
    assert_eq!(within(&["--read"], &["--read"]).status, 0);
    within(&["--read"], &[]).complains(64, "wait for itself");
    within(&[], &["--read"]).complains(64, "wait for itself");
    let script = format!(
        "env -u LOCKWELL_HELD {program} run a -- true & \
         while ! {program} status --json a | grep -q '\"waiters\": 1'; do sleep 0.05; done; \
         {program} run --read a -- true"
    );
    let run = site.finish(&["run", "--pass-url", "--read", "a", "--", "sh", "-c", &script]);
    run.complains(64, "behind a writer");
}
