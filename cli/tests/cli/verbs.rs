//! The verbs beside `run` and `status`.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::json::is_as_told;
use crate::support::{Running, Site, block_on, finish, lockwell, wait_until};

#[test]
fn a_wait_ends_with_the_hold() {
    let site = Site::new().prepared();
    assert_eq!(site.finish(&["wait", "a"]).status, 0);
    let holder = site.holder("a", &["--label", "job 7"]);
    site.finish(&["wait", "a", "--for", "300ms"]).complains(75, "held by job 7");
    let mut waiting = Running::start(&mut site.lockwell(&["wait", "a"]));
    std::thread::sleep(Duration::from_millis(400));
    assert!(waiting.is_running());
    site.end(holder);
    let begun = Instant::now();
    assert_eq!(waiting.finish().status, 0);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_lock_is_taken_for_a_time_and_given_back() {
    let site = Site::new();
    let taken = site.finish(&["acquire", "--for", "1m", "orders/42 ü"]);
    assert_eq!(taken.status, 0, "{taken:?}");
    let handle = taken.out.trim_end();
    site.finish(&["run", "--no-wait", "orders/42 ü", "--", "true"]).complains(75, "is held by");
    site.finish(&["acquire", "--no-wait", "--for", "1m", "orders/42 ü"]).complains(75, "is held by");
    site.finish(&["acquire", "--for", "1m", "--label", "a\nb", "c"]).complains(64, "no control characters");
    let quiet = site.finish(&["acquire", "-q", "--no-wait", "--for", "1m", "orders/42 ü"]);
    assert_eq!((quiet.status, quiet.err.as_str(), quiet.out.as_str()), (75, "", ""));
    assert_eq!(site.finish(&["release", handle]).status, 0);
    assert_eq!(site.finish(&["run", "--no-wait", "orders/42 ü", "--", "true"]).status, 0);
    // It is over, and must not free the lock of another.
    let holder = site.holder("orders/42 ü", &[]);
    site.finish(&["release", handle]).complains(76, "not held any more");
    site.finish(&["run", "--no-wait", "orders/42 ü", "--", "true"]).complains(75, "is held by");
    site.end(holder);
    site.finish(&["release", "orders/42"]).complains(64, "no handle");
}

#[test]
fn a_lock_that_was_taken_ends_by_itself() {
    let site = Site::new();
    let report = site.finish(&["acquire", "--json", "--for", "1s", "a"]);
    let begun = Instant::now();
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(
        (&report["schema_version"], &report["name"], &report["ttl_ms"]),
        (&1.into(), &"a".into(), &1000.into())
    );
    assert_eq!(site.finish(&["run", "--wait", "10s", "a", "--", "true"]).status, 0);
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    site.finish(&["release", report["handle"].as_str().unwrap()]).complains(76, "not held any more");
    site.finish(&["acquire", "--for", "1ms", "a"]).complains(64, "--for must be between");
}

/// A lock whose handle cannot be written down could be given back by nobody.
#[test]
fn a_handle_that_is_not_written_is_given_back() {
    let site = Site::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let taken = finish(site.lockwell(&["acquire", "--for", "1m", "a"]).stdout(full));
    taken.complains(70, "No space left");
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
}

#[test]
fn permits_and_readers_are_taken_for_a_time() {
    let site = Site::new();
    for (options, refused) in [(&["--permits", "2"][..], 75), (&["--read"], 0)] {
        let name = options[0];
        let take =
            || site.finish(&[&["acquire", "--no-wait", "--for", "1m"], options, &["--", name]].concat());
        let (one, two, three) = (take(), take(), take());
        assert_eq!((one.status, two.status, three.status), (0, 0, refused), "{one:?} {three:?}");
        for taken in [one, two] {
            assert_eq!(site.finish(&["release", taken.out.trim_end()]).status, 0);
        }
    }
}

#[test]
fn a_handle_can_come_by_the_standard_input() {
    let site = Site::new();
    let taken = site.finish(&["acquire", "--for", "1m", "a"]);
    std::fs::write(site.path("handle"), &taken.out).unwrap();
    let input = std::fs::File::open(site.path("handle")).unwrap();
    assert_eq!(finish(site.lockwell(&["release", "-"]).stdin(input)).status, 0);
    assert_eq!(site.finish(&["run", "--no-wait", "a", "--", "true"]).status, 0);
}

#[test]
fn a_signal_ends_the_wait_of_an_acquire_and_leaves_nothing() {
    let site = Site::new();
    let holder = site.holder("a", &[]);
    let waiting = Running::start(&mut site.lockwell(&["acquire", "--for", "1m", "a"]));
    wait_until("a waiter", || site.waiters("a") == 1);
    waiting.signal(Signal::TERM);
    let run = waiting.finish();
    assert_eq!((run.status, run.out.as_str()), (143, ""));
    assert_eq!(site.waiters("a"), 0);
    site.end(holder);
}

#[test]
fn a_lock_is_freed_by_force() {
    let site = Site::new();
    let holder = site.holder("a", &["--ttl", "3s", "--label", "job 7"]);
    site.finish(&["release", "--force", "a"]).complains(64, "--yes");
    let freed = site.finish(&["release", "--force", "--yes", "a"]);
    assert_eq!(freed.status, 0, "{freed:?}");
    freed.warns("job 7");
    holder.finish().complains(76, "lost the lock");
    site.finish(&["release", "--force", "--yes", "a"]).complains(76, "is not held");
}

#[test]
fn leadership_comes_back() {
    let site = Site::new();
    let script =
        "echo $$ > pid; echo $LOCKWELL_TOKEN >> terms; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    let args = ["lead", "--json", "--ttl", "3s", "scheduler", "--", "sh", "-c", script];
    let leader = Running::start(&mut site.lockwell(&args));
    let terms = || site.read("terms").lines().count();
    wait_until("the first term", || terms() == 1);
    assert_eq!(site.finish(&["release", "--force", "--yes", "scheduler"]).status, 0);
    wait_until("the second term", || terms() == 2);
    let tokens: Vec<u64> = site.read("terms").lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    std::fs::write(site.path("go"), "").unwrap();
    let run = leader.finish();
    assert_eq!(run.status, 5, "{run:?}");
    // A program that reads the messages must not take the loss for the end of lockwell.
    assert!(run.err.contains("lost the lock") && !run.err.contains("exit_status"), "{run:?}");
    assert_eq!(site.finish(&["run", "--no-wait", "scheduler", "--", "true"]).status, 0);
}

#[test]
fn a_candidate_takes_over() {
    let site = Site::new();
    let script = |name: &str| format!("echo {name} > leads; exec sleep 60");
    let first =
        Running::start(&mut site.lockwell(&["lead", "--ttl", "1s", "s", "--", "sh", "-c", &script("first")]));
    wait_until("the first", || site.read("leads") == "first");
    let second = Running::start(&mut site.lockwell(&[
        "lead",
        "--ttl",
        "1s",
        "s",
        "--",
        "sh",
        "-c",
        &script("second"),
    ]));
    wait_until("a candidate", || site.waiters("s") == 1);
    first.signal(Signal::KILL);
    wait_until("the second", || site.read("leads") == "second");
    second.signal(Signal::TERM);
    assert_eq!(second.finish().status, 143);
}

#[test]
fn a_doctor_looks_at_a_file() {
    let site = Site::new().prepared();
    let run = site.finish(&["doctor"]);
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    for subject in ["connection", "file system", "persistence", "trial", "push"] {
        assert!(run.out.contains(&format!("good      {subject}")), "{subject}: {}", run.out);
    }
    let run = site.finish(&["doctor", "--json", "--look-only"]);
    let report: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&report["schema_version"], &report["worst"]), (&1.into(), &"good".into()));
    let subjects: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|one| one["subject"].as_str().unwrap()).collect();
    assert!(subjects.contains(&"persistence") && !subjects.contains(&"trial"), "{subjects:?}");
    // It leaves no lock behind.
    assert_eq!(site.finish(&["status"]).out, "no lock is held\n");
}

