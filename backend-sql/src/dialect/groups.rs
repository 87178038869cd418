//! Locks that several claims hold at once: readers, and the permits of a semaphore.
//!
//! While a group holds a lock, the lock's row has the `mode` of the group, the number of its `members`, an
//! owner that is no claim, and a lease without an end. So a statement for exclusive locks sees a lock that is
//! held, and needs no case for groups. Each member has its own row with owner, token and lease.
//!
//! * A statement that adds or removes members locks the lock's row first, then the members' rows. So the
//!   count is right, two such statements cannot deadlock, and none decides by a count that was read before
//!   the lock's row was locked.
//! * A renewal and `verify_in` lock only the member's row, so they do not delay claims that join or leave.
//! * A member whose lease has ended still counts. A claim that is refused for that reason removes such
//!   members ([`reap`](Dialect::reap)) and asks again. A member whose row is locked by a transaction stays.

use lockwell_core::{Claim, LockName};

use crate::dialect::Dialect;
use crate::dialect::follow_up::FollowUp;
use crate::words::{Freed, SEVERAL};

/// Finds the next waiters when the head of the queue is known.
pub(crate) async fn find_behind<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    name: &LockName,
    head: Option<i64>,
) -> sqlx_core::Result<Vec<i64>> {
    match head {
        Some(SEVERAL) => dialect.due_waiters(conn, name).await,
        head => Ok(head.into_iter().collect()),
    }
}

/// Finds the next waiters.
pub(crate) async fn find_next<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    name: &LockName,
) -> sqlx_core::Result<Vec<i64>> {
    let head = dialect.head(conn, name).await?;
    find_behind(dialect, conn, name, head).await
}

/// Finds the next waiters of each lock that its claim has released.
#[cfg_attr(not(any(feature = "mysql", feature = "sqlite-unbundled")), allow(dead_code))]
pub(crate) async fn freed_each<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    claims: &[Claim],
    released: &[bool],
) -> sqlx_core::Result<Vec<Freed>> {
    let mut answers = Vec::with_capacity(claims.len());
    for (claim, &released) in claims.iter().zip(released) {
        let mut freed = Freed::new(released, Vec::new());
        if released {
            let mut follow_up = FollowUp::default();
            freed.next = loop {
                let next = find_next(dialect, conn, claim.name()).await;
                if let Some(next) = follow_up.settle(dialect, next) {
                    break next?;
                }
            };
        }
        answers.push(freed);
    }
    Ok(answers)
}
