//! What the tasks of a process share.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{HandOff, Mode};

/// For how long a lock is handed on from task to task, unless the application says otherwise. The round trips
/// at the end of a slice take some tenths of a millisecond, so a longer slice gains little, and other
/// processes wait for it.
const SLICE: Duration = Duration::from_millis(2);

/// The most tokens that a claim reserves for such a slice.
const MOST_TOKENS: u32 = 512;

/// The most that it reserves before it is known how many are used.
const FIRST_TOKENS: u32 = 7;

/// What the tasks of a process share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The place in the queue of the server; and the lock for a slice of time, if each task has a token of its
    /// own.
    Slices,
    /// The place, and the lock as often as the application wants.
    Chosen(HandOff),
    /// The place, among the tasks of an owner of re-entrant locks: when one of them gets the lock, they share it.
    Owned,
}

impl Sharing {
    /// Readers and permits can hold a lock together, and a queue would only serialize them; those of one owner
    /// are the same hold.
    pub(super) fn queues(self, mode: Mode) -> bool {
        self == Self::Owned || mode == Mode::Exclusive
    }

    /// How many times a lock may be handed on, and for how long; `None` if it may not.
    pub(super) fn hand_off(self, token_blocks: bool) -> Option<(u32, Duration)> {
        match self {
            Self::Slices => token_blocks.then_some((u32::MAX, SLICE)),
            Self::Chosen(hand_off) => Some((hand_off.max(), hand_off.span())),
            Self::Owned => Some((0, SLICE)),
        }
    }

    /// How many tokens a claim reserves while so many tasks wait behind it, where the slice before has handed
    /// the lock on so many times.
    ///
    /// Tokens must not outrun the clock of the server in microseconds, with which they continue after a loss
    /// of the counter. On Redis one counter is for all names. So what is reserved is at most twice of what
    /// has been used, and a few.
    pub(super) fn tokens(self, waiting: usize, used: u32) -> NonZeroU32 {
        let more = match self {
            Self::Owned => 0,
            Self::Slices if waiting == 0 => 0,
            Self::Slices => {
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                (used.saturating_mul(2)).max(waiting.min(FIRST_TOKENS)).min(MOST_TOKENS)
            }
            Self::Chosen(hand_off) => hand_off.max(),
        };
        NonZeroU32::MIN.saturating_add(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_reserved_as_they_are_used() {
        let tokens = |waiting, used| Sharing::Slices.tokens(waiting, used).get();
        assert_eq!([tokens(0, 400), tokens(1, 0), tokens(63, 0), tokens(63, 20)], [1, 2, 8, 41]);
        assert_eq!([tokens(63, 400), tokens(500, u32::MAX)], [513, 513]);
        assert_eq!(Sharing::Chosen(HandOff::new(1000, SLICE)).tokens(0, 0).get(), 1001);
    }
}
