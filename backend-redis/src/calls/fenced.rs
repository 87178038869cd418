//! Writes that only the latest holder of a lock can make.

use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Grant, Operation, Result};
use redis::Value;
use redis::aio::ConnectionLike;

use crate::words::answers::text;
use crate::words::error::{ErrorClass, classify, fatal, no_answer, of_command};
use crate::words::script::FENCED_WRITE;

/// A write to Redis that is refused when a later holder of the lock has written already.
///
/// A lease alone cannot stop a holder that was paused between its last check of the lock and its write. This
/// can: beside the data it stores the highest token that has written, with the
/// [id of that hold](lockwell_core::HoldId), and compares in the same step. It works with the lock of any
/// backend, on any Redis, on the application's own connection.
///
/// The rule: a token above the highest is accepted, or the highest itself from the holder that it came from.
///
/// ```no_run
/// # mod lockwell { pub use lockwell_core::*; pub use lockwell_redis as redis; }
/// # use redis::aio::MultiplexedConnection;
/// # async fn example(locks: lockwell::Locks, conn: &mut MultiplexedConnection) -> lockwell::Result<()> {
/// use lockwell::redis::FencedWrite;
/// let guard = locks.lock("report").await?;
/// FencedWrite::new("report:latest", "42 pages").run(&guard, conn).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is written before it is run"]
pub struct FencedWrite {
    key: String,
    fence: String,
    value: Vec<u8>,
    life: Option<Duration>,
}

impl FencedWrite {
    /// A write of `value` to `key`.
    pub fn new(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        let key = key.into();
        Self { fence: fence_key(&key), key, value: value.into(), life: None }
    }

    /// Lets the data expire. The highest token does not expire.
    pub fn expires_after(mut self, life: Duration) -> Self {
        self.life = Some(life);
        self
    }

    /// The key that stores the highest token, instead of one beside the data. Several data keys can share
    /// one. In a cluster both must be in one slot.
    pub fn fence_key(mut self, fence: impl Into<String>) -> Self {
        self.fence = fence.into();
        self
    }

    /// Writes, if the token of the holder (a guard, a handle or a grant) is acceptable.
    ///
    /// # Errors
    /// `Lost` if a later holder has written; nothing was changed then. `UnknownOutcome` if the connection
    /// failed: the same write can be repeated.
    ///
    /// # Cancel safety
    /// When this future is dropped, the write may or may not be done; it can be repeated.
    pub async fn run(
        &self,
        holder: &(impl AsRef<Grant> + Sync),
        conn: &mut (impl ConnectionLike + Send),
    ) -> Result<()> {
        let grant = holder.as_ref();
        let context =
            |error: Error| error.during(Operation::Verify).for_lock(grant.claim().name()).on_backend("redis");
        let life = self.life.map_or_else(String::new, |life| life.as_millis().max(1).to_string());
        let mut by_text = false;
        loop {
            let mut command = FENCED_WRITE.call(by_text, 2, (6, 0));
            command.arg(&self.key).arg(&self.fence);
            command.arg(grant.token().to_string()).arg(grant.hold_id().to_string());
            command.arg(&self.value).arg(&life);
            let answer = conn.req_packed_command(&command).await.and_then(Value::extract_error);
            match answer.map_err(of_command) {
                Ok(answer) => {
                    let highest = text(Some(&answer)).map_err(context)?;
                    if highest.is_empty() {
                        return Ok(());
                    }
                    let text =
                        format!("token {} has written already, and ours is {}", highest, grant.token());
                    return Err(context(Error::new(ErrorKind::Lost, text)));
                }
                Err(error) => match classify(&error, true) {
                    ErrorClass::NoScript if !by_text => by_text = true,
                    ErrorClass::NoScript | ErrorClass::Elsewhere | ErrorClass::Fatal => {
                        return Err(context(fatal(&error, Some(&FENCED_WRITE))));
                    }
                    ErrorClass::Retry | ErrorClass::Torn => return Err(context(no_answer(Some(&error)))),
                    ErrorClass::Broken => {
                        let text = "the connection failed; the write can be repeated";
                        let error =
                            Error::new(ErrorKind::UnknownOutcome, text).with_source(error.to_string());
                        return Err(context(error));
                    }
                },
            }
        }
    }
}

/// A key beside the data, in the same slot of a cluster wherever the name allows it.
fn fence_key(key: &str) -> String {
    if key.contains(['{', '}']) { format!("{key}\u{1f}fence") } else { format!("{{{key}}}\u{1f}fence") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::keys::slot;

    #[test]
    fn the_fence_is_in_the_slot_of_the_data() {
        for key in ["report", "{user1}.report", "a{b}c"] {
            assert_eq!(slot(key), slot(&fence_key(key)), "{key}");
        }
    }
}
