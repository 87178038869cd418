//! The signs of life of a waiter, or of a client for all its waiters.

use std::collections::VecDeque;

use super::SignOfLife;

/// How many are remembered. A grant names the one that the server had seen last, and may come after the next was answered.
const REMEMBERED: usize = 16;

/// Numbers for signs of life, and those that the server has answered.
#[derive(Debug, Default)]
pub(super) struct Signs {
    last: u64,
    answered: VecDeque<SignOfLife>,
}

impl Signs {
    /// A number for the next one.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes one that the server has answered.
    pub(super) fn note(&mut self, sign: SignOfLife) {
        if self.answered.len() == REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back(sign);
    }

    /// The answered one with this number.
    pub(super) fn with(&self, number: u64) -> Option<SignOfLife> {
        self.answered.iter().rev().find(|sign| sign.number() == number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    #[test]
    fn the_last_answered_are_remembered_by_their_numbers() {
        let mut signs = Signs::default();
        let past = (REMEMBERED as u64) + 3;
        for _ in 0..past {
            let number = signs.next();
            signs.note(SignOfLife::new(number, Moment::now(), number * 10));
        }
        assert_eq!(signs.next(), past + 1);
        assert!(signs.with(past + 1).is_none(), "it has no answer");
        assert!(signs.with(3).is_none(), "forgotten");
        assert_eq!(
            [4, past].map(|number| signs.with(number).map(|sign| sign.clock())),
            [Some(40), Some(past * 10)]
        );
    }
}
