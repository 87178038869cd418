//! What a worker does whose scenario is about jobs: as one of several hosts, it runs each of them once for
//! each key, and again what has failed.
//!
//! A host that starts again begins with the first key: what is done stays done.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockwell::{ErrorKind, JobRun, Locks, Once};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use super::notes::{Event, Line, Told};
use super::{ATTEMPTS, Firing};
use crate::error::Result;
use crate::history::Journal;
use crate::plan::{Until, Work};
use crate::time::nanos;

/// How many keys there are: a record has the last hundred.
const KEYS: u32 = 90;

/// How long a host waits for a job that another one does.
const WAIT: Duration = Duration::from_secs(20);

/// A host that has been told to end gives a key up after so many starts. It is wrong by then.
const MOST: u32 = 10;

/// Between two attempts of a host, and between two looks whether the work is over.
const PAUSE: Duration = Duration::from_millis(50);

/// Works until then, and finishes the keys that it has begun with.
pub(crate) async fn host(locks: &Locks, work: &Work, until: &Until) -> Result<()> {
    // The process before it has left a file of its own.
    let file = |process: u32| PathBuf::from(format!("{}.{process}", work.history.display()));
    let mut process = 0;
    while file(process).exists() {
        process += 1;
    }
    let journal = Arc::new(Journal::create(&file(process))?);
    let mut jobs = JoinSet::new();
    for job in 0..work.crew.tasks {
        let seed = work.seed ^ (u64::from(work.worker) << 32) ^ (u64::from(process) << 16) ^ u64::from(job);
        let host = Host {
            job,
            locks: locks.clone(),
            work: work.clone(),
            journal: Arc::clone(&journal),
            random: StdRng::seed_from_u64(seed),
        };
        jobs.spawn(host.run(until.clone()));
    }
    jobs.join_all().await;
    Ok(())
}

/// Why an attempt has ended without a success.
enum Failure {
    Lock(ErrorKind),
    Job,
}

impl From<lockwell::Error> for Failure {
    fn from(error: lockwell::Error) -> Self {
        Self::Lock(error.kind())
    }
}

/// A host, for one of its jobs.
struct Host {
    job: u32,
    locks: Locks,
    work: Work,
    journal: Arc<Journal>,
    random: StdRng,
}

impl Host {
    async fn run(mut self, until: Until) {
        for key in 0..KEYS {
            if until.is_over() {
                return;
            }
            let mut afterwards = 0;
            while !self.start(Firing { job: self.job, key }).await {
                tokio::time::sleep(PAUSE).await;
                afterwards += u32::from(until.is_over());
                if afterwards == MOST {
                    return;
                }
            }
        }
        while !until.is_over() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn note(&self, Firing { job, key }: Firing, event: Event) {
        self.journal.write(&Line { job, key, event });
    }

    /// Starts the job for this key. False: it is neither done nor given up.
    async fn start(&mut self, firing: Firing) -> bool {
        self.note(firing, Event::Asked);
        let request = self.locks.once(self.work.name(self.job), firing.key());
        let request = request.attempts(ATTEMPTS).ttl(self.work.ttl()).wait(WAIT);
        let end = request.try_run(async |run| self.attempt(firing, &run).await).await;
        let end = match end {
            Ok(Once::Ran(())) => Told::Ran,
            Ok(Once::Done(_)) => Told::Done,
            Ok(Once::GivenUp(_)) => Told::GivenUp,
            Ok(Once::FailedElsewhere(_)) => Told::FailedElsewhere,
            Err(Failure::Job) => Told::Failed,
            Err(Failure::Lock(kind)) => Told::Refused(format!("{kind:?}")),
        };
        let is_over = matches!(end, Told::Ran | Told::Done | Told::GivenUp);
        self.note(firing, Event::Told { at: nanos(), end });
        is_over
    }

    async fn attempt(&mut self, firing: Firing, run: &JobRun) -> Result<(), Failure> {
        let attempt = run.attempt();
        // The time first: whoever holds the lock afterwards held it then.
        let at = nanos();
        self.note(firing, Event::Began { attempt, at, held: run.held().is_held() });
        let length = self.random.random_range(self.work.crew.hold / 3..=self.work.crew.hold);
        tokio::time::sleep(Duration::from_micros(length)).await;
        let at = nanos();
        // The last job never succeeds.
        if self.job + 1 == self.work.crew.tasks {
            self.note(firing, Event::Failed { at });
            return Err(Failure::Job);
        }
        self.note(firing, Event::Worked { at, held: run.held().is_held() });
        Ok(())
    }
}
