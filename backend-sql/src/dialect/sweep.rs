//! Places of waiters that are gone.
//!
//! The place of a client that gives no heartbeats does not count, but each hand-over of its lock reads it. So
//! while anybody waits, the clients look for them, and delete them in small portions. The more clients there
//! are, the more rarely each of them looks.
//!
//! A place that its client does not know counts as long as the client gives heartbeats for others. The tables
//! have such places after a backup was restored: the clients are the same, and their waiters are others. And
//! a copy of a claim may arrive when the claim has ended long ago. Behind such a place nobody would get the
//! lock, so each client looks for its own as well: after it has subscribed again, and now and then; on MySQL
//! and MariaDB, which find them by an index, whenever it looks.

use std::time::Duration;

use lockwell_core::Result;

/// How often a client looks if it is the only one.
const EVERY: Duration = Duration::from_secs(2);
/// How much more rarely it looks for each client that waits: so all of them together look four times in a
/// second.
const FOR_EACH_CLIENT: Duration = Duration::from_millis(250);
/// The longest time between two looks of a client.
const RARELY: Duration = Duration::from_mins(2);
/// The pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(10);
/// The pause between two portions.
const BETWEEN_PORTIONS: Duration = Duration::from_millis(10);

/// What a look has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many clients the table has.
    pub clients: u64,
    /// Whether there may be more places of waiters that are gone.
    pub more: bool,
}

impl Swept {
    /// When the client looks again after this look, or after one that failed.
    pub(crate) fn pause(look: &Result<Self>) -> Duration {
        let pause = match look {
            Ok(Self { more: true, .. }) => BETWEEN_PORTIONS,
            Ok(Self { clients, .. }) => until_next(*clients),
            Err(_) => AFTER_ERROR,
        };
        // Jitter, so that the clients of a fleet that started together do not look together.
        pause.mul_f64(0.5 + rand::random::<f64>())
    }
}

fn until_next(clients: u64) -> Duration {
    let clients = u32::try_from(clients).unwrap_or(u32::MAX);
    FOR_EACH_CLIENT.saturating_mul(clients).clamp(EVERY, RARELY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clients_look_as_often_as_few() {
        assert_eq!([0, 1, 8].map(until_next), [EVERY; 3]);
        assert_eq!(until_next(80), Duration::from_secs(20));
        assert_eq!(until_next(u64::MAX), RARELY);
    }
}
