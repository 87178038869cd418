//! What requests do that come again, or at an unusual moment.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant, LockName, Mode, Moment, ServerUrl, Wait};
use sqlx_core::connection::ConnectOptions;
use sqlx_sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::connection::Connection;
use super::driver::Sqlite;
use crate::dialect::Dialect;
use crate::dialect::database::Database;
use crate::sql::options::SqlOptions;
use crate::words::{Forced, Hold, NO_TICKET, TakeRequest, TryAcquire, micros};

const SHORT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_mins(10);

/// A driver for a new file that has tables, and a connection.
async fn opened(folder: &TempDir) -> (Sqlite, Connection) {
    let file = folder.path().join("locks.db");
    let url: ServerUrl = format!("sqlite://{}", file.display()).parse().expect("an address");
    let options = SqlOptions::read(&url, &[]).expect("no options");
    let dialect = Sqlite::on(&url, &options, &options.table, file).expect("a driver");
    let mut conn = dialect.connect(&Waiters::new()).await.expect("a file");
    dialect.create(&mut conn).await.expect("tables");
    (dialect, conn)
}

async fn take(dialect: &Sqlite, conn: &mut Connection, claim: &Claim) {
    let request = [TakeRequest::new(claim, NO_TICKET)];
    let taken = match claim.mode() {
        Mode::Exclusive => dialect.take(conn, &request).await,
        mode => dialect.join(conn, mode, &request).await,
    };
    let taken = taken.expect("an answer");
    assert!(matches!(taken[..], [TryAcquire::Granted(_)]), "{taken:?}");
}

/// The first try has committed, and failed afterwards, such as when it looked for the next waiter. Another
/// takes the lock before the second try.
#[tokio::test]
async fn a_repeated_forced_release_frees_no_successor() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dialect, mut conn) = opened(&folder).await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let name = LockName::new(format!("{mode:?}")).expect("a name");
        let claim = || Claim::new(name.clone(), mode, LONG, Wait::No, "test".into());
        take(&dialect, &mut conn, &claim()).await;
        let forced = Forced::default();
        for holders in [0, 1] {
            let freed = dialect.force_release(&mut conn, &name, &forced).await.expect("an answer");
            assert_eq!(freed, 1, "{mode:?}: the one who held it at first");
            let status = dialect.inspect(&mut conn, &name).await.expect("an answer");
            assert_eq!(status.holders.len(), holders, "{mode:?}");
            if holders == 0 {
                take(&dialect, &mut conn, &claim()).await;
            }
        }
        let another = Forced::default();
        let freed = dialect.force_release(&mut conn, &name, &another).await.expect("an answer");
        assert_eq!(freed, 1, "{mode:?}");
        assert!(!dialect.inspect(&mut conn, &name).await.expect("an answer").is_held(), "{mode:?}");
    }
}

/// A claim enters the queue at once, and a release grants the lock to it before it asks. Its lease is longer
/// than all before. The tables must know that: if grants are lost, it is how long nothing is granted.
#[tokio::test]
async fn a_grant_that_is_read_has_a_lease_that_the_tables_know() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dialect, mut conn) = opened(&folder).await;
    let name = LockName::new("a").expect("a name");
    let claim = |ttl| Claim::new(name.clone(), Mode::Exclusive, ttl, Wait::No, "test".into());
    let (holder, next) = (claim(SHORT), claim(LONG));
    take(&dialect, &mut conn, &holder).await;
    let entered = dialect.enqueue(&mut conn, &next, true).await;
    let ticket = entered.expect("an answer").0;
    // Also where grants are synced, and a release grants nothing.
    let lease = sqlx_core::query::query("UPDATE lockwell_locks_queue SET lease = 2999999");
    lease.execute(conn.get()).await.expect("a place");
    let freed = dialect.release(&mut conn, &[holder]).await.expect("an answer");
    let granted = freed[0].notification.and_then(|notification| notification.granted);
    let announced = granted.map(|granted| granted.token());
    assert!(announced.is_some(), "{freed:?}");
    let request = TakeRequest { announced, ..TakeRequest::new(&next, ticket) };
    let taken = dialect.take(&mut conn, &[request]).await.expect("an answer");
    let [TryAcquire::HandedOver(token, _) | TryAcquire::Granted(token)] = taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!(Some(token), announced);
    let longest =
        sqlx_core::query_scalar::query_scalar(dialect.sql.longest_ttl.get()).fetch_one(conn.get()).await;
    let longest: i64 = longest.expect("an answer");
    assert!(longest >= micros(LONG), "{longest}");
}

