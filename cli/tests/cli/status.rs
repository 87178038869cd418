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
    let site = Site::new();
    let free = serde_json::json!({ "name": "a", "held": false, "holders": [], "waiters": 0 });
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

        let text = site.finish(&["status", "a"]).out;
        assert!(text.starts_with("a: held, 1 waits\n  the holder: exclusive, token "), "{text}");
        guard.release().await.unwrap();
        assert_eq!(waiter.finish().status, 0);
    });
    assert_eq!(status(&site, "a")["held"], false);
}

#[test]
fn the_label_of_a_run() {
    let site = Site::new();
    let inner = format!("{} status --json a", env!("CARGO_BIN_EXE_lockwell"));
    for (label, expected) in [(&["--label", "job 7"][..], "job 7"), (&[], ":")] {
        let args = [&["run"], label, &["a", "--", "sh", "-c", &inner]].concat();
        let run = site.finish(&args);
        let report: Value = serde_json::from_str(&run.out).expect(&run.err);
        let label = report["holders"][0]["label"].as_str().unwrap();
        assert!(label.contains(expected), "{label}");
    }
}
