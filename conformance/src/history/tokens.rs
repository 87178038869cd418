//! Whether the tokens rise in the order of the grants.

use std::collections::HashMap;

use lockwell_core::{FencingToken, Mode, Moment};

use super::held::Held;

/// Finds the grants of one lock that have the token of another.
pub fn tokens_twice<'a, H: Held>(holds: &'a [H], mut found: impl FnMut(&'a H, &'a H)) {
    let mut seen: HashMap<FencingToken, &H> = HashMap::with_capacity(holds.len());
    for next in holds {
        if let Some(other) = seen.insert(next.token(), next) {
            found(other, next);
        }
    }
}

/// Finds the grants of one lock whose token is lower than that of a grant which surely came before. `sorted`
/// is in the order of the beginnings.
///
/// A grant surely came before if its validity had ended before the later one was asked for. Where one of the
/// two had to be alone, it did if it had ended when the validity of the later one began. Two readers that were
/// asked for at the same time may come in either order.
pub fn tokens_fallen<'a, H: Held>(sorted: &'a [H], mut found: impl FnMut(&'a H, &'a H)) {
    let by_begin: Vec<&H> = sorted.iter().collect();
    let mut by_call = by_begin.clone();
    by_call.sort_by_key(Held::asked);
    let mut by_end = by_begin.clone();
    by_end.sort_by_key(Held::until);
    let mut number = 0;
    let is_alone = |held: &H| held.mode() == Mode::Exclusive;
    let alone = |one: &H, other: &H| is_alone(one) || is_alone(other);
    let mut counted = |before, next| {
        number += 1;
        found(before, next);
    };
    sweep(&by_begin, &by_end, Held::from, alone, &mut counted);
    // The same pairs again, and those of two that were not alone: what is found only here is added.
    if number == 0 {
        sweep(&by_call, &by_end, Held::asked, |_, _| true, &mut found);
    }
}

/// Finds each grant with a lower token than one that had ended before it began, among the pairs that count.
/// `sorted` is in the order of `begin`.
fn sweep<'a, H: Held>(
    sorted: &[&'a H],
    by_end: &[&'a H],
    begin: impl Fn(&H) -> Moment,
    counts: impl Fn(&H, &H) -> bool,
    mut found: impl FnMut(&'a H, &'a H),
) {
    let mut ended = by_end.iter().copied().peekable();
    // The highest of those that were alone, and of the others: a pair may count for the one and not for the
    // other.
    let mut highest: [Option<&'a H>; 2] = [None; 2];
    for &next in sorted {
        while let Some(before) = ended.next_if(|before| before.until() <= begin(next)) {
            let highest = &mut highest[usize::from(before.mode() == Mode::Exclusive)];
            // An empty interval may be `next` itself, which does no harm: its token is not higher than its
            // own.
            if highest.is_none_or(|highest| before.token() > highest.token()) {
                *highest = Some(before);
            }
        }
        let higher = |before: &&&'a H| before.token() > next.token() && counts(before, next);
        if let Some(before) = highest.iter().flatten().find(higher) {
            found(before, next);
        }
    }
}
