//! Clients of PostgreSQL whose grants wait for the disk, and clients whose grants do not, on the same tables.

use std::time::Duration;

use lockwell_core::{ErrorKind, Grant, Mode, Renewal};
use testbed::{Postgres, Proxy};

use crate::crash::crash;
use crate::grace::{
    LONGEST, forgetful, is_closed, is_granted_later, left_behind, record, without_tables, write_out,
};
use crate::servers::{Kind, backend, claim, client, soon};

/// A server that writes out nothing unless somebody asks for it; the addresses of both kinds of clients, for tables
/// that the first kind has made.
pub(crate) async fn both(table: &str) -> Option<(Postgres, String, String)> {
    let (server, lazy) = without_tables(table).await?;
    let durable = format!("{}?table={table}&durability=disk", server.url());
    client(Kind::Postgres, &durable).await.close().await.expect("closed");
    Some((server, durable, lazy))
}

async fn lazy_since(server: &Postgres, table: &str) -> String {
    let sql = format!("SELECT lazy_since FROM {table}_state");
    server.admin_sql(&sql).await.expect("an answer").trim().to_owned()
}

/// A crash loses nothing then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_lazy_clients_a_crash_costs_no_period() {
    let Some((server, durable, lazy)) = both("alone").await else { return };
    for pooled in ["", "&pooled=true"] {
        let (one, two) = (
            client(Kind::Postgres, &format!("{durable}{pooled}")).await,
            client(Kind::Postgres, &durable).await,
        );
        let kept = one.lock("kept").ttl(Duration::from_mins(5)).await.expect("a free lock");
        let reader = one.read("read").ttl(Duration::from_mins(5)).await.expect("a free lock");
        let mut last = one.lock("a").await.expect("a free lock");
        for _ in 0..2 {
            let token = last.token();
            last.release().await.expect("held");
            write_out(&server).await;
            crash(&server).await;
            last = two.lock("a").try_now().await.expect("no period").expect("a free lock");
            assert!(last.token() > token, "{} after {token}", last.token());
            for locks in [&one, &two] {
                for request in [locks.lock("b"), locks.read("c")] {
                    let guard = request.try_now().await.expect("no period").expect("free");
                    guard.release().await.expect("held");
                }
                assert!(locks.lock("kept").try_now().await.expect("an answer").is_none());
                assert!(locks.lock("read").try_now().await.expect("an answer").is_none());
            }
        }
        for guard in [kept, reader, last] {
            guard.release().await.expect("held");
        }
        assert_eq!(lazy_since(&server, "alone").await, "");
    }
    let error = client(Kind::Postgres, &durable).await.begin_grace().await.expect_err("nothing is lost");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    let locks = client(Kind::Postgres, &lazy).await;
    is_granted_later(&locks, "first").await;
    assert_ne!(lazy_since(&server, "alone").await, "");
    // It is on the disk.
    crash(&server).await;
    assert_ne!(lazy_since(&server, "alone").await, "");
    is_closed(&locks, "a").await;
}

/// It connected when there was nothing to wait for, and keeps its sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_connected_before_the_first_lazy_client_grants_nothing_without_the_mark() {
    let Some((server, durable, lazy)) = both("before").await else { return };
    for pooled in ["", "&pooled=true"] {
        // The release of a lock may be lost, so each name is used once.
        let named = |n: u8| format!("{n}{pooled}");
        let old = client(Kind::Postgres, &format!("{durable}{pooled}")).await;
        is_granted_later(&old, &named(1)).await;
        let new = client(Kind::Postgres, &lazy).await;
        is_granted_later(&new, &named(0)).await;
        let longer = old.lock(named(8)).ttl(Duration::from_mins(5)).await.expect("a free lock");
        // As after a crash, but for the sessions.
        server.admin_sql("DELETE FROM before_mark").await.expect("an administrator");
        is_closed(&old, &named(2)).await;
        is_granted_later(&old, &named(3)).await;
        let lost = new.lock(named(9)).ttl(LONGEST).await.expect("a free lock");
        crash(&server).await;
        assert_eq!(record(&server, "before", &named(9)).await, "", "it is lazy by now");
        is_closed(&old, &named(4)).await;
        // Its holder may have reclaimed it by now.
        assert!(!matches!(old.lock(named(9)).try_now().await, Ok(Some(_))));
        assert!(old.inspect(named(7)).await.expect("an answer").unknown_for.is_some());
        is_granted_later(&old, &named(5)).await;
        assert!(new.lock(named(8)).try_now().await.expect("an answer").is_none(), "it is on the disk");
        for guard in [lost, longer] {
            assert!(guard.is_held(), "{:?}", guard.lease_state());
            guard.release().await.expect("held");
        }
    }
}

