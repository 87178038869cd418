//! Metrics of jobs that run once for a key.
//!
//! Unlike a lock, a job is watched by its name, so the name is a label. No key is a label.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Gauge, Key, Label};

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
    done: Arc<Done>,
}

/// When each job was last done, since 1970, by the number of its name.
#[derive(Debug, Default)]
struct Done(Mutex<HashMap<u8, Duration>>);

impl Done {
    /// Notes a time. Returns whether it is later than what was known.
    fn note(&self, job: u8, since: Duration) -> bool {
        let mut known = lock(&self.0);
        let last = known.entry(job).or_default();
        let is_later = since > *last;
        *last = since.max(*last);
        is_later
    }

    fn last(&self, job: u8) -> Duration {
        lock(&self.0).get(&job).copied().unwrap_or_default()
    }

    /// Shows the last time. Another may show an earlier one in the same moment, so each looks again when it has shown
    /// one: the last to do so has shown the latest.
    fn show(&self, job: u8, gauge: &Gauge) {
        loop {
            let last = self.last(job);
            gauge.set(last.as_secs_f64());
            if self.last(job) == last {
                return;
            }
        }
    }
}

impl JobSeries {
    pub(super) fn new(backend: &'static str) -> Self {
        Self { backend, names: Names::of_jobs(), done: Arc::default() }
    }

    /// What is known of a job: when it was last done, here or elsewhere.
    pub(super) fn seen(&self, name: &LockName, done: Option<SystemTime>) {
        let since = done.and_then(|done| done.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let job = self.names.number(name.as_str());
        let is_later = self.done.note(job, since);
        // A rate needs the value before the first attempt.
        record(&self.key(JOB_ATTEMPTS, job), |recorder, key| {
            recorder.register_counter(key, &METADATA).increment(0);
        });
        if is_later {
            let done = Arc::clone(&self.done);
            record(&self.key(JOB_SUCCESS, job), move |recorder, key| {
                done.show(job, &recorder.register_gauge(key, &METADATA));
            });
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::mpsc::channel;

    use metrics::{Counter, GaugeFn, Histogram, KeyName, Metadata, Recorder, SharedString, Unit};

    use super::*;

    /// Who reads the job that it is told of, as a recorder may that writes a page with all jobs.
    struct Curious {
        jobs: Weak<JobSeries>,
        shown: Arc<Mutex<f64>>,
    }

    struct Shown(Arc<Mutex<f64>>, Weak<JobSeries>);

    impl GaugeFn for Shown {
        fn increment(&self, _: f64) {
            unreachable!("it is told the time");
        }

        fn decrement(&self, _: f64) {
            unreachable!("it is told the time");
        }

        fn set(&self, time: f64) {
            let later = Some(UNIX_EPOCH + Duration::from_secs(7));
            if time < 7.0 {
                self.1.upgrade().expect("the series").seen(&name(), later);
            }
            *lock(&self.0) = time;
        }
    }

    impl Recorder for Curious {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(Shown(Arc::clone(&self.shown), Weak::clone(&self.jobs))))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    fn name() -> LockName {
        LockName::new("nightly").unwrap()
    }

    /// A recorder that calls back waits for nothing, and the latest time stays.
    #[test]
    fn a_recorder_may_look_at_the_job_that_it_is_told_of() {
        let (end, ended) = channel();
        std::thread::spawn(move || {
            let jobs = Arc::new(JobSeries::new("test"));
            let curious = Curious { jobs: Arc::downgrade(&jobs), shown: Arc::default() };
            metrics::with_local_recorder(&curious, || {
                jobs.seen(&name(), Some(UNIX_EPOCH + Duration::from_secs(5)));
            });
            end.send(*lock(&curious.shown)).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(7.0));
    }
}