#[test]
fn the_schema_is_that_of_the_tables() {
    let site = Site::new();
    let print = |url: &str| finish(&mut lockwell(&["schema", "--url", url]));
    let sqlite = print("sqlite://nowhere.db?table=mine");
    assert_eq!(sqlite.status, 0, "{sqlite:?}");
    assert!(sqlite.out.contains("\"mine_queue\""), "{sqlite:?}");
    assert!(!site.path("nowhere.db").exists() && !std::path::Path::new("nowhere.db").exists());
    #[cfg(feature = "postgres")]
    assert!(print("postgres://nowhere/app?table=app.mine").out.contains("\"app\".\"mine\""));
    #[cfg(feature = "mysql")]
    assert!(print("mysql://nowhere/app").out.contains("`lockwell_locks`"));
    #[cfg(feature = "redis")]
    print("redis://nowhere").complains(64, "needs no schema");
}

#[test]
fn completions_and_manual_pages() {
    let site = Site::new();
    for shell in ["bash", "zsh", "fish"] {
        let run = finish(&mut lockwell(&["completions", shell]));
        assert!(run.status == 0 && run.out.contains("lock-delay"), "{shell}: {run:?}");
        assert!(!run.out.contains("__exec"), "{shell}");
    }
    let page = finish(&mut lockwell(&["man"]));
    assert!(page.status == 0 && page.out.contains(".TH lockwell"), "{page:?}");
    assert_eq!(site.finish(&["man", "pages"]).status, 0);
    let run = std::fs::read_to_string(site.path("pages/lockwell-run.1")).unwrap();
    assert!(run.contains("Exit status") && run.contains("lock\\-delay"), "{run}");
}

