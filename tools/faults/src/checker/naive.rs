//! The rules once more, pair by pair: too slow for a history, and too simple to be wrong.

use lockwell::Mode;

use super::super::history::Hold;

/// Whether any validity interval began within another that it must not overlap.
pub(super) fn has_overlap(holds: &[Hold]) -> bool {
    holds.iter().enumerate().any(|(at, hold)| {
        let lasts = |other: &Hold| {
            let is_earlier = (other.from, other.until) < (hold.from, hold.until);
            let is_same = (other.from, other.until) == (hold.from, hold.until);
            let comes_first = holds.iter().position(|one| one == other).is_some_and(|index| index < at);
            (is_earlier || is_same && comes_first) && other.until > hold.from && other.until > other.from
        };
        let others: Vec<_> =
            holds.iter().filter(|other| other.ask.lock == hold.ask.lock && lasts(other)).collect();
        let with = |wanted: fn(Mode) -> bool| others.iter().filter(|other| wanted(other.ask.mode)).count();
        let exclusive = with(|mode| mode == Mode::Exclusive);
        let shared = with(|mode| mode == Mode::Shared);
        let permits = with(|mode| matches!(mode, Mode::Permit { .. }));
        hold.until > hold.from
            && match hold.ask.mode {
                Mode::Shared => exclusive + permits > 0,
                Mode::Permit { limit } => {
                    exclusive + shared > 0 || permits >= usize::try_from(limit.get()).unwrap()
                }
                _ => !others.is_empty(),
            }
    })
}

/// Whether any grant has a lower token than one that surely came before.
pub(super) fn has_fallen(holds: &[Hold]) -> bool {
    let valid: Vec<_> = holds.iter().filter(|hold| hold.until > hold.from).collect();
    valid.iter().any(|next| {
        valid.iter().any(|before| {
            let same = before.ask.lock == next.ask.lock;
            let alone = before.ask.mode == Mode::Exclusive || next.ask.mode == Mode::Exclusive;
            let is_before = before.until <= next.ask.asked || alone && before.until <= next.from;
            same && is_before && before.token > next.token
        })
    })
}
