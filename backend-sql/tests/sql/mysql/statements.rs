//! How many statements and flushes a hand-over between clients takes. The server counts them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockwell_core::Locks;
use testbed::{Durability, MariaDb, Options, Release};

use super::{RELEASES, connect, start};

const CLIENTS: u32 = 3;
const TURNS: u32 = 60;

/// Each client takes the lock and releases it. The others wait meanwhile, so each release hands the lock
/// over.
async fn pass(clients: &[Locks], turns: u32) {
    let work = |locks: &Locks| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for _ in 0..turns {
                let guard = locks.lock("passed").await.expect("its turn");
                tokio::time::sleep(Duration::from_millis(4)).await;
                guard.release().await.expect("held");
            }
        })
    };
    for task in clients.iter().map(work).collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

/// All that the server counts, by name.
async fn counts(server: &MariaDb) -> BTreeMap<String, u64> {
    let status = server.admin_sql("SHOW GLOBAL STATUS").await.expect("an answer");
    let line = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    status.lines().filter_map(line).collect()
}

/// From the claim that enters the queue to its release, with all that the parked connection sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_few_statements() {
    for release in RELEASES {
        // On a disk, since memory is not flushed.
        let options = Options::new().durability(Durability::Disk).release(Release::named(release));
        let Some(server) = start(release, options).await else { continue };
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(connect(&server, "passed").await);
        }
        pass(&clients, 5).await;
        let (before, began) = (counts(&server).await, Instant::now());
        pass(&clients, TURNS).await;
        let (after, took) = (counts(&server).await, began.elapsed());
        let many = |name: &str| {
            let count = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or_default();
            f64::from(u32::try_from(count(&after) - count(&before)).expect("not that many"))
        };
        let turns = f64::from(CLIENTS * TURNS);
        let (all, parked, flushes) = (many("Questions"), many("Com_do"), many("Innodb_os_log_fsyncs"));
        // A place is an insertion as well.
        let heartbeats = many("Com_insert") - turns;
        println!(
            "{release}: in {took:?} {:.1} statements for a hand-over, {:.2} messages of parked connections, {:.2} \
             heartbeats, {:.2} flushes",
            all / turns,
            parked / turns,
            heartbeats / turns,
            flushes / turns,
        );
        // How many heartbeats there are depends on the time: at most two in a second with claims, and one by
        // itself.
        let limit = f64::from(CLIENTS) * (3.0 * took.as_secs_f64() + 4.0);
        assert!(heartbeats < limit, "{release}: {heartbeats} heartbeats in {took:?}");
        // A claim that enters the queue sends two statements, and eight more if it is a heartbeat; a release
        // four; a message of a parked connection has three. A kill that comes late makes some more of those.
        let rest = (all - 3.0 * parked - 8.0 * heartbeats) / turns;
        // On a slow machine clients renew, and ask whose turn it is.
        let asked = f64::from(CLIENTS) * 15.0 * took.as_secs_f64() / turns;
        assert!(
            rest < 7.5 + asked,
            "{release}: {rest} statements for a hand-over, those of parked connections aside"
        );
        // The place, and the hand-over. A heartbeat has two, and the server makes one now and then by itself.
        // MariaDB does not count them any more.
        let rest = (flushes - 2.0 * heartbeats) / turns;
        assert!(rest < 2.2 + took.as_secs_f64() / turns * 2.0, "{release}: {rest} flushes for a hand-over");
        // A heartbeat deletes the rows of grants that were passed on, and each client gives one now.
        tokio::time::sleep(Duration::from_millis(600)).await;
        pass(&clients, 2).await;
        let rows = server.admin_sql("SELECT count(*) FROM passed_waiters").await.expect("an answer");
        let rows: u32 = rows.trim().parse().expect("a number");
        assert!(rows <= 2 * CLIENTS, "{release}: {rows} rows of waiters are left");
    }
}
