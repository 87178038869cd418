//! Servers that may have forgotten grants, and so grant nothing for some time.

use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::{Redis, if_installed};

use crate::json::is_as_told;
use crate::support::{Finished, Site, block_on, finish, lockwell};

/// The options for the shortest grace period that there may be.
const OPTIONS: &str = "?durability=grace&longest_ttl=4s";

fn at(url: &str, args: &[&str]) -> Finished {
    finish(lockwell(args).env("LOCKWELL_URL", url))
}

/// Takes a lock, and frees it.
fn takes_a_lock(url: &str) {
    let run = at(url, &["run", "--ttl", "4s", "--wait", "30s", "a", "--", "true"]);
    assert_eq!(run.status, 0, "{run:?}");
}

/// A grace period is begun by hand.
fn is_begun_by_hand(url: &str) {
    // A new Redis grants its first lock after a grace period.
    takes_a_lock(url);
    let taken = Instant::now();
    let handle = at(url, &["acquire", "--for", "4s", "--no-wait", "held"]);
    assert_eq!(handle.status, 0, "{handle:?}");
    assert_eq!(at(url, &["grace", "--json"]).status, 64);
    at(url, &["grace"]).complains(64, "add --yes");
    let status = at(url, &["status", "--json", "a"]);
    assert!(!status.out.contains("unknown_ms"), "it has begun: {status:?}");

    let begun = Instant::now();
    let run = at(url, &["grace", "--yes", "--json"]);
    assert_eq!(run.status, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.out).expect(&run.err);
    is_as_told("grace", &report);
    assert_eq!(report["grace_ms"], 4084, "{report}");
    let held = at(url, &["release", handle.out.trim_end()]);
    assert!(
        held.status == 0 || taken.elapsed() > Duration::from_secs(3),
        "a holder keeps its lock: {held:?}"
    );
    takes_a_lock(url);
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());

    let run = at(url, &["grace", "--yes"]);
    assert!(
        run.status == 0 && run.out.contains(" grants no lock for 4s 84ms; holders keep theirs"),
        "{run:?}"
    );
    assert_eq!(at(url, &["wait", "a", "--for", "30s"]).status, 0);
    // On Redis whoever only reads leaves the mark to others, so that the next one has to wait, too.
    takes_a_lock(url);
    assert_eq!(at(url, &["status", "--exit-code", "a"]).out, "a: free, nobody waits\n");
}

#[test]
fn a_period_is_begun_by_hand_on_postgresql() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        is_begun_by_hand(&format!("{}{OPTIONS}", server.url()));
        at(&format!("{}?table=other", server.url()), &["grace", "--yes"]).complains(70, "tables are missing");
        assert_eq!(at(&format!("{}?table=disk", server.url()), &["run", "a", "--", "true"]).status, 0);
        let refused = at(&format!("{}?table=disk", server.url()), &["grace", "--yes"]);
        refused.complains(64, "durability=grace");
    });
}

#[test]
fn a_period_is_begun_by_hand_on_redis() {
    block_on(async {
        let Some(server) = if_installed(Redis::start_with(&crate::everyday::options()).await) else { return };
        at(&server.url(), &["grace", "--yes"]).complains(64, "durability=grace");
        is_begun_by_hand(&format!("{}{OPTIONS}", server.url()));
    });
}

/// Commands that wait for a second, one after the other. Each counts what it has seen of the period.
fn short_lives(url: &str) {
    let (begun, mut tries) = (Instant::now(), 0);
    loop {
        let run = at(url, &["run", "--ttl", "4s", "--wait", "1s", "short", "--", "true"]);
        tries += 1;
        if run.status == 0 {
            break;
        }
        run.complains(69, "grants nothing for another");
        assert!(begun.elapsed() < Duration::from_secs(40), "never granted in {tries} tries");
    }
    println!("granted after {:?} and {tries} tries", begun.elapsed());
    assert!(begun.elapsed() >= Duration::from_secs(4) && tries > 2, "{:?}, {tries} tries", begun.elapsed());
}

#[test]
fn commands_that_live_a_second_end_a_period_together() {
    block_on(async {
        if let Some(server) = crate::servers::postgres().await {
            let url = format!("{}?durability=grace&longest_ttl=4s&table=short", server.url());
            takes_a_lock(&url);
            assert_eq!(at(&url, &["grace", "--yes"]).status, 0);
            short_lives(&url);
        }
        let Some(server) = if_installed(Redis::start_with(&crate::everyday::options()).await) else { return };
        short_lives(&format!("{}{OPTIONS}", server.url()));
    });
}

#[test]
fn a_redis_that_is_known_to_be_new_is_opened() {
    block_on(async {
        let Some(server) = if_installed(Redis::start_with(&crate::everyday::options()).await) else { return };
        let (url, begun) = (format!("{}{OPTIONS}", server.url()), Instant::now());
        at(&url, &["grace", "--open"]).complains(64, "add --yes");
        let opened = at(&url, &["grace", "--open", "--yes"]);
        assert!(opened.status == 0 && opened.out.ends_with(" grants locks\n"), "{opened:?}");
        let run = at(&url, &["run", "--ttl", "4s", "--no-wait", "a", "--", "true"]);
        assert!(
            run.status == 0 && begun.elapsed() < Duration::from_secs(4),
            "{:?}: {run:?}",
            begun.elapsed()
        );
    });
}

/// The verbs that look say that a lock may be held by somebody whom the server has forgotten.
#[test]
fn what_may_be_held_is_not_called_free() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        // All of this is done within the grace period.
        let url = format!("{}?durability=grace&longest_ttl=5m", server.url());
        assert_eq!(at(&url, &["run", "a", "--", "true"]).status, 0);
        assert_eq!(at(&url, &["grace", "--yes"]).status, 0);
        let one = at(&url, &["status", "--json", "a"]);
        let report: Value = serde_json::from_str(&one.out).expect(&one.err);
        is_as_told("status NAME", &report);
        assert!(report["unknown_ms"].as_u64() > Some(0) && report["held"] == false, "{report}");
        let many: Value = serde_json::from_str(&at(&url, &["status", "--json"]).out).unwrap();
        is_as_told("status", &many);
        assert!(many["unknown_ms"].is_u64(), "{many}");
        let said = at(&url, &["status", "--exit-code", "a"]);
        assert_eq!(said.status, 75, "{said:?}");
        assert!(
            said.out.starts_with("a: unknown for another ") && said.out.contains("(grace period)"),
            "{said:?}"
        );
        assert!(at(&url, &["status"]).out.starts_with("whether other locks are held is unknown"));
        at(&url, &["wait", "a", "--for", "100ms"]).complains(75, "is unknown for another");
        let doctor: Value = serde_json::from_str(&at(&url, &["doctor", "--json"]).out).unwrap();
        for subject in ["grace period", "trial"] {
            let findings = doctor["findings"].as_array().unwrap();
            let found = findings.iter().find(|one| one["subject"] == subject).expect(subject);
            assert!(found["message"].as_str().unwrap().contains("grants nothing for another"), "{found}");
            assert_eq!(found["severity"], "doubtful", "{found}");
        }
        // It may be held, so it can be freed by force, and whoever holds it does not get it back.
        let forced = at(&url, &["release", "--force", "--yes", "a"]);
        assert!(forced.status == 0 && forced.err.contains("loses it with the next renewal"), "{forced:?}");
    });
}

#[test]
fn other_servers_have_none() {
    let site = Site::new().prepared();
    site.finish(&["grace", "--yes"]).complains(64, "PostgreSQL has them");
}
