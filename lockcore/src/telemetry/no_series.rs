//! Metrics where the feature `metrics` is off: the same calls, which do nothing.

#![allow(clippy::unused_self)]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::contract::Class;
use crate::telemetry::names::Names;
use crate::telemetry::outcome::{AcquireOutcome, RenewalOutcome};
use crate::{Clock, LockName, Loss, Moment};

/// When something began; nobody measures it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since;

impl Since {
    pub(super) fn now(_: &Clock) -> Self {
        Self
    }
}

pub(super) fn reconnected(_: &'static str) {}

pub(super) fn grace_left(_: &'static str, _: Duration) {}

/// No series.
#[derive(Debug)]
pub(super) struct Series;

pub(super) type ClassSeries = Series;

impl Series {
    pub(super) fn new(_: &'static str, _: &Arc<Names>) -> Self {
        Self
    }

    pub(super) fn of(&self, _: Class) -> &ClassSeries {
        self
    }

    pub(super) fn acquired(&self, _: AcquireOutcome, _: Since, _: &Clock) {}

    pub(super) fn wait_begins(&self) {}

    pub(super) fn wait_ends(&self) {}

    pub(super) fn hold_begins(&self) {}

    pub(super) fn hold_ends(&self, _: Since, _: &Clock, _: Option<Loss>) {}

    pub(super) fn renewal(&self, _: RenewalOutcome) {}

    pub(super) fn renewed_before(&self, _: Moment, _: &Clock) {}

    pub(super) fn release_failed(&self) {}
}

/// No series of jobs.
#[derive(Debug)]
pub(super) struct JobSeries;

impl JobSeries {
    pub(super) fn new(_: &'static str) -> Self {
        Self
    }

    pub(super) fn seen(&self, _: &LockName, _: Option<SystemTime>) {}

    pub(super) fn begins(&self, _: &LockName) {}
}