/// A replica may lack `lazy_since` until the longest lease has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_lazy_client_is_not_lazy_at_once() {
    let Some((server, _, lazy)) = both("at_first").await else { return };
    let lock = backend(Kind::Postgres, &lazy).await.expect("a connection");
    let take = async |name: &str, mode| {
        let claim = claim(name, mode, LONGEST);
        lock.acquire(&claim).await.expect("an answer").expect("a free lock")
    };
    let early = take("early", Mode::Exclusive).await;
    let reader = take("read", Mode::Shared).await;
    crash(&server).await;
    assert_eq!(record(&server, "at_first", "early").await, early.token().to_string());
    assert_eq!(record(&server, "at_first_members", "read").await, reader.token().to_string());
    is_granted_later(&client(Kind::Postgres, &lazy).await, "another").await;
    take("late", Mode::Exclusive).await;
    take("late_read", Mode::Shared).await;
    crash(&server).await;
    assert_eq!(record(&server, "at_first", "late").await, "");
    assert_eq!(record(&server, "at_first_members", "late_read").await, "");
}

/// A `status`, for example, with the address of a client whose grants are lazy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_looks_makes_no_grant_lazy() {
    let Some((server, durable, lazy)) = both("looked").await else { return };
    let look = async |url: &str| {
        let locks = client(Kind::Postgres, url).await;
        locks.inspect("a").await.expect("an answer");
        locks.grace_left().await.expect("an answer");
        locks.backend().examine().await.expect("an answer");
        assert_eq!(lazy_since(&server, "looked").await, "");
        locks
    };
    look(&lazy).await;
    server.admin_sql("DELETE FROM looked_mark").await.expect("as after a crash");
    look(&format!("{lazy}&pooled=true")).await;
    let other = client(Kind::Postgres, &durable).await;
    other.lock("a").try_now().await.expect("no period").expect("free").release().await.expect("held");
    // Nothing is lost yet.
    let locks = look(&lazy).await;
    locks.lock("a").try_now().await.expect("no period").expect("free").release().await.expect("held");
    assert_ne!(lazy_since(&server, "looked").await, "");
    other.lock("a").try_now().await.expect("no period").expect("free").release().await.expect("held");
    server.admin_sql("DELETE FROM looked_mark").await.expect("as after a crash");
    is_closed(&other, "a").await;
}

/// Tokens of rows are ahead of the clock, and a lazy grant follows them, which a replica lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_is_above_all_tokens_when_grants_become_lazy() {
    let Some((server, durable, lazy)) = both("far").await else { return };
    is_granted_later(&client(Kind::Postgres, &durable).await, "a").await;
    server.admin_sql("UPDATE far SET token = token + (1::bigint << 40)").await.expect("many blocks");
    is_granted_later(&client(Kind::Postgres, &lazy).await, "b").await;
    let bound = "SELECT token_bound - (1::bigint << 33) >= (SELECT max(token) FROM far WHERE name = 'a') FROM far_state";
    assert_eq!(server.admin_sql(bound).await.expect("an answer").trim(), "t");
}

