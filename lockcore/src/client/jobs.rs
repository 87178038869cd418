//! Jobs that run once for a key, and what is known of them.

use crate::request::{Job, JobState, Keyed, read_jobs};
use crate::{Error, LockName, LockRequest, Locks, Operation, RecordKind, Result};

impl Locks {
    /// A request for a job that runs once for this key, over all hosts, also when a host dies in the middle.
    ///
    /// The key names the firing, and whoever schedules the job makes it, for example from the date: 1 to 100
    /// bytes without control characters. The lock of that name is held while the job runs. Its record has the
    /// last 100 keys, which are compared for equality. Several jobs have several names.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// use lockwell::Once;
    /// let locks = lockwell::Locks::in_memory();
    /// let report = async |_run| Ok::<_, lockwell::Error>("sent");
    /// let first = locks.once("nightly", "2026-11-29").attempts(3).try_run(report).await?;
    /// assert_eq!(first, Once::Ran("sent"));
    /// let second = locks.once("nightly", "2026-11-29").try_run(report).await?;
    /// assert!(matches!(second, Once::Done(job) if job.attempts == 1));
    /// # Ok(()) }
    /// ```
    pub fn once<N: TryInto<LockName, Error: Into<Error>>>(
        &self,
        name: N,
        key: impl Into<String>,
    ) -> LockRequest<Keyed> {
        LockRequest::keyed(self.lock(name), key.into())
    }

    /// The last keys of a job, the newest first.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where [`records`](crate::Requirement::Records) is not
    /// promised.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn job<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<Vec<Job>> {
        let bad = |error: Error| self.book.decorate(error, Operation::ReadRecord, None);
        let name = name.try_into().map_err(|error| bad(error.into()))?;
        let mut record = read_jobs(&self.book, &name).await?;
        loop {
            let mut jobs: Vec<_> = record.entries().map(|(entry, by)| Job::new(&name, entry, by)).collect();
            let Some(newest) = jobs.first_mut().filter(|newest| newest.state == JobState::Running) else {
                return Ok(jobs);
            };
            let holders = self.inspect(&name).await?.holders;
            if holders.iter().any(|holder| Some(holder.token) == newest.token) {
                return Ok(jobs);
            }
            // It may have ended between the two looks. Whoever ends writes that before the lock is free.
            let again = read_jobs(&self.book, &name).await?;
            if again == record {
                newest.state = JobState::Died;
                return Ok(jobs);
            }
            record = again;
        }
    }

    /// The newest key of each job of this server.
    ///
    /// # Errors
    /// As [`job`](Self::job).
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        let decorate = |error| self.book.decorate(error, Operation::ReadRecord, None);
        self.capabilities().check_records().map_err(decorate)?;
        let mut names = self.book.backend.records(RecordKind::Job).await.map_err(decorate)?;
        names.sort();
        let mut jobs = Vec::new();
        for name in names {
            jobs.extend(self.job(name).await?.into_iter().next());
        }
        Ok(jobs)
    }

    /// Forgets a key, so that its job can run again. It takes the lock for this, and waits for it as
    /// [`lock`](Self::lock) does. False: it was not known.
    ///
    /// # Cancel safety
    /// When this future is dropped, the key may or may not be forgotten.
    pub async fn forget_job<N: TryInto<LockName, Error: Into<Error>>>(
        &self,
        name: N,
        key: impl Into<String>,
    ) -> Result<bool> {
        let (mut steps, request) = self.once(name, key).steps()?;
        let guard = request.await?;
        let known = steps.forget(&guard.handle()).await?;
        drop(guard.release().await);
        Ok(known)
    }
}
