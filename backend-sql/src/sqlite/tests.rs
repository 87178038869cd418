//! What requests do that come again, or at an unusual moment.

use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, LockName, Mode, ServerUrl, Wait};
use tempfile::TempDir;

use super::connection::Connection;
use super::driver::Sqlite;
use crate::dialect::Dialect;
use crate::dialect::database::Database;
use crate::dialect::groups::Groups;
use crate::dialect::tickets::TicketQueue;
use crate::ids::AsUuid;
use crate::sql::options::SqlOptions;
use crate::words::{Forced, NO_TICKET, TakeRequest, TryAcquire, micros};

const SHORT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_mins(10);

/// A driver for a new file that has tables, and a connection.
async fn opened(folder: &TempDir) -> (Sqlite, Connection) {
    let file = folder.path().join("locks.db");
    let url: ServerUrl = format!("sqlite://{}", file.display()).parse().expect("an address");
    let options = SqlOptions::read(&url, &[]).expect("no options");
    let dialect = Sqlite::on(&url, &options, &options.table, file).expect("a driver");
    let mut conn = dialect.connect().await.expect("a file");
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
    let waiters = Waiters::new();
    let entered = dialect.enqueue(&mut conn, &next, waiters.client().as_uuid(), true).await;
    let ticket = entered.expect("an answer").ticket;
    // Also where grants are synced, and a release grants nothing.
    let lease = sqlx::query("UPDATE lockwell_locks_queue SET lease = 2999999");
    lease.execute(conn.get()).await.expect("a place");
    let freed = dialect.release(&mut conn, &[holder], &waiters).await.expect("an answer");
    let granted = freed[0].notification.and_then(|notification| notification.granted);
    let announced = granted.map(|granted| granted.token());
    assert!(announced.is_some(), "{freed:?}");
    let request = TakeRequest { announced, ..TakeRequest::new(&next, ticket) };
    let taken = dialect.take(&mut conn, &[request]).await.expect("an answer");
    let [TryAcquire::HandedOver(token, _) | TryAcquire::Granted(token)] = taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!(Some(token), announced);
    let longest = sqlx::query_scalar(dialect.sql.longest_ttl.get()).fetch_one(conn.get()).await;
    let longest: i64 = longest.expect("an answer");
    assert!(longest >= micros(LONG), "{longest}");
}