/// A replica that lacks new tables is promoted, and a client with durable grants makes them there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_are_not_lazy_as_soon_as_there_are_tables() {
    let Some((server, lazy)) = without_tables("made_now").await else { return };
    let lock = backend(Kind::Postgres, &lazy).await.expect("new tables");
    for mode in [Mode::Exclusive, Mode::Shared] {
        let claim = claim(&mode.to_string(), mode, LONGEST);
        lock.acquire(&claim).await.expect("an answer").expect("a free lock");
    }
    crash(&server).await;
    assert_ne!(record(&server, "made_now", &Mode::Exclusive.to_string()).await, "");
    assert_ne!(record(&server, "made_now_members", &Mode::Shared.to_string()).await, "");
    assert_ne!(lazy_since(&server, "made_now").await, "");
}

/// Behind a pooler nobody connects again after a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lazy_grant_looks_whether_the_tables_say_so() {
    let Some((server, _, lazy)) = both("told").await else { return };
    for pooled in ["", "&pooled=true"] {
        let locks = client(Kind::Postgres, &format!("{lazy}{pooled}")).await;
        is_granted_later(&locks, "a").await;
        for name in ["a", "b"] {
            server.admin_sql("UPDATE told_state SET lazy_since = NULL").await.expect("as on a replica");
            is_granted_later(&locks, name).await;
            assert_ne!(lazy_since(&server, "told").await, "");
        }
    }
}

/// The tables are those of an earlier dump, or an administrator has overlooked a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_holder_keeps_its_lock_where_the_tables_say_that_none_is() {
    let Some((server, url)) = forgetful("overlooked").await else { return };
    for pooled in ["", "&pooled=true"] {
        let lock = backend(Kind::Postgres, &format!("{url}{pooled}")).await.expect("a connection");
        for mode in [Mode::Exclusive, Mode::Shared] {
            let held = claim(&format!("{mode}{pooled}"), mode, LONGEST);
            let held = lock.acquire(&held).await.expect("an answer").expect("a free lock");
            server.admin_sql("UPDATE overlooked_state SET lazy_since = NULL").await.expect("changed");
            let renewed = lock.renew(&[held], soon()).await;
            assert!(matches!(renewed[..], [Renewal::Renewed(_)]), "{renewed:?}");
            assert_ne!(lazy_since(&server, "overlooked").await, "");
        }
    }
}

/// The row of a durable grant has an earlier end than its holder knows of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_renewal_of_a_durable_grant_is_waited_for() {
    let Some((server, durable, lazy)) = both("shorter").await else { return };
    let lock = backend(Kind::Postgres, &lazy).await.expect("a connection");
    let other = client(Kind::Postgres, &durable).await;
    let held = claim("a", Mode::Exclusive, LONGEST);
    let held = lock.acquire(&held).await.expect("an answer").expect("a free lock");
    let renew = async || lock.renew(std::slice::from_ref(&held), soon()).await;
    tokio::time::sleep(LONGEST / 4 * 3).await;
    assert!(matches!(renew().await[..], [Renewal::Renewed(_)]));
    tokio::time::sleep(LONGEST / 4 * 3).await;
    assert!(matches!(renew().await[..], [Renewal::Renewed(_)]), "this one is lazy");
    tokio::time::sleep(LONGEST / 4 + Duration::from_millis(200)).await;
    crash(&server).await;
    let ended = "SELECT ends_at < clock_timestamp() FROM shorter WHERE name = 'a'";
    assert_eq!(server.admin_sql(ended).await.expect("an answer").trim(), "t", "the renewal is lost");
    is_closed(&other, "a").await;
    assert!(matches!(renew().await[..], [Renewal::Renewed(_)]));
    assert_eq!(record(&server, "shorter", "a").await, held.token().to_string());
}

