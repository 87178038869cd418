//! Metrics of jobs that run once for a key.
//!
//! Unlike a lock, a job is watched by its name, so the name is a label. For a number of names: those that come
//! later share one series, without a name. No key is a label.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Key, Label};

use super::catalogue::{JOB_ATTEMPTS, JOB_SUCCESS};
use super::series::{METADATA, record};
use crate::LockName;
use crate::system::lock;

/// How many jobs of a client have series of their own.
const MOST_JOBS: usize = 100;

/// The series of one client's jobs.
#[derive(Debug)]
pub(super) struct JobSeries {
    backend: &'static str,
    /// When each job was last done, since 1970; `None`: all that have no series of their own.
    done: Mutex<HashMap<Option<LockName>, Duration>>,
}

impl JobSeries {
    pub(super) fn new(backend: &'static str) -> Self {
        Self { backend, done: Mutex::default() }
    }

    /// What is known of a job: when it was last done, here or elsewhere.
    pub(super) fn seen(&self, name: &LockName, done: Option<SystemTime>) {
        let since = done.and_then(|done| done.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let mut known = lock(&self.done);
        let job = listed(&known, name);
        let last = known.entry(job.clone()).or_default();
        let is_later = since > *last;
        *last = since.max(*last);
        let job = job.as_ref();
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
        let job = listed(&lock(&self.done), name);
        record(&self.key(JOB_ATTEMPTS, job.as_ref()), |recorder, key| {
            recorder.register_counter(key, &METADATA).increment(1);
        });
    }

    fn key(&self, name: &'static str, job: Option<&LockName>) -> Key {
        let job = job.map_or_else(String::new, ToString::to_string);
        Key::from_parts(
            name,
            vec![Label::from_static_parts("backend", self.backend), Label::new("job_name", job)],
        )
    }
}

/// The name, if it has a series of its own.
fn listed(known: &HashMap<Option<LockName>, Duration>, name: &LockName) -> Option<LockName> {
    let name = Some(name.clone());
    if known.contains_key(&name) || known.len() < MOST_JOBS { name } else { None }
}
