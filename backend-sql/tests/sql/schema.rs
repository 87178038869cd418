//! The form of the tables.

use std::time::Duration;

use lockwell_core::ErrorKind;

use crate::servers::{ALL, Kind, admin, backend, client, session, url, waiters};

/// Tables that lack a column are refused, whether or not missing tables may be created, and left as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_another_form_are_refused() {
    for kind in ALL {
        let Some(url) = url(kind, "formed").await else { continue };
        client(kind, &url).await.lock("a").await.expect("a free lock").release().await.expect("held");
        let mut columns = vec![
            ("formed".to_owned(), "mode"),
            ("formed_members".to_owned(), "mode"),
            (waiters(kind, "formed"), "entered_at"),
        ];
        if kind != Kind::Sqlite {
            columns.push(("formed_clients".to_owned(), "alive_until"));
        }
        for (table, column) in columns {
            admin(kind, &url, &format!("ALTER TABLE {table} RENAME COLUMN {column} TO another")).await;
            for create in [false, true] {
                let error = backend(kind, &format!("{url}&create={create}")).await;
                let error = error.expect_err("a column is missing");
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{kind:?} {table}: {error:#}");
                let text = error.to_string();
                assert!(
                    text.contains("not of the form") && text.contains("`lockwell schema`"),
                    "{kind:?} {table}: {error:#}"
                );
            }
            admin(kind, &url, &format!("ALTER TABLE {table} RENAME COLUMN another TO {column}")).await;
            let locks = client(kind, &format!("{url}&create=false")).await;
            locks.lock("a").await.expect("a free lock").release().await.expect("held");
        }
    }
}

/// Only what a crash may empty is UNLOGGED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_and_the_mark_are_unlogged_and_nothing_else() {
    let (kind, table) = (Kind::Postgres, "queued");
    let Some(url) = url(kind, table).await else { return };
    drop(client(kind, &url).await);
    let sql = "SELECT string_agg(relname || ' ' || relpersistence::text, ', ' ORDER BY relname) FROM pg_class
        WHERE relkind = 'r' AND relname LIKE 'queued%'";
    let found = admin(kind, &url, sql).await;
    assert_eq!(
        found.trim(),
        "queued p, queued_clients u, queued_mark u, queued_members p, queued_records p, queued_state p, queued_waiters u"
    );
}

/// Somebody changes a table and does not end: connecting stops waiting before all others wait for that, and
/// says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_does_not_wait_for_long() {
    let (kind, table) = (Kind::Postgres, "changed");
    let Some(url) = url(kind, table).await else { return };
    drop(client(kind, &url).await);
    let mut change = session(&url).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE changed").execute(&mut change).await.expect("it is locked");
    let began = std::time::Instant::now();
    let error = backend(kind, &format!("{url}&timeout=3s")).await.expect_err("the table is locked");
    println!("{:?}: {error:#}", began.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    assert!(error.to_string().contains("kept the lock tables locked"), "{error:#}");
    assert!(began.elapsed() < Duration::from_secs(8));
    sqlx::raw_sql("COMMIT").execute(&mut change).await.expect("it ends");
    client(kind, &url).await.lock("b").await.expect("a free lock").release().await.expect("held");
}
