//! `lockwell status`.

use serde_json::Value;

use crate::support::{Running, Site, block_on, wait_until};

fn status(site: &Site, name: &str) -> Value {
    let run = site.finish(&["status", "--json", name]);
    assert_eq!(run.status, 0, "{run:?}");
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn a_free_lock() {
    let site = Site::new().prepared();
    let free =
        serde_json::json!({ "schema_version": 1, "name": "a", "held": false, "holders": [], "waiters": 0 });
    assert_eq!(status(&site, "a"), free);
    assert_eq!(site.finish(&["status", "a"]).out, "a: free, nobody waits\n");
}

#[test]
fn a_held_lock_with_a_waiter() {
    let site = Site::new();
    block_on(async {
        let locks = site.locks().await;
        let guard = locks.lock("a").label("the holder").await.unwrap();
        let waiter = Running::start(&mut site.lockwell(&["run", "--label", "job 7", "a", "--", "cat"]));
        wait_until("a waiter", || site.waiters("a") == 1);

        let report = status(&site, "a");
        assert_eq!((&report["held"], &report["waiters"]), (&Value::Bool(true), &Value::from(1)));
        let [holder] = report["holders"].as_array().unwrap().as_slice() else { panic!("{report}") };
        assert_eq!(holder["token"], guard.token().get());
        assert_eq!(
            (holder["label"].as_str(), holder["mode"].as_str()),
            (Some("the holder"), Some("exclusive"))
        );
        let left = holder["ttl_ms"].as_u64().unwrap();
        assert!((1..=10_000).contains(&left), "{left}");
        assert!(holder["held_ms"].as_u64().unwrap() < 20_000);

        assert!(report["longest_wait_ms"].as_u64().unwrap() < 20_000, "{report}");
        let [waits] = report["waiting"].as_array().unwrap().as_slice() else { panic!("{report}") };
        assert_eq!((&waits["label"], &waits["mode"]), (&"job 7".into(), &"exclusive".into()));
        assert!(waits["waited_ms"].as_u64().unwrap() < 20_000, "{report}");
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert!(status(&site, "a")["longest_wait_ms"].as_u64().unwrap() >= 1200);

        let text = site.finish(&["status", "a"]).out;
        let first = "a: held, 1 waits, for ";
        assert!(text.starts_with(first) && text.contains("\n  the holder: token "), "{text}");
        assert!(text.contains("\n  waits: job 7, for "), "{text}");
        guard.release().await.unwrap();
        assert_eq!(waiter.finish().status, 0);
    });
    assert_eq!(status(&site, "a")["held"], false);
}

#[test]
fn the_label_of_a_run() {
    let site = Site::new();
    let inner = format!("{} status --url {} --json a", env!("CARGO_BIN_EXE_lockwell"), site.url());
    for (label, expected) in [(&["--label", "job 7"][..], "job 7"), (&[], ":")] {
        let args = [&["run"], label, &["a", "--", "sh", "-c", &inner]].concat();
        let run = site.finish(&args);
        let report: Value = serde_json::from_str(&run.out).expect(&run.err);
        let label = report["holders"][0]["label"].as_str().unwrap();
        assert!(label.contains(expected), "{label}");
    }
}

#[test]
fn all_that_is_held() {
    let site = Site::new().prepared();
    assert_eq!(site.finish(&["status"]).out, "no lock is held\n");
    let names = || -> Vec<String> {
        let report: Value = serde_json::from_str(&site.finish(&["status", "--json"]).out).unwrap();
        assert_eq!(report["schema_version"], 1);
        let locks = report["locks"].as_array().unwrap();
        locks.iter().map(|lock| lock["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(), Vec::<String>::new());
    block_on(async {
        let locks = site.locks().await;
        let one = locks.lock("b").await.unwrap();
        let two = locks.read("a").await.unwrap();
        let three = locks.permit("c", 3).await.unwrap();
        let four = locks.permit("c", 3).await.unwrap();
        assert_eq!(names(), ["a", "b", "c"]);
        let text = site.finish(&["status"]).out;
        for part in ["a: held by 1 reader, nobody waits\n", "b: held, ", "c: 2 of 3 held, "] {
            assert!(text.contains(part), "{text}");
        }
        for guard in [one, two, three, four] {
            guard.release().await.unwrap();
        }
    });
    assert_eq!(names(), Vec::<String>::new());
}

#[test]
fn the_exit_status_tells_if_it_is_asked_to() {
    let site = Site::new().prepared();
    assert_eq!(site.finish(&["status", "--exit-code", "a", "b"]).status, 0);
    let holder = site.holder("b", &[]);
    assert_eq!(site.finish(&["status", "--exit-code", "a", "b"]).status, 75);
    assert_eq!(site.finish(&["status", "--exit-code", "a"]).status, 0);
    assert_eq!(site.finish(&["status", "a", "b"]).status, 0);
    site.end(holder);
}

#[test]
fn a_watch_shows_every_change() {
    let site = Site::new().prepared();
    let mut command = site.lockwell(&["status", "--watch", "--json", "a"]);
    let out = std::fs::File::create(site.path("seen")).unwrap();
    let watch = Running::start(command.stdout(out));
    let seen = || -> Vec<bool> {
        let lines = site.read("seen");
        let held = |line: &str| {
            serde_json::from_str::<Value>(line).ok().map(|report| report["held"].as_bool().unwrap())
        };
        lines.lines().filter_map(held).collect()
    };
    wait_until("the first state", || seen() == [false]);
    let holder = site.holder("a", &[]);
    wait_until("the hold", || seen() == [false, true]);
    site.end(holder);
    wait_until("the end", || seen() == [false, true, false]);
    drop(watch);
}

/// A mistyped path must not become a file.
#[test]
fn those_who_look_make_nothing() {
    let site = Site::new();
    let verbs: [&[&str]; 9] = [
        &["status"],
        &["why", "a"],
        &["status", "a"],
        &["top", "--once"],
        &["wait", "a"],
        &["doctor"],
        &["grace", "--yes"],
        &["release", "--force", "--yes", "a"],
        &["release", "lw1.0.00000000000000000000000000000001.1.a"],
    ];
    for verb in verbs {
        let run = site.finish(verb);
        assert_eq!(run.status, if verb == ["doctor"] { 2 } else { 69 }, "{verb:?}: {run:?}");
        let said = format!("{}{}", run.out, run.err);
        assert!(said.contains("there is no lock file"), "{verb:?}: {run:?}");
        assert_eq!(std::fs::read_dir(site.path("")).unwrap().count(), 0, "{verb:?}");
    }
    // Nor tables in a file of others.
    let other = site.path("other.db");
    std::fs::write(&other, "").unwrap();
    let url = format!("sqlite://{}", other.display());
    for verb in verbs {
        let run = crate::support::finish(site.lockwell(verb).env("LOCKWELL_URL", &url));
        assert_ne!(run.status, 0, "{verb:?}: {run:?}");
        assert_eq!(std::fs::metadata(&other).unwrap().len(), 0, "{verb:?}");
    }
}