/// Does some work step by step. Before each step but the first, nobody has locked the file: whoever is
/// stopped there keeps nobody from writing.
async fn in_steps<T>(folder: &TempDir, what: &str, work: impl Future<Output = sqlx_core::Result<T>>) -> T {
    let other = SqliteConnectOptions::new().filename(folder.path().join("locks.db"));
    let mut other = other.busy_timeout(Duration::ZERO).connect().await.expect("a connection");
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return done.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        // What was sent to the thread of the connection is carried out.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let wrote = sqlx_core::raw_sql::raw_sql("BEGIN IMMEDIATE; COMMIT").execute(&mut other).await;
        wrote.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[tokio::test]
async fn no_request_about_a_group_keeps_the_file_locked_between_two_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dialect, mut conn) = opened(&folder).await;
    let name = LockName::new("a").expect("a name");
    let claim = |mode| Claim::new(name.clone(), mode, SHORT, Wait::No, "test".into());
    let asked = |claims: &[Claim]| -> Vec<TakeRequest> {
        claims.iter().map(|claim| TakeRequest::new(claim, NO_TICKET)).collect()
    };
    let readers = [claim(Mode::Shared), claim(Mode::Shared)];
    // The first one makes the tables know its lease.
    take(&dialect, &mut conn, &readers[0]).await;
    let again = asked(&readers);
    let joined = in_steps(&folder, "join", dialect.join(&mut conn, Mode::Shared, &again)).await;
    assert!(matches!(joined[..], [TryAcquire::Member(_), TryAcquire::Granted(_)]), "{joined:?}");
    let strangers = [readers[1].clone(), claim(Mode::Shared), readers[0].clone()];
    let left = in_steps(&folder, "leave", dialect.leave_group(&mut conn, &strangers)).await;
    assert_eq!(left.iter().map(|freed| freed.released).collect::<Vec<_>>(), [true, false, true]);

    let writer = claim(Mode::Exclusive);
    let writes = asked(std::slice::from_ref(&writer));
    let taken = in_steps(&folder, "take", dialect.take(&mut conn, &writes)).await;
    let [TryAcquire::Granted(token)] = taken[..] else { panic!("{taken:?}") };
    let grant = Grant::new(&writer, token, Moment::now());
    for _ in 0..2 {
        assert!(in_steps(&folder, "downgrade", dialect.downgrade(&mut conn, &grant)).await);
    }
    let grants = [grant.downgraded()];
    in_steps(&folder, "renew", dialect.renew(&mut conn, Hold::Together, &grants)).await;
    in_steps(&folder, "reap", dialect.reap(&mut conn, std::slice::from_ref(&name))).await;
    let status = dialect.inspect(&mut conn, &name).await.expect("an answer");
    assert_eq!(status.holders.len(), 1, "{status:?}");
    let left = dialect.leave_group(&mut conn, std::slice::from_ref(&writer));
    assert!(in_steps(&folder, "leave", left).await[0].released);
    assert!(!dialect.inspect(&mut conn, &name).await.expect("an answer").is_held());
}

#[tokio::test]
async fn no_batch_keeps_the_file_locked_between_two_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dialect, mut conn) = opened(&folder).await;
    let claim = |name: &str, mode| {
        let name = LockName::new(name).expect("a name");
        Claim::new(name, mode, SHORT, Wait::No, "test".into())
    };
    // The first one makes the tables know its lease.
    let held = claim("held", Mode::Exclusive);
    take(&dialect, &mut conn, &held).await;
    // More than the thread of the connection can answer before somebody receives it.
    let mut claims: Vec<_> = (0..100).map(|n| claim(&format!("{n}"), Mode::Exclusive)).collect();
    claims.extend([claim("held", Mode::Exclusive), held.clone()]);
    let asked: Vec<_> = claims.iter().map(|claim| TakeRequest::new(claim, NO_TICKET)).collect();
    let mut first = Vec::new();
    for _ in 0..2 {
        let taken = in_steps(&folder, "take", dialect.take(&mut conn, &asked)).await;
        let tokens: Vec<_> = taken.iter().filter(|one| matches!(one, TryAcquire::Granted(_))).collect();
        assert_eq!(tokens.len(), claims.len() - 1, "{taken:?}");
        assert!(matches!(taken[100], TryAcquire::Busy(Some(_), _)), "{taken:?}");
        // Those that ask again keep their tokens.
        assert!(first.is_empty() || taken[..100] == first[..100]);
        first = taken;
    }

    let waiter = claim("7", Mode::Exclusive);
    let entered = dialect.enqueue(&mut conn, &waiter, true).await;
    assert!(entered.expect("an answer").1.is_some());
    sqlx_core::query::query("UPDATE lockwell_locks_queue SET lease = 2999999")
        .execute(conn.get())
        .await
        .expect("a place");
    let stranger = claim("99", Mode::Exclusive);
    let with_stranger = [&claims[50..60], std::slice::from_ref(&stranger)].concat();
    // One is waited for; one holds nothing; nobody waits for any of them; one is held by another.
    for released in [&claims[..50], &with_stranger, &claims[60..100], &claims[100..]] {
        let freed = in_steps(&folder, "release", dialect.release(&mut conn, released)).await;
        for (claim, freed) in released.iter().zip(freed) {
            let is_held = ![stranger.owner(), claims[100].owner()].contains(&claim.owner());
            assert_eq!((freed.released, freed.in_doubt), (is_held, false), "{}", claim.name());
            assert_eq!(freed.notification.is_some(), claim.name() == waiter.name(), "{}", claim.name());
        }
    }
    for claim in &claims {
        let is_held = dialect.inspect(&mut conn, claim.name()).await.expect("an answer").is_held();
        assert_eq!(is_held, claim.name() == waiter.name(), "{}", claim.name());
    }

    let readers = [claim("book", Mode::Shared), claim("book", Mode::Shared)];
    for reader in &readers {
        take(&dialect, &mut conn, reader).await;
    }
    for (name, holders) in [("book", 2), ("7", 1), ("free", 0)] {
        let (name, forced) = (LockName::new(name).expect("a name"), Forced::default());
        let freed = in_steps(&folder, "force", dialect.force_release(&mut conn, &name, &forced)).await;
        assert_eq!(freed, holders, "{name}");
        assert!(!dialect.inspect(&mut conn, &name).await.expect("an answer").is_held(), "{name}");
    }
}
