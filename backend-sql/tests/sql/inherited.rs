//! What a PostgreSQL session inherits from its role and its database does not change what locks mean.

use std::time::Duration;

use lockwell_core::{ErrorKind, Locks};
use lockwell_sql::PostgresVerify;
use sqlx::Connection;
use testbed::{Durability, Options, PgBouncer, Postgres, is_installed};
use tokio::sync::OnceCell;

use crate::servers::{Kind, backend, client, options, session};

/// A server of its own, since what is set for the database would meet other tests; and a pooler before it.
async fn servers() -> Option<(&'static Postgres, &'static PgBouncer)> {
    static SERVERS: OnceCell<(Postgres, PgBouncer)> = OnceCell::const_new();
    if !is_installed(PgBouncer::installed()) {
        return None;
    }
    let start = || async {
        let server = Postgres::start_with(&options()).await.expect("PostgreSQL starts");
        // Whoever comes is whom they say they are, at the server as well.
        let options = Options::new().durability(Durability::OsCache).setting("default_pool_size", "2");
        let pooler = PgBouncer::start_for_all(&server, &options).await.expect("the pooler starts");
        (server, pooler)
    };
    let (server, pooler) = SERVERS.get_or_init(start).await;
    Some((server, pooler))
}

/// A role with these settings, and its addresses: one of the server, and two of the pooler.
async fn role(name: &str, settings: &[&str]) -> Option<[String; 3]> {
    let (server, pooler) = servers().await?;
    let set = settings.iter().flat_map(|setting| ["ALTER ROLE ", name, " SET ", setting, ";\n"]);
    let sql = format!("CREATE ROLE {name} LOGIN SUPERUSER;\n{}", set.collect::<String>());
    server.admin_sql(&sql).await.expect("a role");
    let url =
        |url: String, more: &str| url.replace("postgres@", &format!("{name}@")) + "?table=" + name + more;
    Some([url(server.url(), ""), url(pooler.url(), ""), url(pooler.url(), "&pooled=true")])
}

