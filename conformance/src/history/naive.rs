//! The rules once more, pair by pair: too slow for a history, and too simple to be wrong.

use lockwell_core::Mode;

use super::Validity;

/// Whether any validity interval of a lock began within another that it must not overlap.
pub(super) fn has_overlap(holds: &[Validity]) -> bool {
    holds.iter().enumerate().any(|(at, hold)| {
        let lasts = |(index, other): &(usize, &Validity)| {
            let is_earlier = (other.from, other.until, *index) < (hold.from, hold.until, at);
            is_earlier && other.until > hold.from && other.until > other.from
        };
        let others: Vec<_> = holds.iter().enumerate().filter(lasts).collect();
        let with = |wanted: fn(Mode) -> bool| others.iter().filter(|(_, other)| wanted(other.mode)).count();
        let exclusive = with(|mode| mode == Mode::Exclusive);
        let permits = with(|mode| matches!(mode, Mode::Permit { .. }));
        hold.until > hold.from
            && match hold.mode {
                Mode::Shared => exclusive + permits > 0,
                Mode::Permit { limit } => {
                    let other = others.iter().any(|(_, other)| other.mode != hold.mode);
                    other || permits >= usize::try_from(limit.get()).unwrap()
                }
                _ => !others.is_empty(),
            }
    })
}

/// Whether any grant of a lock has a lower token than one that surely came before.
pub(super) fn has_fallen(holds: &[Validity]) -> bool {
    holds.iter().any(|next| {
        holds.iter().any(|before| {
            let alone = before.mode == Mode::Exclusive || next.mode == Mode::Exclusive;
            let is_before = before.until <= next.asked || alone && before.until <= next.from;
            is_before && before.token > next.token
        })
    })
}
