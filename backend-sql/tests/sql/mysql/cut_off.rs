//! A process that is cut off, or stopped, within a transaction of ours keeps no row locked for long. The
//! server cannot tell one from the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, Locks, Mode, Renewal};
use sqlx::{Connection, MySqlConnection};
use testbed::{Direction, MariaDb, Proxy};

use super::{RELEASES, connect, options, start};
use crate::servers::{Kind, claim, client, permit, soon};

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_mins(1);
/// How long a message takes, each way.
const WAY: Duration = Duration::from_millis(150);

/// How many transactions wait for the next message of their client: those that do so twice. The server shows
/// its list of transactions anew only after 100 ms without a look at it.
async fn idle(watching: &mut MySqlConnection) -> usize {
    let mut seen: Vec<Vec<String>> = Vec::new();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(120)).await;
        let sql = "SELECT CAST(t.trx_id AS CHAR(20)) FROM information_schema.innodb_trx AS t
            JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id WHERE p.command = 'Sleep'";
        seen.push(loop {
            match sqlx::query_scalar(sql).fetch_all(&mut *watching).await {
                Ok(ids) => break ids,
                // MySQL shows no list while a statement has bytes in it that are no text.
                Err(error) => assert!(error.to_string().contains("Cannot convert string"), "{error}"),
            }
        });
    }
    seen[0].iter().filter(|id| seen[1].contains(id)).count()
}

/// A client behind a network that is far away, on the tables of another one. It waits for longer than the
/// server does, and does not end a connection before.
async fn far_from(server: &MariaDb, table: &str) -> (Locks, Locks, Proxy) {
    let near = connect(server, table).await;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let far =
        client(Kind::MariaDb, &format!("{}?table={table}&timeout=30s", server.url_via(proxy.addr()))).await;
    (near, far, proxy)
}

/// All that readers, permits and renewals ask a server.
async fn use_groups(near: &Locks, far: &Locks) {
    let (near, far) = (near.backend(), far.backend());
    for (name, mode) in [("book", Mode::Shared), ("slots", permit(2)), ("book", Mode::Shared)] {
        let (one, other) = (claim(name, mode, LONG), claim(name, mode, LONG));
        let mut grants = Vec::new();
        for claim in [&one, &other] {
            grants.push(far.acquire(claim).await.expect("an answer").expect("a free lock"));
        }
        // One is lost, and which one that is takes another look.
        near.release(&one).await.expect("an answer");
        let renewed = far.renew(&grants, soon()).await;
        assert!(matches!(renewed[..], [Renewal::Lost, Renewal::Renewed(_)]), "{renewed:?}");
        far.release(&other).await.expect("an answer");
        // A member that is dead is removed by the next who asks.
        let dead = claim(name, mode, Duration::from_millis(10));
        near.acquire(&dead).await.expect("an answer").expect("a free lock");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let writer = claim(name, Mode::Exclusive, LONG);
        if mode == Mode::Shared {
            let grant = far.acquire(&writer).await.expect("an answer").expect("the dead do not stay");
            far.downgrade(&grant).await.expect("held");
            far.release(&writer).await.expect("an answer");
        }
    }
}

/// Between two messages of such a request, no transaction is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_about_groups_leaves_a_transaction_open() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (near, far, proxy) = far_from(&server, "open").await;
        use_groups(&near, &far).await;
        proxy.delay(WAY);
        let over = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn({
            let (over, url) = (Arc::clone(&over), server.url());
            async move {
                let mut watching = MySqlConnection::connect(&url).await.expect("a connection");
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(idle(&mut watching).await, 0, "{release}: a transaction waits for its client");
                }
            }
        });
        use_groups(&near, &far).await;
        over.store(true, Ordering::Relaxed);
        watching.await.expect("none waits");
    }
}

/// A forced release is several messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_keeps_no_row_locked() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let mut watching = MySqlConnection::connect(&server.url()).await.expect("a connection");
        let (near, far, proxy) = far_from(&server, "forced_off").await;
        far.inspect("a").await.expect("an answer");
        let guard = near.lock("a").ttl(LONG).await.expect("a free lock");
        proxy.delay(WAY);
        let forcing = tokio::spawn({
            let far = far.clone();
            async move { far.force_release("a").await }
        });
        let began = Instant::now();
        while idle(&mut watching).await == 0 {
            assert!(began.elapsed() < LONG, "{release}: no transaction was cut off");
        }
        proxy.blackhole(Direction::Both);
        let end = Instant::now() + LONG;
        loop {
            match &near.backend().renew(&[guard.grant().clone()], soon()).await[..] {
                [Renewal::Renewed(_)] => break,
                [Renewal::Lost] => panic!("{release}: nothing was committed"),
                renewed => assert!(Instant::now() < end, "{release}: the row is still locked: {renewed:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        guard.release().await.expect("held");
        let forced = tokio::time::timeout(LONG, forcing).await.expect("there is a time limit");
        let error = forced.expect("no panic").expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    }
}

/// A statement in the middle of a message fails, and the client that must end the transaction is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_keeps_no_row_locked() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let mut watching = MySqlConnection::connect(&server.url()).await.expect("a connection");
        let (near, far, proxy) = far_from(&server, "failed").await;
        let reader = claim("book", Mode::Shared, LONG);
        far.backend().acquire(&reader).await.expect("an answer").expect("a free lock");
        let mut user = MySqlConnection::connect(&server.url()).await.expect("a connection");
        let mut transaction = user.begin().await.expect("a transaction");
        let row = sqlx::raw_sql("SELECT 1 FROM failed_members FOR UPDATE");
        row.execute(&mut *transaction).await.expect("the member's row is locked");
        proxy.blackhole(Direction::ToClient);
        let leaving = tokio::spawn(async move { far.backend().release(&reader).await });
        let began = Instant::now();
        // That of the user is one.
        while idle(&mut watching).await < 2 {
            assert!(began.elapsed() < LONG, "{release}: no transaction was cut off");
        }
        // The end of its connection does not reach the server, either.
        proxy.blackhole(Direction::Both);
        transaction.rollback().await.expect("rolled back");
        let second = near.read("book").wait(LONG).await.expect("the row is not locked for long");
        second.release().await.expect("held");
        leaving.abort();
    }
}
