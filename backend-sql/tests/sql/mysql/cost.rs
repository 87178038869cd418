//! How many rows the server reads for a hand-over, where the tables are large.

use lockwell_core::Locks;
use testbed::MariaDb;

use super::{RELEASES, connect, counted, options, start};
use crate::servers::wait_for;

/// How many rows of others each table has, but that of clients.
const OTHERS: u64 = 3000;
const CLIENTS: u64 = 30;
const TIMES: u64 = 20;

/// Fills the tables with what belongs to other locks, for each of which several wait, and to other clients,
/// who are alive.
async fn fill(server: &MariaDb, table: &str) {
    let rows = |many: u64, row: &dyn Fn(u64) -> String| (1..=many).map(row).collect::<Vec<_>>().join(",");
    let far = 9_000_000_000_000_000_u64;
    let id = |n: u64| format!("UNHEX(LPAD(HEX({n}), 32, '0'))");
    let locks = rows(OTHERS, &|n| format!("('other{n}', {}, {n}, {far}, {n}, '', 0, 0, 1)", id(n)));
    let members = rows(OTHERS, &|n| format!("('other{n}', {}, {n}, {far}, {n}, '', -1)", id(n)));
    let places = rows(OTHERS, &|n| {
        let (name, client, mode) = (n % (OTHERS / 10), id(n % CLIENTS + 1), n % 2);
        format!("({}, 'other{name}', {client}, {n}, '', {mode}, 1, 1000, {n})", id(n))
    });
    let clients = rows(CLIENTS, &|n| format!("({}, {far}, {n})", id(n)));
    let sql = format!(
        "INSERT INTO {table} (name, owner, token, expires_at, acquired_at, label, mode, members, waited) VALUES {locks};
         INSERT INTO {table}_members (name, owner, token, expires_at, acquired_at, label, mode) VALUES {members};
         INSERT INTO {table}_waiters (owner, name, client, number, label, mode, tokens, lease, entered_at) VALUES {places};
         INSERT INTO {table}_clients (client, alive_until, last_sign) VALUES {clients};
         ANALYZE TABLE {table}, {table}_members, {table}_waiters, {table}_clients"
    );
    server.admin_sql(&sql).await.expect("an administrator");
}

/// Rows that were read one after the other, by a scan of a table or of a range of an index.
async fn read(server: &MariaDb) -> u64 {
    counted(server, "Handler_read_rnd_next").await + counted(server, "Handler_read_next").await
}

/// A lock goes from one client to the other and back; as a mutex, or between a writer and a reader.
async fn pass(one: &Locks, two: &Locks, shared: bool) {
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = if shared { two.read("a").into_future() } else { two.lock("a").into_future() };
    let waiting = tokio::spawn(waiting);
    wait_for(one, "a", 1).await;
    guard.release().await.expect("held");
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(one.lock("a").try_now().await.expect("an answer").is_none(), "the other holds it");
    next.release().await.expect("held");
}

/// No statement of an acquire, a refusal, a place, a look of a parked connection or a release scans a table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_reads_few_rows() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (one, two) = (connect(&server, "large").await, connect(&server, "large").await);
        fill(&server, "large").await;
        for shared in [false, true] {
            pass(&one, &two, shared).await;
            let before = read(&server).await;
            for _ in 0..TIMES {
                pass(&one, &two, shared).await;
            }
            // To ask for the numbers reads some hundred rows as well.
            let rows = read(&server).await - before;
            println!("{release}: {rows} rows read for {TIMES} hand-overs, shared: {shared}");
            assert!(rows < TIMES * OTHERS / 4, "{release}: {rows} rows read, shared: {shared}");
        }
    }
}
