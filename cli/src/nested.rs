//! The locks that an outer `lockwell run` holds for this process.

use std::time::Duration;

use lockwell::{FencingToken, LockName, Locks, Mode};
use tokio::time::timeout;

use crate::exit::Failure;

/// Token and name of each lock, a line for each. Names have no line ends.
pub(crate) const HELD: &str = "LOCKWELL_HELD";

/// How long to ask whether a lock is held by an outer `lockwell`.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The locks in the environment.
fn inherited() -> Vec<(FencingToken, LockName)> {
    parse(&std::env::var(HELD).unwrap_or_default())
}

fn parse(text: &str) -> Vec<(FencingToken, LockName)> {
    let one = |line: &str| {
        let (token, name) = line.split_once(' ')?;
        Some((FencingToken::new(token.parse().ok()?), LockName::new(name).ok()?))
    };
    text.lines().filter_map(one).collect()
}

/// The environment of a command that runs under these locks, too.
pub(crate) fn extended<'a>(held: impl Iterator<Item = (FencingToken, &'a LockName)>) -> String {
    let mut lines: Vec<_> = inherited().iter().map(|(token, name)| format!("{token} {name}")).collect();
    lines.extend(held.map(|(token, name)| format!("{token} {name}")));
    lines.join("\n")
}

/// Refuses a lock that an outer `lockwell` holds: it would wait for itself. The same name at another server
/// is another lock, so the token decides.
///
/// A reader within a reader does not wait, unless a writer waits in between: that one comes first, and waits
/// for the outer reader.
pub(crate) async fn check(locks: &Locks, names: &[LockName], mode: Mode) -> Result<(), Failure> {
    for (token, name) in inherited() {
        if !names.contains(&name) {
            continue;
        }
        // If it cannot be seen, what follows says why.
        let Ok(Ok(status)) = timeout(TIMEOUT, locks.inspect(&name)).await else { continue };
        let Some(outer) = status.holders.iter().find(|holder| holder.token == token) else { continue };
        if mode == Mode::Shared && outer.mode == Mode::Shared {
            if status.waiters > 0 {
                return Err(Failure::usage(format!(
                    "{name:?} is held for reading by the lockwell that runs this command, and others wait for it: this reader \
                     would wait behind a writer that waits for the outer one; take it once, outside"
                )));
            }
        } else {
            return Err(Failure::usage(format!(
                "{name:?} is held by the lockwell that runs this command: it would wait for itself; take it once, \
                 outside"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_not_ours_are_passed_over() {
        let found = parse("7 a b\n\nx y\n9\n18446744073709551615 ü");
        let found: Vec<_> = found.iter().map(|(token, name)| (token.get(), name.as_str())).collect();
        assert_eq!(found, [(7, "a b"), (u64::MAX, "ü")]);
    }
}
