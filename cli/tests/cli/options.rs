//! What can be chosen.

use std::time::{Duration, Instant};

use crate::support::{Running, Site, finish, lockwell, wait_until};

#[test]
fn several_locks_are_one_hold() {
    let site = Site::new();
    let script =
        "printf '%s\\n' \"$LOCKWELL_HELD\" > held; echo > started; while [ ! -e go ]; do sleep 0.02; done";
    let args = ["run", "--also", "b", "--also", "c d", "a", "--", "sh", "-c", script];
    let run = Running::start(&mut site.lockwell(&args));
    site.wait_for_file("started");
    let held = site.read("held");
    let names: Vec<_> = held.lines().filter_map(|line| line.split_once(' ')).map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "b", "c d"]);
    for name in names {
        site.finish(&["run", "--no-wait", name, "--", "true"]).complains(75, "is held by");
    }
    site.finish(&["run", "--no-wait", "--also", "b", "x", "--", "true"]).complains(75, "\"b\" is held by");
    // None of them is kept by one who did not get all.
    assert_eq!(site.finish(&["run", "--no-wait", "x", "--", "true"]).status, 0);
    site.end(run);
    assert_eq!(site.finish(&["run", "--no-wait", "--also", "b", "a", "--", "true"]).status, 0);
}

#[test]
fn options_after_the_command_are_its_own() {
    let site = Site::new();
    for verb in ["run", "lead"] {
        // Some of them are options of lockwell, before the name of the command.
        let words = ["-l", "--wait", "x", "-v", "--json", "--help", "--", "-q"];
        let run = site.finish(&[&[verb, "-q", "job", "printf", "%s "], &words[..]].concat());
        assert_eq!((run.status, run.out.trim_end()), (0, &*words.join(" ")), "{run:?}");
        let run = site.finish(&[verb, "job", "--", "printf", "%s ", "--", "-l"]);
        assert_eq!((run.status, &*run.out), (0, "-- -l "), "{run:?}");
    }
    let run = site.finish(&["run", "job", "ls", "-l"]);
    assert!(run.status == 0 && run.out.contains("locks.db") && run.out.contains("-rw"), "{run:?}");
}

#[test]
fn what_is_said_and_with_which_status() {
    let site = Site::new();
    let holder = site.holder("a", &["--label", "job 7"]);
    let refused = site.finish(&["run", "--no-wait", "--exit-code-held", "0", "a", "--", "true"]);
    assert_eq!(refused.status, 0, "{refused:?}");
    assert!(refused.err.contains("\"a\" is held by job 7 for "), "{refused:?}");
    let quiet = site.finish(&["run", "-q", "--no-wait", "a", "--", "true"]);
    assert_eq!((quiet.status, quiet.err.as_str(), quiet.out.as_str()), (75, "", ""));
    // A number of seconds.
    let begun = Instant::now();
    site.finish(&["run", "--wait", "1", "a", "--", "true"]).complains(75, "not obtained within 1s");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let waiting = Running::start(&mut site.lockwell(&["run", "-v", "a", "--", "true"]));
    wait_until("a waiter", || site.waiters("a") == 1);
    std::thread::sleep(Duration::from_millis(800));
    site.end(holder);
    let waited = waiting.finish();
    assert_eq!(waited.status, 0, "{waited:?}");
    for part in ["waiting for \"a\": \"a\" is held by job 7", "got \"a\" with token ", "freed \"a\" after "] {
        assert!(waited.err.contains(part), "{part}: {waited:?}");
    }
}

#[test]
fn the_address_comes_in_four_ways() {
    let site = Site::new();
    std::fs::write(site.path("url"), format!("{}\n", site.url())).unwrap();
    std::fs::write(site.path("lockwell.toml"), format!("url = \"{}\"\nwait = \"200ms\"\n", site.url()))
        .unwrap();
    let holder = site.holder("a", &[]);
    let bare = |args: &[&str]| finish(lockwell(args).current_dir(site.path("")));
    for way in [["--url", &site.url()], ["--url-file", "url"], ["--config", "lockwell.toml"]] {
        let run = bare(&[&["run", "--no-wait"], &way[..], &["a", "--", "true"]].concat());
        run.complains(75, "is held by");
    }
    // The file is followed.
    bare(&["run", "--config", "lockwell.toml", "a", "--", "true"]).complains(75, "not obtained in time");
    bare(&["run", "a", "--", "true"]).complains(64, "--url-file");
    bare(&["run", "--url-file", "nowhere", "a", "--", "true"]).complains(64, "nowhere");
    site.end(holder);
}

