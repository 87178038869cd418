//! How many statements a request takes. The server counts them.

use std::time::Duration;

use lockwell_core::{Locks, Mode};
use sqlx::{Connection, MySqlConnection};
use testbed::{MariaDb, Proxy};

use super::{connect, counted, servers};
use crate::servers::{Kind, backend, claim, soon};

const TIMES: u32 = 50;

/// Statements for each of many runs, on a connection that has prepared what it needs.
macro_rules! statements {
    ($server:expr, $what:expr) => {{
        $what;
        let before = counted($server, "Questions").await;
        for _ in 0..TIMES {
            $what;
        }
        // The question that counts is counted as well.
        let many = (counted($server, "Questions").await - before).saturating_sub(1);
        f64::from(u32::try_from(many).expect("not that many")) / f64::from(TIMES)
    }};
}

async fn renewals(server: &MariaDb, locks: &Locks) {
    let backend = locks.backend();
    for (mode, many) in [(Mode::Exclusive, 1), (Mode::Exclusive, 20), (Mode::Shared, 20)] {
        let mut grants = Vec::new();
        for n in 0..many {
            let claim = claim(&format!("{mode} {many} {n}"), mode, Duration::from_mins(1));
            grants.push(backend.acquire(&claim).await.expect("an answer").expect("a free lock"));
        }
        let each = statements!(server, {
            let renewed = backend.renew(&grants, soon()).await;
            assert!(
                renewed.iter().all(|one| matches!(one, lockwell_core::Renewal::Renewed(_))),
                "{renewed:?}"
            );
        });
        println!("{server:?}: {each} statements renew {many} leases, {mode}");
        assert!(each < 1.2, "{each} statements renew {many} leases, {mode}");
    }
}

/// Nobody else uses this server meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_for_the_usual_requests() {
    for release in super::RELEASES {
        let Some(server) = super::start(release, super::options(release)).await else { continue };
        let locks = connect(&server, "trips").await;
        renewals(&server, &locks).await;
        let each = statements!(&server, {
            locks.lock("a").await.expect("a free lock").release().await.expect("held");
        });
        println!("{release}: {each} statements take a free lock and release it");
        assert!(each < 2.4, "{each} statements take a free lock and release it");
        let guard = locks.lock("a").await.expect("a free lock");
        let each = statements!(&server, {
            assert!(locks.lock("a").try_now().await.expect("an answer").is_none());
        });
        println!("{release}: {each} statements are refused");
        assert!(each < 1.4, "{each} statements are refused");
        guard.release().await.expect("held");
        let mut n = 0;
        let each = statements!(&server, {
            n += 1;
            locks.lock(format!("new {n}")).await.expect("a free lock").release().await.expect("held");
        });
        println!("{release}: {each} statements take a new lock and release it");
        assert!(each < 3.4, "{each} statements take a new lock and release it");
    }
}

/// What a new connection is set to travels in one message, and so do the questions about the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_takes_two_round_trips_behind_the_handshake() {
    for server in servers().await {
        drop(connect(server, "connecting").await);
        let proxy = Proxy::start(server.addr()).await.expect("a proxy");
        let url = server.url_via(proxy.addr());
        // On a busy machine what the connection before says last may come late, and is counted.
        let (mut handshake, mut turns) = (u64::MAX, u64::MAX);
        for _ in 0..3 {
            let before = proxy.turns();
            // sqlx sets what it needs in one statement.
            let plain = MySqlConnection::connect(&url).await.expect("a connection");
            handshake = handshake.min(proxy.turns() - before - 1);
            plain.close().await.expect("closed");
            tokio::time::sleep(Duration::from_millis(200)).await;
            let before = proxy.turns();
            let lock =
                backend(Kind::MariaDb, &format!("{url}?table=connecting")).await.expect("a connection");
            turns = turns.min(proxy.turns() - before);
            drop(lock);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{server:?}: {handshake} round trips for the handshake, {turns} until it is ready");
        assert!(turns <= handshake + 2, "{turns} round trips, {handshake} of them for the handshake");
    }
}
