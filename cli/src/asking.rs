//! Questions to a person, before something that may harm others.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::exit::Failure;

/// Refuses what asks before where nobody can answer.
pub(crate) fn can_ask(verb: &str, yes: bool, json: bool) -> Result<(), Failure> {
    if !yes && (json || !io::stdin().is_terminal()) {
        let text = format!("{verb} asks before, on a terminal and without --json: add --yes");
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// Whether the person at the terminal agrees.
pub(crate) fn agrees(question: &str) -> Result<bool, Failure> {
    let mut err = io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
