//! A request that the database refuses fails alone, and not with the others that share its statement.

use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, Locks};

use crate::servers::{ALL, Kind, admin, client, url};

const LONG: Duration = Duration::from_secs(20);

/// One task asks for a lock that is refused again and again, and many for others.
async fn ask(kind: Kind, locks: &Locks, bad: &str) {
    let end = Instant::now() + Duration::from_secs(2);
    let tasks: Vec<_> = (0..30)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut round = 0;
                while Instant::now() < end {
                    round += 1;
                    for guard in [
                        locks.lock(format!("fine {task} {round}")).wait(LONG).await,
                        locks.read(format!("fine {task}")).wait(LONG).await,
                    ] {
                        guard.expect("a free lock").release().await.expect("held");
                    }
                }
            })
        })
        .collect();
    let mut tries = 0;
    while Instant::now() < end {
        tries += 1;
        for error in [
            locks.lock(format!("{bad} {tries}")).wait(LONG).await.expect_err("it is refused"),
            locks.read(format!("{bad} {tries}")).wait(LONG).await.expect_err("it is refused"),
        ] {
            assert_ne!(error.kind(), ErrorKind::Unreachable, "{kind:?}: {error:#}");
        }
    }
    assert!(tries > 1, "{kind:?}");
    for task in tasks {
        task.await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_a_rule_of_the_table() {
    for kind in ALL {
        let Some(url) = url(kind, "refused").await else { continue };
        let locks = client(kind, &url).await;
        let rule = match kind {
            Kind::Sqlite => {
                "CREATE TRIGGER rule BEFORE INSERT ON refused WHEN new.name LIKE 'bad %'
                 BEGIN SELECT RAISE(ABORT, 'no'); END"
            }
            Kind::MariaDb => {
                "DELIMITER //
                 CREATE TRIGGER rule BEFORE INSERT ON refused FOR EACH ROW
                 IF new.name LIKE 'bad %' THEN SIGNAL SQLSTATE '45000'; END IF//"
            }
            Kind::Postgres => "ALTER TABLE refused ADD CONSTRAINT rule CHECK (name NOT LIKE 'bad %')",
        };
        admin(kind, &url, rule).await;
        ask(kind, &locks, "bad").await;
    }
}

/// A name that the encoding of the database does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_encoding_of_the_database() {
    let Some(url) = url(Kind::Postgres, "refused").await else { return };
    let make = "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    admin(Kind::Postgres, &url, make).await;
    let url = url.replace("/postgres?", "/latin?");
    ask(Kind::Postgres, &client(Kind::Postgres, &url).await, "名").await;
}
