//! What the other program is told, in lines on standard output: the protocol of docs/hold.md.

use std::fs::File;
use std::io::{self, stdout};
use std::os::fd::AsFd as _;
use std::time::Duration;

use lockwell::{LockGuard, LockName, LockStatus};
use serde::Serialize;

use crate::exit::Failure;
use crate::hold::Hold;
use crate::json::{self, LockReport, SCHEMA_VERSION, millis};
use crate::obtain::sentence;
use crate::outlet::Outlet;
use crate::say::rounded;

/// How long lockwell waits at its end for a program that does not read.
const LAST_LINE: Duration = Duration::from_secs(5);

/// What happened to the locks.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    Granted {
        /// The first lock that the command line names.
        #[serde(flatten)]
        first: LockLine<'a>,
        locks: Vec<LockLine<'a>>,
        valid_ms: u64,
    },
    Suspect {
        name: &'a str,
        token: u64,
        valid_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    Recovered {
        name: &'a str,
        token: u64,
        valid_ms: u64,
    },
    Held {
        valid_ms: u64,
    },
    Waiting {
        /// Who holds the locks, and who waits: left out where the server has not said it in time.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        locks: Vec<LockReport<'a>>,
        /// Who holds the locks, in words for people.
        #[serde(skip)]
        words: String,
    },
    Lost {
        name: &'a str,
        token: u64,
        cause: &'static str,
        message: &'a str,
    },
    Released {
        cause: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    },
    Refused {
        exit_status: u8,
        message: &'a str,
    },
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LockLine<'a> {
    name: &'a str,
    token: u64,
    hold_id: String,
}

impl<'a> LockLine<'a> {
    fn new(guard: &'a LockGuard) -> Self {
        Self { name: guard.name().as_str(), token: guard.token().get(), hold_id: guard.hold_id().to_string() }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    schema_version: u32,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

impl<'a> Event<'a> {
    /// `None`: the hold has no lock of this name.
    pub(super) fn granted(hold: &'a Hold, first: &LockName) -> Option<Self> {
        let locks = hold.guards().iter().map(LockLine::new).collect();
        let first = LockLine::new(hold.guard(first)?);
        Some(Self::Granted { first, locks, valid_ms: millis(hold.time_left()) })
    }

    /// The locks as they were seen.
    pub(super) fn waiting(seen: &'a [LockStatus]) -> Self {
        let said: Vec<_> = seen.iter().filter_map(sentence).collect();
        let words = if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) };
        Self::Waiting { locks: seen.iter().map(LockReport::new).collect(), words }
    }

    /// For people.
    fn words(&self) -> String {
        let time = |ms: u64| rounded(Duration::from_millis(ms));
        match self {
            Self::Granted { locks, valid_ms, .. } => {
                let one = |lock: &LockLine<'_>| format!("{:?} with token {}", lock.name, lock.token);
                let locks: Vec<_> = locks.iter().map(one).collect();
                format!("granted: {}, valid for {} unless renewed", locks.join(", "), time(*valid_ms))
            }
            Self::Suspect { name, valid_ms, message, .. } => {
                let why = message.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                format!("suspect: {name:?} ends in {} unless a renewal succeeds{why}", time(*valid_ms))
            }
            Self::Recovered { name, .. } => format!("recovered: {name:?} is renewed again"),
            Self::Held { valid_ms } => format!("held: valid for {} unless renewed", time(*valid_ms)),
            Self::Waiting { words, .. } => format!("waiting{words}"),
            Self::Lost { name, message, .. } => format!("lost: {name:?}: {message}"),
            Self::Released { cause, message } => {
                let more = message.map_or_else(String::new, |more| format!("; {more}"));
                format!("released: {}{more}", cause.replace('_', " "))
            }
            Self::Refused { message, .. } => format!("refused: {message}"),
        }
    }
}

/// Tells the other program what happens.
pub(super) struct Teller {
    outlet: Outlet,
    for_programs: bool,
}

impl Teller {
    pub(super) fn start(for_programs: bool) -> io::Result<Self> {
        let outlet = Outlet::start(File::from(stdout().as_fd().try_clone_to_owned()?))?;
        Ok(Self { outlet, for_programs })
    }

    /// Tells it. If it has too many lines to read, this one is left out.
    pub(super) fn tell(&self, event: &Event<'_>) -> Result<(), Failure> {
        if !self.outlet.send(self.line(event)?) {
            tracing::info!("a line is left out: the others are not read");
        }
        Ok(())
    }

    /// Tells it that the hold has begun, or has ended: this line is not left out.
    pub(super) fn tell_for_sure(&self, event: &Event<'_>) -> Result<(), Failure> {
        self.outlet.send_last(self.line(event)?);
        Ok(())
    }

    /// Waits for a moment until all is read.
    pub(super) fn finish(&self) {
        self.outlet.drain(LAST_LINE);
    }

    /// Resolves when nobody can read any more.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(super) async fn closed(&self) {
        self.outlet.closed().await;
    }

    fn line(&self, event: &Event<'_>) -> Result<String, Failure> {
        if self.for_programs {
            return json::line(&Line { schema_version: SCHEMA_VERSION, event });
        }
        Ok(event.words().replace(['\n', '\r'], " ") + "\n")
    }
}
