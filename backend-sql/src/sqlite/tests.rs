//! What requests do that come again, or at an unusual moment.

use std::time::Duration;

use lockwell_core::{Claim, LockName, Mode, ServerUrl, Wait};
use tempfile::TempDir;

use super::connection::Connection;
use super::driver::Sqlite;
use crate::dialect::Dialect;
use crate::dialect::database::Database;
use crate::dialect::groups::Groups;
use crate::sql::options::SqlOptions;
use crate::words::{Forced, NO_TICKET, TakeRequest, TryAcquire};

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
