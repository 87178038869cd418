//! The queue of a lock in its own row, on PostgreSQL: what moves between it and the table of waiters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockwell_core::Locks;
use tokio::task::JoinHandle;

use crate::servers::{Kind, admin, client, count, url};

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// Those who had the lock, in order.
type Order = Arc<Mutex<Vec<&'static str>>>;

/// A client whose claim for `a` waits as the last of so many. It notes its turn, and releases.
async fn waits(url: &str, who: &'static str, last_of: usize, order: &Order) -> JoinHandle<()> {
    let (locks, order) = (client(Kind::Postgres, url).await, Arc::clone(order));
    let request = if who.starts_with("reader") { locks.read("a") } else { locks.lock("a") };
    let waiting = tokio::spawn(request.wait(LONG).into_future());
    becomes(&locks, last_of).await;
    tokio::spawn(async move {
        let guard = waiting.await.expect("no panic").expect("its turn");
        order.lock().expect("no panic").push(who);
        guard.release().await.expect("held");
    })
}

async fn becomes(locks: &Locks, waiters: usize) {
    let end = Instant::now() + LONG;
    while locks.inspect("a").await.expect("an answer").waiters != waiters {
        assert!(Instant::now() < end, "never {waiters} waiters");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many places are in the rows, and in the table.
async fn places(url: &str, table: &str) -> [String; 2] {
    let in_rows = format!("(SELECT unnest(queue_owners) FROM {table}) AS places");
    [
        count(Kind::Postgres, url, &in_rows).await,
        count(Kind::Postgres, url, &format!("{table}_waiters")).await,
    ]
}

/// A reader cannot wait in the row. The places before it move with it into the table, and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_move_and_keep_their_order() {
    for (table, more) in [("moved", ""), ("moved_grace", "&durability=grace&longest_ttl=1m")] {
        let Some(url) = url(Kind::Postgres, table).await else { return };
        let url = url + more;
        let (holder, order) = (client(Kind::Postgres, &url).await, Order::default());
        let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
        let mut all = Vec::new();
        for (n, who) in ["one", "two", "three"].into_iter().enumerate() {
            all.push(waits(&url, who, n + 1, &order).await);
        }
        assert_eq!(places(&url, table).await, ["3", "0"]);
        all.push(waits(&url, "reader", 4, &order).await);
        assert_eq!(places(&url, table).await, ["0", "4"]);
        all.push(waits(&url, "last", 5, &order).await);
        assert_eq!(places(&url, table).await, ["0", "5"]);
        guard.release().await.expect("held");
        for one in all {
            one.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("no panic"), ["one", "two", "three", "reader", "last"]);
        assert_eq!(places(&url, table).await, ["0", "0"]);

        // Without readers, the places are in the row again.
        let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
        let last = waits(&url, "again", 1, &order).await;
        assert_eq!(places(&url, table).await, ["1", "0"]);
        guard.release().await.expect("held");
        last.await.expect("no panic");
    }
}

/// A release moves places back from the table as soon as nobody else is among the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_moves_places_back() {
    let table = "refilled";
    let Some(url) = url(Kind::Postgres, table).await else { return };
    let (holder, leaver) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
    let reading = tokio::spawn(leaver.read("a").wait(LONG).into_future());
    becomes(&holder, 1).await;
    let mut waiting = Vec::new();
    for n in 0..3 {
        let locks = client(Kind::Postgres, &url).await;
        waiting.push(tokio::spawn(locks.lock("a").ttl(LONG).wait(LONG).into_future()));
        becomes(&holder, n + 2).await;
    }
    assert_eq!(places(&url, table).await, ["0", "4"]);
    reading.abort();
    becomes(&holder, 3).await;
    guard.release().await.expect("held");
    let mut waiting = waiting.into_iter();
    let next = waiting.next().expect("three").await.expect("no panic").expect("its turn");
    let end = Instant::now() + LONG;
    while places(&url, table).await != ["2", "0"] {
        assert!(Instant::now() < end, "they stay: {:?}", places(&url, table).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    next.release().await.expect("held");
    for one in waiting {
        one.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// Places of processes that are gone are passed over by one release, however many they are, and a place of a
/// process that lives stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_passed_over() {
    const DEAD: usize = 20;
    let table = "passed_over";
    let Some(url) = url(Kind::Postgres, table).await else { return };
    let (holder, order) = (client(Kind::Postgres, &url).await, Order::default());
    let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
    // The dead are places that this test plays: older than a heartbeat lasts, of clients that nobody knows.
    let dead = format!(
        "UPDATE {table} SET queue_owners = (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {DEAD})),
             queue_clients = (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {DEAD})),
             queue_labels = array_fill('dead'::text, ARRAY[{DEAD}]),
             queue_numbers = array_fill(1::bigint, ARRAY[{DEAD} * 5]) WHERE name = 'a'"
    );
    admin(Kind::Postgres, &url, &dead).await;
    let alive = waits(&url, "alive", 1, &order).await;
    assert_eq!(places(&url, table).await, [(DEAD + 1).to_string(), "0".to_owned()]);
    guard.release().await.expect("held");
    let granted = Instant::now();
    alive.await.expect("no panic");
    // Much less than a provisional lease for each.
    assert!(granted.elapsed() < Duration::from_secs(10), "{:?}", granted.elapsed());
    assert_eq!(places(&url, table).await, ["0", "0"]);
}

/// A claim that gives up leaves its place in the row, and a dead holder's lock goes to the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_leaves_the_row() {
    let table = "given_up";
    let Some(url) = url(Kind::Postgres, table).await else { return };
    let (holder, order) = (client(Kind::Postgres, &url).await, Order::default());
    let leaver = client(Kind::Postgres, &url).await;
    let guard = holder.lock("a").ttl(LONG).await.expect("a free lock");
    let leaving = tokio::spawn(leaver.lock("a").wait(LONG).into_future());
    becomes(&holder, 1).await;
    let next = waits(&url, "next", 2, &order).await;
    assert_eq!(places(&url, table).await, ["2", "0"]);
    leaving.abort();
    becomes(&holder, 1).await;
    assert_eq!(places(&url, table).await, ["1", "0"]);
    // The lease ends without a release.
    admin(Kind::Postgres, &url, &format!("UPDATE {table} SET expires_at = now(), owner = gen_random_uuid()"))
        .await;
    next.await.expect("no panic");
    assert_eq!(*order.lock().expect("no panic"), ["next"]);
    drop(guard);
}

/// Between processes that take turns, nothing is written but the lock's row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_write_no_other_row() {
    let table = "turns";
    let Some(url) = url(Kind::Postgres, table).await else { return };
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let mut places = Vec::new();
    let mut guard = one.lock("a").ttl(LONG).await.expect("a free lock");
    for turn in 0..20_usize {
        let next = if turn.is_multiple_of(2) { &two } else { &one };
        let waiting = tokio::spawn(next.lock("a").ttl(LONG).wait(LONG).into_future());
        becomes(&one, 1).await;
        guard.release().await.expect("held");
        guard = waiting.await.expect("no panic").expect("its turn");
        // The first ones may not have known that notifications arrive.
        if turn >= 4 {
            let last = format!("SELECT last_value FROM {table}_waiters_ticket_seq");
            places.push(admin(Kind::Postgres, &url, &last).await);
        }
    }
    guard.release().await.expect("held");
    assert!(places.iter().all(|last| *last == places[0]), "places in the table: {places:?}");
}
