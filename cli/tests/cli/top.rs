//! `lockwell top`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::Value;

use crate::json::is_as_told;
use crate::support::{Running, Site, block_on, wait_until};
use crate::terminal::OnTerminal;

/// The report of two looks.
fn top(site: &Site, options: &[&str]) -> Value {
    top_every("100ms", site, options)
}

fn top_every(time: &str, site: &Site, options: &[&str]) -> Value {
    let run = site.finish(&[&["top", "--once", "--json", "--every", time], options].concat());
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    let report = serde_json::from_str(&run.out).unwrap();
    is_as_told("top", &report);
    report
}

fn names(report: &Value) -> Vec<&str> {
    report["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

#[test]
fn what_is_contended_comes_first() {
    let site = Site::new();
    block_on(async {
        let locks = site.locks().await;
        let quiet = locks.lock("a quiet one").await.unwrap();
        let busy = locks.lock("busy").label("job 7").await.unwrap();
        let busier = locks.lock("busier").await.unwrap();
        let wait = |name: &str| Running::start(&mut site.lockwell(&["run", name, "--", "true"]));
        let waiting = [wait("busy"), wait("busier"), wait("busier")];
        wait_until("the waiters", || site.waiters("busy") == 1 && site.waiters("busier") == 2);
        let report = top(&site, &[]);
        assert_eq!(names(&report), ["busier", "busy", "a quiet one"]);
        assert_eq!((&report["known"], &report["looked_at"]), (&3.into(), &3.into()));
        let first = &report["locks"][0];
        assert_eq!(
            (&first["waiters"], &first["hand_overs_per_s_at_least"]),
            (&2.into(), &0.0.into()),
            "{first}"
        );
        assert!(first["longest_wait_ms"].as_u64().unwrap() >= 100, "between the looks alone: {first}");
        assert_eq!(report["locks"][1]["holders"][0]["label"], "job 7");
        // Those that are named, and only they, also if they are free.
        assert_eq!(names(&top(&site, &["busy", "free"])), ["busy", "free"]);
        let text = site.finish(&["top", "--once", "--every", "100ms"]).out;
        assert!(text.contains("locks: 3, contended: 2, waiters: 3\n"), "{text}");
        assert!(text.lines().any(|line| line.ends_with("busy         job 7")), "{text}");
        for guard in [quiet, busy, busier] {
            guard.release().await.unwrap();
        }
        for waiter in waiting {
            assert_eq!(waiter.finish().status, 0);
        }
    });
    assert_eq!(names(&top(&site, &[])), Vec::<&str>::new());
}

#[test]
fn hand_overs_are_counted() {
    let site = Site::new().prepared();
    let (url, end) = (site.url(), Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&end);
    let work = std::thread::spawn(move || {
        block_on(async {
            let locks = lockwell::connect(url).await.unwrap();
            while !is_over.load(Relaxed) {
                let guard = locks.lock("a").await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                guard.release().await.unwrap();
            }
            locks.close().await.unwrap();
        });
    });
    wait_until("hand-overs", || {
        let report = top_every("1s", &site, &["a"]);
        let rate = report["locks"][0]["hand_overs_per_s_at_least"].as_f64().unwrap();
        // Two looks see one at most, of twenty that there may be.
        assert!(rate <= 1.0, "{report}");
        rate > 0.1
    });
    end.store(true, Relaxed);
    work.join().unwrap();
}

#[test]
fn of_many_locks_some_are_looked_at() {
    let site = Site::new();
    block_on(async {
        let locks = site.locks().await;
        let many: Vec<_> = (0..300).map(|n| format!("lock {n:03}")).collect();
        let guard = locks.lock_all(&many).await.unwrap();
        let report = top(&site, &["--most", "100"]);
        assert_eq!((&report["known"], &report["looked_at"]), (&300.into(), &100.into()));
        // Each look was at others.
        assert_eq!(names(&report), many[..200]);
        assert!(report["locks"][0].get("hand_overs_per_s_at_least").is_none(), "{}", report["locks"][0]);
        let text = site.finish(&["top", "--once", "--every", "100ms", "--most", "100"]).out;
        assert!(text.contains("looked at 100 of 300 names (--most)"), "{text}");
        guard.release().await.unwrap();
    });
}

#[test]
fn it_goes_on_until_nobody_reads() {
    let site = Site::new().prepared();
    let mut run = Running::start(&mut site.lockwell(&["top", "--json", "--every", "100ms", "a"]));
    let mut lines = BufReader::new(run.output()).lines();
    for _ in 0..3 {
        let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(report["locks"][0]["held"], false);
    }
    assert!(run.is_running());
    drop(lines);
    let run = run.finish();
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
}

#[test]
fn a_terminal_is_refreshed() {
    let site = Site::new();
    let holder = site.holder("a", &["--label", "job 7"]);
    let mut terminal = OnTerminal::start(&site, &["top", "--every", "100ms"]);
    terminal.shows("locks: 1, contended: 0, waiters: 0\u{1b}[K");
    terminal.shows("job 7");
    let waiter = Running::start(&mut site.lockwell(&["run", "a", "--", "true"]));
    terminal.shows("locks: 1, contended: 1, waiters: 1\u{1b}[K");
    terminal.types("\u{3}");
    assert_eq!(terminal.finish(), -1, "by the signal, as every program");
    site.end(holder);
    assert_eq!(waiter.finish().status, 0);
}

/// What it saw before stays, and it goes on when the server is back.
#[test]
#[cfg(feature = "postgres")]
fn a_server_that_is_away_is_waited_for() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        let run = crate::support::finish(
            crate::support::lockwell(&["run", "a", "--", "true"]).env("LOCKWELL_URL", server.url()),
        );
        assert_eq!(run.status, 0, "{run:?}");
        let site = Site::new();
        let [out, err] = ["out", "err"].map(|name| File::create(site.path(name)).unwrap());
        let mut command = site.lockwell(&["top", "--json", "--every", "100ms", "a"]);
        let mut top = Running::start(command.env("LOCKWELL_URL", server.url()).stdout(out).stderr(err));
        site.wait_for_file("out");
        server.kill().unwrap();
        wait_until("the trouble", || site.read("err").contains("\"severity\":\"warning\""));
        let before = site.read("out").lines().count();
        server.restart().await.unwrap();
        wait_until("more", || site.read("out").lines().count() > before + 1);
        assert!(top.is_running());
    });
}
