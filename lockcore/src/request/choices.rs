//! The options of a request.

use std::sync::Arc;
use std::time::Duration;

use super::operation::{self, Acquiring};
use super::patience::Patience;
use super::trace::Trace;
use crate::background::Book;
use crate::contract::{Class, check_label, not_a_class, with_trace};
use crate::life::Limits;
use crate::local::LocalQueues;
use crate::{Claim, Error, ErrorKind, LockName, Mode, Moment, Result, Wait};

/// The options of a request, and the defaults of a client.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    /// Whether the request itself says how long to wait, rather than the configuration.
    pub(crate) wait_is_chosen: bool,
    /// For how long a server that is away is waited for, if the request says so.
    pub(crate) patience: Option<Duration>,
    /// Whether `try_now` waits for the end of a grace period of the server.
    pub(crate) through_grace: bool,
    pub(crate) label: Arc<str>,
    /// `None`: what the request gave is not a class.
    pub(crate) class: Option<Class>,
    pub(crate) trace: Trace,
    pub(crate) lock_delay: Duration,
    pub(crate) limits: Limits,
    /// The queue of this process; `None`: each task has a place of its own at the server.
    pub(crate) local: Option<Arc<LocalQueues>>,
}

impl Choices {
    pub(crate) fn new(ttl: Duration, label: Arc<str>) -> Self {
        Self {
            ttl,
            wait: None,
            wait_is_chosen: false,
            patience: None,
            through_grace: false,
            label,
            class: Some(Class::default()),
            trace: Trace::None,
            lock_delay: Duration::ZERO,
            limits: Limits::default(),
            local: None,
        }
    }

    /// Refuses options that the backend cannot honour, or that make no sense.
    pub(crate) fn check(&self, book: &Book, mode: Mode) -> Result<()> {
        book.capabilities().check(mode, self.ttl)?;
        book.capabilities().check_lock_delay(self.ttl, self.lock_delay)?;
        check_limits(self.limits)?;
        self.trace.check()?;
        check_label(&self.label)?;
        self.class.map(drop).ok_or_else(not_a_class)
    }

    /// How long a claim with this wait goes on while the server is away. `is_presumed`: the client has not
    /// reached a server yet.
    ///
    /// Who waits without an end, and has not said so, learns from the error that the server is away.
    pub(super) fn patience(&self, wait: Wait, is_presumed: bool) -> Patience {
        let limit = match wait {
            Wait::No => return Patience::new(Duration::ZERO, false),
            Wait::Forever if !self.wait_is_chosen && !is_presumed => Duration::ZERO,
            Wait::Until(_) | Wait::Forever => Duration::MAX,
        };
        Patience::new(self.patience.unwrap_or(limit), true)
    }

    /// A claim to one lock.
    pub(crate) fn claim(&self, book: &Book, name: LockName, mode: Mode, wait: Wait) -> Claim {
        let label = with_trace(&self.label, self.trace.get().as_ref());
        let claim = Claim::new(name, mode, self.ttl, wait, label).with_lock_delay(self.lock_delay);
        claim.with_class(self.class.unwrap_or_default()).with_clock(book.clock.clone())
    }

    /// The end of a wait that begins now. A wait of nothing is one try, which takes as long as its answer.
    pub(crate) fn until(&self, book: &Book) -> Result<Wait> {
        let Some(wait) = self.wait else { return Ok(Wait::Forever) };
        if wait.is_zero() {
            return Ok(Wait::No);
        }
        match book.clock.now().after(wait) {
            Moment::NEVER => Err(Error::new(
                ErrorKind::InvalidInput,
                "this wait is longer than the clock can count; leave it out to wait for as long as it takes",
            )),
            end => Ok(Wait::Until(end)),
        }
    }
}

/// A request for one lock that has been checked.
#[derive(Clone)]
pub(crate) struct Checked {
    pub(crate) book: Arc<Book>,
    pub(crate) choices: Choices,
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) wait: Wait,
}

impl Checked {
    /// Begins to acquire, with a claim of its own.
    pub(crate) fn begin(&self) -> Acquiring {
        self.begin_within(self.patience())
    }

    /// Begins with another claim, after an error that has ended the one before.
    pub(super) fn begin_after(&self, reason: &Error) -> Acquiring {
        let acquiring = self.begin_within(self.patience().after(reason));
        // Why there is another claim, until the server answers it.
        if let Some(claim) = acquiring.claim() {
            claim.note_obstacle(Some(reason));
        }
        acquiring
    }

    fn patience(&self) -> Patience {
        self.choices.patience(self.wait, self.book.capabilities().is_presumed())
    }

    fn begin_within(&self, patience: Patience) -> Acquiring {
        let Self { book, choices, name, mode, wait } = self;
        let local = choices.local.clone().filter(|local| local.takes(*mode));
        let claim = choices.claim(book, name.clone(), *mode, *wait);
        operation::acquire(Arc::clone(book), claim, choices.limits, local, patience)
    }

    /// Begins the wait anew, for the next try.
    pub(super) fn wait_anew(&mut self) -> Result<()> {
        self.wait = self.choices.until(&self.book)?;
        Ok(())
    }

    /// Whether the time of the wait has passed.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.wait, Wait::Until(end) if self.book.clock.has_passed(end))
    }
}

fn check_limits(limits: Limits) -> Result<()> {
    if [limits.max_hold, limits.progress].contains(&Some(Duration::ZERO)) {
        let message = "a longest hold, and a time between reports of progress, must be longer than nothing";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}
