//! What an operator can see of a client: spans, metrics, the stream of events, and the numbers of
//! `Locks::stats`.
//!
//! The rest of lockcore calls it in few places. Subscribers, recorders and wakers are code of the
//! application, so nothing that calls them is called under a mutex.

mod acquiring;
#[cfg(feature = "metrics")]
mod catalogue;
#[cfg(feature = "metrics")]
mod class_series;
mod events;
#[cfg(feature = "metrics")]
mod job_series;
#[cfg(feature = "metrics")]
mod level;
mod names;
mod outcome;
#[cfg(feature = "metrics")]
mod recorder;
#[cfg_attr(feature = "metrics", path = "series.rs")]
#[cfg_attr(not(feature = "metrics"), path = "no_series.rs")]
mod series;
mod spans;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use events::Announcer;
#[cfg(feature = "metrics")]
use job_series::JobSeries;
use names::Names;
#[cfg(not(feature = "metrics"))]
use series::JobSeries;
use series::Series;
use tokio::sync::Semaphore;

use crate::contract::{Class, Counters, check_class};
use crate::telemetry::outcome::RenewalOutcome;
use crate::{Clock, Grant, LeaseState, LockName, Moment, Result, Stats};

pub(crate) use acquiring::Watch;
pub use events::{Events, LockEvent};
pub(crate) use series::Since;
pub(crate) use spans::released;

/// Notes that a connection to a server failed and is replaced, or was taken over by another server: for the
/// metric `lockwell.reconnections`. `backend` is the name in [`Capabilities`](crate::Capabilities).
///
/// Without the feature `metrics` it does nothing.
pub fn note_reconnection(backend: &'static str) {
    series::reconnected(backend);
}

/// Notes that a server grants nothing for this time: for the metric `lockwell.grace.end.timestamp`.
pub(crate) fn note_grace_left(backend: &'static str, left: Duration) {
    series::grace_left(backend, left);
}

/// How many claims of a client look at the holder at a time. The others look later: thousands may wait since the same
/// moment.
const LOOKS: usize = 4;

/// What is seen of one client.
#[derive(Debug)]
pub(crate) struct Telemetry {
    backend: &'static str,
    counters: Counters,
    classes: Arc<Names>,
    series: Series,
    jobs: JobSeries,
    events: Announcer,
    /// For [looks](acquiring) at holders. However many claims wait, few of them ask at a time.
    looks: Semaphore,
}

impl Telemetry {
    pub(crate) fn new(backend: &'static str) -> Arc<Self> {
        let (counters, events) = (Counters::default(), Announcer::default());
        let classes = Names::of_classes();
        let (series, jobs) = (Series::new(backend, &classes), JobSeries::new(backend));
        Arc::new(Self { backend, counters, classes, series, jobs, events, looks: Semaphore::new(LOOKS) })
    }

    /// The class with this name, whose series begin with zero. It calls the recorder if it is new.
    pub(crate) fn class(&self, name: &str) -> Result<Class> {
        check_class(name)?;
        let class = Class(Some(self.classes.number(name)));
        self.series.of(class);
        Ok(class)
    }

    /// The name of a class; none for requests without one.
    pub(crate) fn class_name(&self, class: Class) -> Option<&str> {
        class.0.map(|number| self.classes.name(number))
    }

    pub(crate) fn stats(&self, held: usize) -> Stats {
        self.counters.read(held)
    }

    /// A stream of what happens from now on.
    pub(crate) fn events(&self) -> Events {
        self.events.listen()
    }

    /// The streams of events end.
    pub(crate) fn close(&self) {
        self.events.end();
    }

    /// A lock is held from now on.
    pub(crate) fn granted(&self, grant: &Grant, class: Class) -> Since {
        self.series.of(class).hold_begins();
        self.events.announce(|| LockEvent::Granted {
            name: grant.claim().name().clone(),
            mode: grant.claim().mode(),
            token: grant.token(),
        });
        Since::now(grant.claim().clock())
    }

    /// The state of a held lock's lease has changed to this.
    pub(crate) fn state_changed(&self, grant: &Grant, class: Class, since: Since, state: LeaseState) {
        let clock = grant.claim().clock();
        let series = self.series.of(class);
        match state {
            LeaseState::Lost(loss) => series.hold_ends(since, clock, Some(loss)),
            LeaseState::Released => series.hold_ends(since, clock, None),
            LeaseState::Held | LeaseState::Suspect => (),
        }
        self.events.announce(|| LockEvent::of_state(grant, state));
    }

    /// A lock is lost. This may be called under a mutex, unlike all else, since it only counts.
    pub(crate) fn count_loss(&self) {
        self.counters.lost.add();
    }

    pub(crate) fn renewal_called(&self) {
        self.counters.renewal_calls.add();
    }

    /// A lease that was valid until this moment is extended.
    pub(crate) fn renewed(&self, valid_until: Moment, clock: &Clock) {
        self.counters.renewals.add();
        self.series.renewal(RenewalOutcome::Extended);
        self.series.renewed_before(valid_until, clock);
    }

    /// The server says that there is nothing to be renewed.
    pub(crate) fn renewal_denied(&self) {
        self.series.renewal(RenewalOutcome::Lost);
    }

    /// A renewal says nothing about its lock.
    pub(crate) fn renewal_failed(&self) {
        self.counters.renewal_failures.add();
        self.series.renewal(RenewalOutcome::Unknown);
    }

    /// A release has failed and is tried again.
    pub(crate) fn release_failed(&self) {
        self.counters.release_failures.add();
        self.series.release_failed();
    }

    /// The record of a job was read or written. It was last done then.
    pub(crate) fn job_seen(&self, name: &LockName, done: Option<SystemTime>) {
        self.jobs.seen(name, done);
    }

    /// An attempt at a job begins here.
    pub(crate) fn job_begins(&self, name: &LockName) {
        self.jobs.begins(name);
    }
}

impl LockEvent {
    fn of_state(grant: &Grant, state: LeaseState) -> Self {
        let (name, token) = (grant.claim().name().clone(), grant.token());
        match state {
            LeaseState::Lost(loss) => Self::Lost { name, token, loss },
            LeaseState::Released => Self::Released { name, token },
            LeaseState::Suspect => Self::Suspect { name, token },
            LeaseState::Held => Self::Recovered { name, token },
        }
    }
}

#[cfg(test)]
mod tests;