#[test]
fn what_the_file_requires_must_be_promised() {
    let site = Site::new();
    let demanding = |needs: &str| {
        let text = format!("url = \"{}\"\nrequire = [{needs}]\n", site.url());
        std::fs::write(site.path("lockwell.toml"), text).unwrap();
        site.finish(&["run", "--config", "lockwell.toml", "a", "--", "touch", "ran"])
    };
    demanding("\"fencing\", \"across-hosts\"")
        .complains(64, "sqlite: unsupported: this backend does not promise: across-hosts");
    demanding("\"speed\"").complains(64, "expected one of `shared`, ");
    assert!(!site.path("ran").exists());
    assert_eq!(demanding("\"fencing\"").status, 0);
    assert!(site.path("ran").exists());
}

#[test]
fn a_relative_file_is_told() {
    let site = Site::new();
    let run = finish(site.lockwell(&["run", "a", "--", "true"]).env("LOCKWELL_URL", "sqlite://locks.db"));
    assert_eq!(run.status, 0, "{run:?}");
    run.warns(site.path("locks.db").to_str().unwrap());
    let quiet =
        finish(site.lockwell(&["run", "-q", "a", "--", "true"]).env("LOCKWELL_URL", "sqlite://locks.db"));
    assert_eq!((quiet.status, quiet.err.as_str()), (0, ""));
    let doctor = finish(site.lockwell(&["doctor"]).env("LOCKWELL_URL", "sqlite://locks.db"));
    let whole = format!("sqlite://{}", site.path("locks.db").display());
    assert!(doctor.out.lines().next().is_some_and(|line| line.contains(&whole)), "{doctor:?}");
}

#[test]
fn a_lock_that_is_held_above_is_refused_at_once() {
    let site = Site::new();
    let inner = |args: &str| {
        let url = site.url();
        format!("{} run --url {url} {args}", env!("CARGO_BIN_EXE_lockwell"))
    };
    let begun = Instant::now();
    let run = site.finish(&["run", "a", "--", "sh", "-c", &inner("a -- touch ran")]);
    run.complains(64, "would wait for itself");
    assert!(begun.elapsed() < Duration::from_secs(10) && !site.path("ran").exists());
    // Another lock, and one further down.
    let further = inner(&format!("b -- {}", inner("a -- touch ran")));
    site.finish(&["run", "a", "--", "sh", "-c", &further]).complains(64, "would wait for itself");
    let other = site.finish(&["run", "a", "--", "sh", "-c", &inner("b -- touch ran")]);
    assert!(other.status == 0 && site.path("ran").exists(), "{other:?}");
    // The same name elsewhere is another lock.
    let elsewhere = format!(
        "{} run --url sqlite://{} a -- true",
        env!("CARGO_BIN_EXE_lockwell"),
        site.path("elsewhere.db").display()
    );
    assert_eq!(site.finish(&["run", "a", "--", "sh", "-c", &elsewhere]).status, 0);
}

#[test]
fn the_command_does_not_inherit_the_address() {
    let site = Site::new();
    let script = "echo \"<$LOCKWELL_URL>\"";
    assert_eq!(site.finish(&["run", "a", "--", "sh", "-c", script]).out, "<>\n");
    let run = site.finish(&["run", "--pass-url", "a", "--", "sh", "-c", script]);
    assert_eq!(run.out, format!("<{}>\n", site.url()));
}

/// As cron and systemd may start it.
#[test]
fn an_empty_environment_will_do() {
    let site = Site::new();
    let mut command = site.lockwell(&["run", "--url", &site.url(), "a", "--", "/bin/sh", "-c", "echo ran"]);
    let run = finish(command.env_clear());
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (0, "ran\n", ""));
    let mut command = site.lockwell(&["run", "--url", &site.url(), "a", "--", "true"]);
    assert_eq!(finish(command.env_clear()).status, 0);
}
