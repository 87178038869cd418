//! Whether the tokens rise in the order of the grants.

use std::collections::HashMap;

use lockwell::Mode;

use super::super::history::Hold;
use crate::checker::rules::{Found, Rules, words};

/// Grants with the token of another.
pub(super) fn twice(sorted: &[Hold], found: &mut Found) {
    let mut seen: HashMap<u64, &Hold> = HashMap::with_capacity(sorted.len());
    for next in sorted {
        if let Some(other) = seen.insert(next.token, next) {
            found.add(|| format!("one token twice: {}; {}", words(other), words(next)));
        }
    }
}

/// Grants whose token is lower than that of a grant which surely came before.
///
/// It did if it was valid, and its validity had ended before the later one was asked for. Where one of the
/// two had to be alone, it did if it had ended when the validity of the later one began.
///
/// The news of a grant to somebody who was deprived of the lock at once may come later than that of the next
/// one's.
pub(super) fn fallen(sorted: &[Hold], rules: &Rules, found: &mut Found) {
    let was_valid = |hold: &&Hold| hold.until > hold.from && !rules.may_be_deprived(hold);
    let by_begin: Vec<&Hold> = sorted.iter().filter(was_valid).collect();
    let mut by_call = by_begin.clone();
    by_call.sort_by_key(|hold| hold.ask.asked);
    let mut by_end = by_begin.clone();
    by_end.sort_by_key(|hold| hold.until);
    let is_alone = |hold: &Hold| hold.ask.mode == Mode::Exclusive;
    let before = found.number;
    sweep(&by_begin, &by_end, |next| next.from, |one, other| is_alone(one) || is_alone(other), found);
    // The same pairs again, and those of two that were not alone: what is found only here is added.
    if found.number == before {
        sweep(&by_call, &by_end, |next| next.ask.asked, |_, _| true, found);
    }
}

/// `sorted` is in the order of `begin`.
fn sweep(
    sorted: &[&Hold],
    by_end: &[&Hold],
    begin: impl Fn(&Hold) -> u64,
    counts: impl Fn(&Hold, &Hold) -> bool,
    found: &mut Found,
) {
    let mut ended = by_end.iter().peekable();
    // The highest of those that were alone, and of the others: a pair may count for the one and not for the
    // other.
    let mut highest: [Option<&Hold>; 2] = [None; 2];
    for next in sorted {
        while let Some(before) = ended.next_if(|before| before.until <= begin(next)) {
            let highest = &mut highest[usize::from(before.ask.mode == Mode::Exclusive)];
            if highest.is_none_or(|highest| before.token > highest.token) {
                *highest = Some(before);
            }
        }
        let higher = |before: &&&Hold| before.token > next.token && counts(before, next);
        if let Some(before) = highest.iter().flatten().find(higher) {
            found.add(|| format!("the later token is not higher: {}; {}", words(before), words(next)));
        }
    }
}
