//! A server that is set to be read only, as for a switchover, under a user who may write there all the same.

use std::time::Duration;

use lockwell_core::{ErrorKind, Finding, Mode, Renewal, Severity};

use super::{RELEASES, connect, options, start};
use crate::servers::{Kind, claim, client, permit, soon, wait_for};

const LONG: Duration = Duration::from_mins(1);

/// Nothing is granted, renewed, handed over or freed there: another server may be the primary by now. Nothing
/// is lost either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_is_refused_as_others_are() {
    for release in RELEASES {
        let Some(server) = start(release, options(release)).await else { continue };
        let (locks, other) = (connect(&server, "obeyed").await, connect(&server, "obeyed").await);
        let backend = locks.backend();
        let kinds = [("alone", Mode::Exclusive), ("book", Mode::Shared), ("slots", permit(2))];
        let mut held = Vec::new();
        // Twice, so that each statement is prepared, and its connection in use.
        for _ in 0..2 {
            for (claim, _) in held.drain(..) {
                backend.release(&claim).await.expect("an answer");
            }
            for (name, mode) in kinds {
                let claim = claim(name, mode, LONG);
                let grant = backend.acquire(&claim).await.expect("an answer").expect("a free lock");
                let renewed = backend.renew(std::slice::from_ref(&grant), soon()).await;
                assert!(matches!(renewed[..], [Renewal::Renewed(_)]), "{release}: {renewed:?}");
                held.push((claim, grant));
            }
        }
        let waiting = tokio::spawn(other.lock("alone").wait(LONG).into_future());
        wait_for(&locks, "alone", 1).await;
        server.admin_sql("SET GLOBAL read_only = 1").await.expect("an administrator");
        for (name, mode) in kinds {
            for name in [format!("new {name}"), name.to_owned()] {
                let asked = backend.acquire(&claim(&name, mode, LONG)).await;
                // One that another holds may be refused for that.
                let refused = asked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Misconfigured);
                assert!(
                    refused || name == "alone" && matches!(asked, Ok(None)),
                    "{release}: {name}: {asked:?}"
                );
            }
        }
        for (claim, grant) in &held {
            let renewed = backend.renew(std::slice::from_ref(grant), soon()).await;
            let [Renewal::Unknown(error)] = &renewed[..] else { panic!("{release}: {renewed:?}") };
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}");
            let error = backend.release(claim).await.expect_err("it is not freed at the primary");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}");
        }
        let error = backend.force_release(held[0].0.name()).await.expect_err("read only");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}");
        assert!(locks.inspect("alone").await.expect("to look is allowed").is_held(), "{release}");
        let rights = |findings: Vec<lockwell_core::Finding>| {
            findings.into_iter().find(|found| found.subject == "read_only").expect("a finding")
        };
        let found = rights(backend.examine().await.expect("an answer"));
        assert_eq!(found.severity, Severity::Doubtful, "{release}: {found:?}");
        let is_set = |found: Vec<Finding>| found.iter().any(|one| one.message.contains("takes no writes"));
        assert!(is_set(backend.examine().await.expect("an answer")), "{release}");

        server.admin_sql("SET GLOBAL read_only = 0").await.expect("an administrator");
        for (claim, grant) in &held {
            let renewed = backend.renew(std::slice::from_ref(grant), soon()).await;
            assert!(matches!(renewed[..], [Renewal::Renewed(_)]), "{release}: {renewed:?}");
            backend.release(claim).await.expect("an answer");
        }
        // Whoever waits may have been told that nothing is granted.
        match waiting.await.expect("no panic") {
            Ok(guard) => guard.release().await.expect("held"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Misconfigured, "{release}: {error:#}"),
        }
        let user = "CREATE USER app@'%'; GRANT ALL ON lockwell.* TO app@'%'";
        server.admin_sql(user).await.expect("an administrator");
        let app = client(Kind::MariaDb, &server.url().replace("root@", "app@")).await;
        let found = rights(app.backend().examine().await.expect("an answer"));
        assert_eq!(found.severity, Severity::Good, "{release}: {found:?}");
        assert!(!is_set(app.backend().examine().await.expect("an answer")), "{release}");
    }
}
