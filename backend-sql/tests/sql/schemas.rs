//! PostgreSQL: whoever connects by the same address without a schema has the same table, or an error.

use lockwell_core::{Error, ErrorKind};

use crate::servers::{Kind, admin, backend, client, url};

const KIND: Kind = Kind::Postgres;

/// The address of a database of its own, for a user of it.
fn of(url: &str, database: &str, user: &str) -> String {
    url.replace("/postgres?", &format!("/{database}?")).replace("postgres@", &format!("{user}@"))
}

async fn refused(url: &str) -> Error {
    let error = backend(KIND, url).await.expect_err("another user has another table");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    error
}

/// Each user has a schema of the same name, as the manual of PostgreSQL recommends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_of_users_are_refused() {
    let Some(url) = url(KIND, "ours").await else { return };
    for user in ["anna", "bert"] {
        admin(
            KIND,
            &url,
            &format!("CREATE ROLE {user} LOGIN SUPERUSER; CREATE SCHEMA {user} AUTHORIZATION {user}"),
        )
        .await;
    }
    let [anna, bert] = ["anna", "bert"].map(|user| of(&url, "postgres", user));
    for (url, user) in [(&anna, "anna"), (&bert, "bert")] {
        assert!(refused(url).await.to_string().contains(&format!("table={user}.ours")));
    }
    // A table that is there already is no better.
    let [anna, bert] = [anna, bert].map(|url| (url.clone(), url.replace("table=", "table=anna.")));
    let held = client(KIND, &anna.1).await.lock("a").await.expect("a free lock");
    refused(&anna.0).await;
    refused(&bert.0).await;
    let other = client(KIND, &bert.1).await;
    assert!(other.lock("a").try_now().await.expect("an answer").is_none(), "it is held");
    held.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_of_one_user_is_refused_and_one_of_the_database_is_not() {
    let Some(url) = url(KIND, "ours").await else { return };
    admin(KIND, &url, "CREATE DATABASE pathed").await;
    admin(KIND, &url, "ALTER DATABASE pathed SET search_path = app; CREATE ROLE carl LOGIN SUPERUSER").await;
    let [everybody, carl] = ["postgres", "carl"].map(|user| of(&url, "pathed", user));
    let named = everybody.replace("table=", "table=app.");
    let missing = backend(KIND, &everybody).await.expect_err("there is no such schema");
    assert!(missing.to_string().contains("names no schema"), "{missing:#}");
    let mut conn = crate::servers::session(&everybody).await;
    sqlx::raw_sql("CREATE SCHEMA app").execute(&mut conn).await.expect("a schema");
    let held = client(KIND, &everybody).await.lock("a").await.expect("a free lock");
    for url in [&carl, &named] {
        assert!(
            client(KIND, url).await.lock("a").try_now().await.expect("an answer").is_none(),
            "it is held"
        );
    }
    admin(KIND, &url, "ALTER ROLE carl SET search_path = public").await;
    refused(&carl).await;
    held.release().await.expect("held");
}
