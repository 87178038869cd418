//! Metrics of jobs that run once for a key.
//!
//! Unlike a lock, a job is watched by its name, so the name is a label. No key is a label.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Key, Label};

use super::catalogue::{JOB_ATTEMPTS, JOB_SUCCESS};
use super::names::Names;
use super::recorder::{METADATA, count, record};
use crate::LockName;
use crate::system::lock;

/// The series of one client's jobs.
#[derive(Debug)]
pub(super) struct JobSeries {
    backend: &'static str,
    names: Arc<Names>,
    /// When each job was last done, since 1970, by the number of its name.
    done: Mutex<HashMap<u8, Duration>>,
}

impl JobSeries {
    pub(super) fn new(backend: &'static str) -> Self {
        Self { backend, names: Names::of_jobs(), done: Mutex::default() }
    }

    /// What is known of a job: when it was last done, here or elsewhere.
    pub(super) fn seen(&self, name: &LockName, done: Option<SystemTime>) {
        let since = done.and_then(|done| done.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let job = self.names.number(name.as_str());
        let mut known = lock(&self.done);
        let last = known.entry(job).or_default();
        let is_later = since > *last;
        *last = since.max(*last);
        // A rate needs the value before the first attempt.
        record(&self.key(JOB_ATTEMPTS, job), |recorder, key| {
            recorder.register_counter(key, &METADATA).increment(0);
        });
        if is_later {
            record(&self.key(JOB_SUCCESS, job), move |recorder, key| {
                recorder.register_gauge(key, &METADATA).set(since.as_secs_f64());
            });
        }
        // An earlier time is not set after a later one.
        drop(known);
    }

    pub(super) fn begins(&self, name: &LockName) {
        let job = self.names.number(name.as_str());
        count(&self.key(JOB_ATTEMPTS, job));
    }

    fn key(&self, series: &'static str, job: u8) -> Key {
        let job = self.names.name(job).to_owned();
        let labels = [Label::from_static_parts("backend", self.backend), Label::new("job_name", job)];
        Key::from_parts(series, labels.to_vec())
    }
}