#[test]
fn the_version_lists_what_is_compiled_in() {
    let text = finish(&mut lockwell(&["--version"])).out;
    assert!(text.starts_with(concat!("lockwell ", env!("CARGO_PKG_VERSION"), " (features: ")), "{text}");
    assert_eq!(text.contains("tls"), cfg!(feature = "tls"), "{text}");
    assert_eq!(text.contains("sasl"), cfg!(feature = "sasl"), "{text}");
}

/// What the last holder has left, as it is.
#[test]
fn record() {
    let site = Site::new().prepared();
    let none = site.finish(&["record", "a"]);
    assert_eq!((none.status, none.out.as_str(), none.err.as_str()), (1, "", ""));
    let hold = block_on(async {
        let guard = site.locks().await.lock("a").await.unwrap();
        guard.write_record("line 42").await.unwrap();
        let hold = guard.hold_id().to_string();
        guard.release().await.unwrap();
        hold
    });
    let there = site.finish(&["record", "a"]);
    assert_eq!((there.status, there.out.as_str(), there.err.as_str()), (0, "line 42", ""));
    let json = |status| {
        let run = site.finish(&["record", "--json", "a"]);
        assert_eq!(run.status, status, "{run:?}");
        let report = serde_json::from_str(&run.out).unwrap();
        is_as_told("record", &report);
        report
    };
    let report: serde_json::Value = json(0);
    assert_eq!((&report["value"], &report["hold_id"]), (&"line 42".into(), &hold.into()));
    for (value, hex) in [(&b"\xff\0"[..], Some("ff00")), (b"", None)] {
        block_on(async {
            let guard = site.locks().await.lock("a").await.unwrap();
            guard.write_record(value).await.unwrap();
            guard.release().await.unwrap();
        });
        let report = json(u8::from(hex.is_none()).into());
        assert_eq!(report.get("value_hex").and_then(|hex| hex.as_str()), hex);
        assert!(report.get("value").is_none(), "{report}");
    }
}