/// Two clients of the role take turns, alone and together, and wait for each other under contention.
async fn take_turns(url: &str) -> [Locks; 2] {
    let clients = [client(Kind::Postgres, url).await, client(Kind::Postgres, url).await];
    let mut tasks = Vec::new();
    for locks in clients.iter().chain(&clients) {
        let locks = locks.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = locks.lock("it's\\").wait(Duration::from_mins(1)).await.expect("its turn comes");
                let other = locks.lock("it's\\").try_now().await.expect("an answer");
                assert!(other.is_none(), "it is held");
                guard.release().await.expect("held");
                let guard = locks.permit("permit", 2).wait(Duration::from_mins(1)).await.expect("its turn");
                guard.release().await.expect("held");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no task fails");
    }
    let guard = clients[0].lock("forced").await.expect("a free lock");
    assert_eq!(clients[1].force_release("forced").await.expect("an answer"), 1);
    drop(guard);
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolation() {
    for (name, level) in [("repeatable", "'repeatable read'"), ("serializable", "'serializable'")] {
        let setting = format!("default_transaction_isolation = {level}");
        let Some(urls) = role(name, &[&setting, "default_transaction_deferrable = on"]).await else { return };
        for url in urls {
            take_turns(&url).await;
        }
    }
}

/// Times that no statement of ours, and no connection that waits, keeps to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_outs() {
    let settings = [
        // What a busy machine needs between two steps of ours.
        "statement_timeout = '10ms'",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '10ms'",
        "idle_session_timeout = '200ms'",
    ];
    let Some(urls) = role("timed", &settings).await else { return };
    for url in urls {
        take_turns(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms() {
    let settings = [
        "standard_conforming_strings = off",
        "backslash_quote = on",
        "escape_string_warning = off",
        "TimeZone = 'Asia/Kathmandu'",
        "DateStyle = 'Postgres, DMY'",
        "IntervalStyle = sql_standard",
        "bytea_output = escape",
        "extra_float_digits = -15",
        "client_encoding = LATIN1",
        "session_replication_role = replica",
        "plan_cache_mode = force_generic_plan",
        "transform_null_equals = on",
        "row_security = off",
        "client_min_messages = error",
    ];
    let Some(urls) = role("formed", &settings).await else { return };
    for url in urls {
        let [locks, other] = take_turns(&url).await;
        let odd = locks.lock("ünï\\'\"$1").label("läbel\\'").await.expect("a free lock");
        assert_eq!(other.inspect("ünï\\'\"$1").await.expect("an answer").holders[0].label, "läbel\\'");
        odd.release().await.expect("held");
    }
}

/// A search path with functions and operators that lie, tables that are in the way, and temporary ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_path() {
    let Some((server, pooler)) = servers().await else { return };
    server
        .admin_sql(
            "CREATE SCHEMA evil;
             CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '9999-01-01' $$;
             CREATE FUNCTION evil.always(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
             CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.always);
             CREATE FUNCTION evil.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT 1::bigint $$;",
        )
        .await
        .expect("lies");
    let Some(urls) = role("lied_to", &["search_path = evil, pg_catalog, public"]).await else { return };
    let honest = client(Kind::Postgres, &(server.url() + "?table=public.lied_to")).await;
    for url in &urls {
        let [locks, _] = take_turns(&(url.replace("table=", "table=public."))).await;
        let guard = honest.lock("shared").await.expect("a free lock");
        assert!(locks.lock("shared").try_now().await.expect("an answer").is_none(), "it is held");
        let mut conn = session(&urls[0]).await;
        let mut transaction = conn.begin().await.expect("a transaction");
        guard.verify_in(&mut transaction).await.expect("it is held");
        transaction.rollback().await.expect("rolled back");
        guard.release().await.expect("held");
    }
    // The first schema of the path is where a table is made if there is none. Here there are two then.
    server.admin_sql("CREATE TABLE evil.lied_to (LIKE public.lied_to)").await.expect("a table in the way");
    for url in &urls {
        let error = backend(Kind::Postgres, url).await.expect_err("which one?");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("table=SCHEMA.NAME"), "{error:#}");
    }
    // A client of the pooler leaves a temporary table in a session.
    let mut conn = session(&pooler.url().replace("postgres@", "lied_to@")).await;
    sqlx::raw_sql("CREATE TEMPORARY TABLE lied_to (LIKE public.lied_to)")
        .execute(&mut conn)
        .await
        .expect("a table");
    take_turns(&urls[2].replace("table=", "table=public.")).await;
}

/// A name that is a word of SQL, and one with capital letters, which PostgreSQL never had.
#[tokio::test]
async fn names_of_tables() {
    let Some((server, _)) = servers().await else { return };
    for table in ["order", "public.User", "Selected"] {
        let locks = client(Kind::Postgres, &format!("{}?table={table}", server.url())).await;
        locks.lock("a").await.expect("a free lock").release().await.expect("held");
    }
    assert_eq!(server.admin_sql("SELECT count(*) FROM selected").await.expect("small letters").trim(), "1");
}

/// What would let a lock be granted twice is refused, and said.
#[tokio::test]
async fn what_cannot_work_is_said() {
    let Some((server, _)) = servers().await else { return };
    let url = server.url().replace("postgres@", "limited@");
    drop(client(Kind::Postgres, &(server.url() + "?table=hidden")).await);
    drop(client(Kind::Postgres, &(server.url() + "?table=forgetful")).await);
    server
        .admin_sql(
            "CREATE ROLE limited LOGIN; GRANT ALL ON hidden, hidden_members, hidden_waiters, hidden_clients TO limited;
             GRANT ALL ON hidden_state, hidden_mark, forgetful_state, forgetful_mark TO limited;
             ALTER TABLE hidden_members ENABLE ROW LEVEL SECURITY;
             ALTER TABLE forgetful SET UNLOGGED; GRANT ALL ON forgetful, forgetful_members TO limited;
             GRANT ALL ON forgetful_waiters, forgetful_clients TO limited;
             CREATE ROLE limited_to_reading LOGIN; ALTER ROLE limited_to_reading SET default_transaction_read_only = on;
             CREATE ROLE without_path LOGIN; ALTER ROLE without_path SET search_path = '';",
        )
        .await
        .expect("an administrator");
    for pooled in ["", "&pooled=true"] {
        for (user, table, kind, text) in [
            ("limited", "hidden", ErrorKind::Refused, "row-level security"),
            ("limited", "forgetful", ErrorKind::Misconfigured, "UNLOGGED"),
            ("limited_to_reading", "new", ErrorKind::Misconfigured, "read only"),
            ("without_path", "new", ErrorKind::Misconfigured, "table=SCHEMA.NAME"),
        ] {
            let url = url.replace("limited@", &format!("{user}@"));
            let error =
                backend(Kind::Postgres, &format!("{url}?table={table}{pooled}")).await.expect_err(user);
            assert_eq!(error.kind(), kind, "{user}: {error:#}");
            assert!(format!("{error:#}").contains(text), "{user}: {error:#}");
        }
    }
}