/// The same claim was granted its lock twice, and the record of the first grant is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_is_that_of_its_own_grant() {
    let Some((server, url)) = forgetful("twice").await else { return };
    let lock = backend(Kind::Postgres, &url).await.expect("a connection");
    let ours = claim("a", Mode::Exclusive, LONGEST);
    let first = lock.acquire(&ours).await.expect("an answer").expect("a free lock");
    write_out(&server).await;
    crash(&server).await;
    let again = client(Kind::Postgres, &url).await;
    is_granted_later(&again, "another").await;
    let second = lock.acquire(&ours).await.expect("an answer").expect("its own");
    assert!(second.token() > first.token());
    crash(&server).await;
    assert_eq!(record(&server, "twice", "a").await, first.token().to_string(), "nothing was written out");
    let renewed = |grant: Grant| {
        let lock = &lock;
        async move { lock.renew(&[grant], soon()).await }
    };
    assert!(matches!(renewed(second.clone()).await[..], [Renewal::Renewed(_)]));
    assert_eq!(record(&server, "twice", "a").await, second.token().to_string());
    assert!(matches!(renewed(first.clone()).await[..], [Renewal::Lost]));
    // Nor does the earlier grant become a reader, before the later one does and after it.
    for _ in 0..2 {
        assert_eq!(lock.downgrade(&first).await.expect_err("another's").kind(), ErrorKind::Lost);
        lock.downgrade(&second).await.expect("held, or done already");
    }
    assert_eq!(record(&server, "twice_members", "a").await, second.token().to_string());
}

/// A replica that lacks `lazy_since` is promoted, and a client that does not know better is granted a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_that_lacks_lazy_since_is_told() {
    let Some((old, durable, lazy)) = both("lacking_it").await else { return };
    let Some(new) = left_behind(&old).await else { return };
    let proxy = Proxy::start(old.addr()).await.expect("a proxy");
    let through = |url: &str| url.replace(&old.addr().to_string(), &proxy.addr().to_string());
    let (one, two) =
        (client(Kind::Postgres, &through(&durable)).await, client(Kind::Postgres, &through(&lazy)).await);
    is_granted_later(&two, "a").await;
    old.kill().expect("it runs");
    new.promote().await.expect("it takes writes");
    proxy.redirect(new.addr());
    one.lock("b").try_now().await.expect("no period").expect("a free lock").release().await.expect("held");
    assert_eq!(lazy_since(&new, "lacking_it").await, "");
    // Its grants are durable at first, as at the old server.
    let guard = two.lock("c").ttl(LONGEST).await.expect("a free lock");
    assert_ne!(lazy_since(&new, "lacking_it").await, "");
    crash(&new).await;
    assert_eq!(record(&new, "lacking_it", "c").await, guard.token().to_string());
    is_closed(&one, "b").await;
}

/// Of an earlier release, on which nobody would read the mark, or of which a crash may lose everything at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_an_earlier_release_are_refused() {
    let Some((server, _)) = without_tables("earlier").await else { return };
    let columns =
        "name text COLLATE \"C\" PRIMARY KEY, owner uuid NOT NULL, token bigint NOT NULL, {} timestamptz,
        acquired_at timestamptz NOT NULL, label text NOT NULL, mode bigint NOT NULL DEFAULT 0,
        members bigint NOT NULL DEFAULT 0, waited boolean NOT NULL DEFAULT false";
    for (ends, state) in [("expires_at", ""), ("ends_at", "longest_ttl bigint, token_bound bigint")] {
        let locks =
            format!("DROP TABLE IF EXISTS earlier; CREATE TABLE earlier ({})", columns.replace("{}", ends));
        server.admin_sql(&locks).await.expect("made");
        if !state.is_empty() {
            server.admin_sql(&format!("CREATE TABLE earlier_state ({state})")).await.expect("made");
        }
        let tables =
            "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relname LIKE 'earlier%'
            AND relkind = 'r'";
        let before = server.admin_sql(tables).await.expect("an answer");
        for options in ["durability=disk", "durability=grace", "create=false"] {
            let url = format!("{}?table=earlier&{options}", server.url());
            let error = backend(Kind::Postgres, &url).await.map(drop).expect_err("other tables");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            let text = error.to_string();
            assert!(text.contains("of an earlier release") && text.contains("drop them"), "{error:#}");
            assert!(text.contains("has passed token_bound"), "{error:#}");
        }
        assert_eq!(server.admin_sql(tables).await.expect("an answer"), before, "nothing is made beside them");
    }
}
