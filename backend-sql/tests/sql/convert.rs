//! Tables of PostgreSQL that are converted from one durability to the other.

use std::time::Duration;

use lockwell_core::ErrorKind;
use lockwell_sql::{PostgresLock, PostgresVerify};
use sqlx::Connection;
use testbed::Postgres;

use crate::crash::crash;
use crate::grace::{LONGEST, forgetful, is_closed, is_granted_later};
use crate::servers::{Kind, client, session};

pub(crate) const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_mins(2);

pub(crate) async fn convert(url: &str, wait: Duration) -> lockwell_core::Result<bool> {
    PostgresLock::convert(&url.parse().expect("an address"), wait).await
}

async fn refused(url: &str, kind: ErrorKind, words: &str) {
    let error = convert(url, NO_WAIT).await.expect_err(words);
    assert!(error.kind() == kind && error.to_string().contains(words), "{error:#}");
}

pub(crate) fn disk(server: &Postgres, table: &str) -> String {
    format!("{}?table={table}&durability=disk", server.url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_get_a_grace_period_while_nobody_holds_a_lock() {
    let Some((server, grace)) = forgetful("to_grace").await else { return };
    let disk = disk(&server, "to_grace");
    refused(&grace, ErrorKind::Misconfigured, "there are no lock tables").await;
    let old = client(Kind::Postgres, &disk).await;
    refused(&disk.replace("&durability=disk", ""), ErrorKind::InvalidInput, "add durability=").await;
    assert!(!convert(&disk, NO_WAIT).await.expect("nothing to do"));
    for reads in [false, true] {
        let guard = if reads { old.read("a").await } else { old.lock("a").await }.expect("a free lock");
        refused(&grace, ErrorKind::Held, "1 locks are held").await;
        guard.release().await.expect("held");
    }
    // Whoever has verified a lock is waited for as well, also when the lease has ended meanwhile.
    let verified = old.lock("verified").ttl(Duration::from_secs(1)).await.expect("a free lock");
    let mut session = session(&disk).await;
    let mut transaction = session.begin().await.expect("a transaction");
    verified.verify_in(&mut transaction).await.expect("held");
    let held = "SELECT count(*) FROM to_grace WHERE expires_at > clock_timestamp()";
    while server.admin_sql(held).await.expect("an answer").trim() != "0" {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    refused(&grace, ErrorKind::Held, "others use the lock tables").await;
    let guard = old.lock("a").await.expect("a free lock");
    let last = guard.token();
    let converting = {
        let grace = grace.clone();
        tokio::spawn(async move { convert(&grace, LONG).await })
    };
    refused(&grace, ErrorKind::Held, "1 locks are held").await;
    transaction.commit().await.expect("it commits");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!converting.is_finished());
    guard.release().await.expect("held");
    assert!(converting.await.expect("no panic").expect("it is free"));
    assert!(!convert(&grace, NO_WAIT).await.expect("nothing to do"));

    for request in [old.lock("a"), old.lock("b"), old.read("b")] {
        let error = request.wait(LONG).await.expect_err("other tables");
        assert!(
            error.kind() == ErrorKind::Misconfigured && error.to_string().contains("connect again"),
            "{error:#}"
        );
    }
    let new = client(Kind::Postgres, &grace).await;
    let guard = new.lock("a").ttl(LONGEST).await.expect("a free lock");
    assert!(guard.token() > last, "{} after {last}", guard.token());
    crash(&server).await;
    is_closed(&new, "b").await;
    for other in [&disk, &grace.replace("=4s", "=9s")] {
        refused(other, ErrorKind::GracePeriod, "not known who holds").await;
    }
    is_granted_later(&new, "b").await;
    assert!(guard.is_held());
    guard.release().await.expect("held");
    refused(&disk, ErrorKind::Conflict, "tokens are ahead of the clock").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_get_another_longest_lease_and_wait_for_the_disk() {
    let Some((server, grace)) = forgetful("to_disk").await else { return };
    let (disk, longer) = (disk(&server, "to_disk"), grace.replace("=4s", "=9s"));
    let old = client(Kind::Postgres, &grace).await;
    let guard = old.read("a").ttl(LONGEST).await.expect("a free lock");
    for url in [&disk, &longer] {
        refused(url, ErrorKind::Held, "1 locks are held").await;
    }
    guard.release().await.expect("held");
    let pooled = format!("{longer}&pooled=true");
    assert!(convert(&pooled, NO_WAIT).await.expect("it is free"));
    let new = client(Kind::Postgres, &longer).await;
    let guard = new.lock("a").ttl(LONGEST * 2).await.expect("a free lock");
    let token = guard.token();
    guard.release().await.expect("held");
    drop(new);
    assert!(convert(&disk, NO_WAIT).await.expect("it is free"));
    // What was granted before is on the disk, and there is no grace period any more.
    crash(&server).await;
    let kept = server.admin_sql("SELECT token FROM to_disk WHERE name = 'a'").await.expect("an answer");
    assert_eq!(kept.trim(), token.to_string());
    let locks = client(Kind::Postgres, &disk).await;
    let next = locks.lock("a").wait(LONG).await.expect("a free lock");
    assert!(next.token() > token, "{} after {token}", next.token());
    next.release().await.expect("held");
    assert!(convert(&grace, NO_WAIT).await.expect("and back"));
}

/// An administrator converts tables of which an application may not change the form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_could_use_the_tables_still_can() {
    let Some((server, grace)) = forgetful("granted").await else { return };
    drop(client(Kind::Postgres, &disk(&server, "granted")).await);
    let rights = "CREATE ROLE \"an App\" LOGIN;
        GRANT SELECT, INSERT, UPDATE ON granted TO \"an App\";
        GRANT SELECT, INSERT, UPDATE, DELETE ON granted_waiters, granted_clients, granted_members TO \"an App\"";
    server.admin_sql(rights).await.expect("a role");
    let app = grace.replace("postgres@", "an%20App@") + "&create=false";
    refused(&app, ErrorKind::Refused, "only the owner of the tables").await;
    assert!(convert(&grace, NO_WAIT).await.expect("an administrator may"));
    let locks = client(Kind::Postgres, &app).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    crash(&server).await;
    is_closed(&locks, "a").await;
    is_granted_later(&locks, "a").await;
}
