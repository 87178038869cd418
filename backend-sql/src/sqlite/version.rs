//! The version of SQLite in the program: with the feature `sqlite-unbundled` that of the system, which may be
//! too old.

use sqlx_sqlite::SqliteConnection;

use crate::dialect::error::misconfigured;

/// What the statements need: `RETURNING`, which came with 3.35, and is tested from this release on.
const OLDEST: [u32; 3] = [3, 35, 4];

/// Fails if statements would fail, before the first of them.
pub(super) async fn check_version(conn: &mut SqliteConnection) -> sqlx_core::Result<()> {
    let version: String =
        sqlx_core::query_scalar::query_scalar("SELECT sqlite_version()").fetch_one(conn).await?;
    if is_enough(&version) {
        return Ok(());
    }
    let [major, minor, patch] = OLDEST;
    Err(misconfigured(format!(
        "this program uses SQLite {version}, and lockwell needs {major}.{minor}.{patch} or newer: install a newer library on \
         this system, or compile the program with the feature \"sqlite\", which brings its own"
    )))
}

fn is_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let found = [(); 3].map(|()| numbers.next().unwrap_or(0));
    found >= OLDEST
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use lockwell_core::{Claim, DistributedLock, LockName, Mode, Moment, Released, Renewal, Wait};

    use super::*;
    use crate::sqlite::SqliteLock;

    /// Whatever release this program uses, the statements mean there what they should.
    #[tokio::test]
    async fn this_release_is_new_enough() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}/locks.db", folder.path().display());
        let locks = SqliteLock::connect(&url.parse().expect("an address")).await.expect("a file");
        let two = Mode::Permit { limit: NonZeroU32::new(2).expect("two") };
        for mode in [Mode::Exclusive, Mode::Shared, two] {
            let name = LockName::new(format!("{mode:?}")).expect("a name");
            let ttl = Duration::from_mins(1);
            let claim = || Claim::new(name.clone(), mode, ttl, Wait::No, "test".into());
            let mut grants = Vec::new();
            while let Some(grant) = locks.acquire(&claim()).await.expect("an answer") {
                grants.push(grant);
                if grants.len() == 2 {
                    break;
                }
            }
            assert_eq!(grants.len(), if mode == Mode::Exclusive { 1 } else { 2 });
            let renewed = locks.renew(&grants, Moment::now().after(ttl)).await;
            assert!(renewed.iter().all(|one| matches!(one, Renewal::Renewed(_))), "{renewed:?}");
            let status = locks.inspect(&name).await.expect("an answer");
            assert_eq!(status.holders.len(), grants.len());
            assert!(status.holders.iter().all(|holder| holder.ttl_left > ttl / 2), "{status:?}");
            // Together, so that they share a statement.
            let released = grants.iter().map(|grant| locks.release(grant.claim()));
            for released in futures_util::future::join_all(released).await {
                assert_eq!(released.expect("an answer"), Released::Released);
            }
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        for enough in ["3.35.4", "3.35.10", "3.40.1", "3.100.0", "4.0"] {
            assert!(is_enough(enough), "{enough}");
        }
        for too_old in ["3.35.3", "3.34.1", "3.9.10", "2.8.17", ""] {
            assert!(!is_enough(too_old), "{too_old}");
        }
    }
}
