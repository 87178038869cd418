//! The settings of the terminal.

use std::io::{self, IsTerminal as _, Stdin, stdin};

use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// The settings of the terminal before the command was started.
///
/// A shell gives the terminal its settings back when a signal has ended a program. What it sees here is
/// lockwell, which ends by itself.
pub(crate) struct Terminal(Termios);

impl Terminal {
    /// Reads the settings. `None`: standard input is no terminal, or the terminal is another program's for
    /// now.
    pub(crate) fn read() -> Option<Self> {
        let stdin = stdin();
        if stdin.is_terminal() && is_foreground(&stdin) { tcgetattr(stdin).ok().map(Self) } else { None }
    }

    /// Sets them again, after a command that was ended before it could do that: it may have switched the echo
    /// off.
    pub(crate) fn restore(&self) {
        let stdin = stdin();
        // To set them from the background stops this process.
        if is_foreground(&stdin)
            && let Err(error) = tcsetattr(stdin, OptionalActions::Now, &self.0)
        {
            let error = io::Error::from(error);
            tracing::warn!(%error, "the terminal may not be as it was");
        }
    }
}

fn is_foreground(stdin: &Stdin) -> bool {
    tcgetpgrp(stdin) == Ok(getpgrp())
}
