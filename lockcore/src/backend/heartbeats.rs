//! The heartbeats of a waiter, or of a client for all its waiters.

use std::collections::VecDeque;

use super::Heartbeat;

/// The number of heartbeats that are remembered. A grant contains the number of the last heartbeat that the
/// server had received, and may arrive after the answer to a later one.
const REMEMBERED: usize = 16;

/// Numbers for heartbeats, and the heartbeats that the server has answered.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    last: u64,
    answered: VecDeque<Heartbeat>,
}

impl Heartbeats {
    /// The number of the next heartbeat.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Records a heartbeat that the server has answered.
    pub(super) fn note(&mut self, heartbeat: Heartbeat) {
        if self.answered.len() == REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back(heartbeat);
    }

    /// The answered heartbeat with this number.
    pub(super) fn with(&self, number: u64) -> Option<Heartbeat> {
        self.answered.iter().rev().find(|heartbeat| heartbeat.number() == number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    #[test]
    fn the_last_answered_are_remembered_by_their_numbers() {
        let mut heartbeats = Heartbeats::default();
        let past = (REMEMBERED as u64) + 3;
        for _ in 0..past {
            let number = heartbeats.next();
            heartbeats.note(Heartbeat::new(number, Moment::now(), number * 10));
        }
        assert_eq!(heartbeats.next(), past + 1);
        assert!(heartbeats.with(past + 1).is_none(), "it has no answer");
        assert!(heartbeats.with(3).is_none(), "forgotten");
        assert_eq!(
            [4, past].map(|number| heartbeats.with(number).map(|heartbeat| heartbeat.clock())),
            [Some(40), Some(past * 10)]
        );
    }
}
