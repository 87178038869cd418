//! The posts of the workers: one who was killed can be followed by another, who does the same work.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::plan::Work;
use crate::worker::Worker;

/// How long a worker may take to come to an end.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Where one works at a time.
#[derive(Debug)]
pub(crate) struct Post {
    kind: Kind,
    url: String,
    work: Work,
    environment: Vec<(String, String)>,
    /// The process id, if it is a process.
    id: Mutex<Option<u32>>,
    /// `None`: it is being replaced, or the work is over.
    worker: tokio::sync::Mutex<Option<Worker>>,
    /// How those who were killed ended otherwise.
    badly: Mutex<Vec<String>>,
}

impl Post {
    /// Starts a worker, a process with this added to its environment; with `memory://`, tasks.
    pub(crate) async fn fill(
        kind: Kind,
        url: &str,
        work: Work,
        environment: Vec<(String, String)>,
    ) -> Result<Self> {
        let worker = hire(kind, url, &work, &environment).await?;
        Ok(Self {
            kind,
            url: url.to_owned(),
            work,
            environment,
            id: Mutex::new(worker.id()),
            worker: tokio::sync::Mutex::new(Some(worker)),
            badly: Mutex::default(),
        })
    }

    /// The process id of who works here at present.
    pub(crate) fn id(&self) -> Option<u32> {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is connected.
    pub(crate) async fn ready(&self) -> Result<()> {
        match self.worker.lock().await.as_mut() {
            Some(worker) => worker.ready().await,
            None => Ok(()),
        }
    }

    /// Lets it begin.
    pub(crate) async fn begin(&self) {
        if let Some(worker) = self.worker.lock().await.as_mut() {
            worker.begin().await;
        }
    }

    /// Another takes the place of one who was killed, and begins at once.
    pub(crate) async fn replace(&self) -> Result<()> {
        let mut post = self.worker.lock().await;
        let killed = post.take().ok_or_else(|| Error::failed("nobody works there"))?;
        if let Err(error) = killed.finish(true, TIMEOUT).await {
            self.badly.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }
        let mut worker = hire(self.kind, &self.url, &self.work, &self.environment).await?;
        worker.ready().await?;
        worker.begin().await;
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = worker.id();
        *post = Some(worker);
        Ok(())
    }

    /// Tells it to come to an end.
    pub(crate) async fn stop(&self) {
        if let Some(worker) = self.worker.lock().await.as_mut() {
            worker.stop().await;
        }
    }

    /// Waits for its end. Answers how it, and those before it, ended badly.
    pub(crate) async fn finish(&self, was_killed: bool) -> Vec<String> {
        let worker = self.worker.lock().await.take();
        let mut badly = std::mem::take(&mut *self.badly.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(worker) = worker {
            badly.extend(worker.finish(was_killed, TIMEOUT).await.err().map(|error| error.to_string()));
        }
        badly
    }
}

async fn hire(kind: Kind, url: &str, work: &Work, environment: &[(String, String)]) -> Result<Worker> {
    match kind {
        Kind::Memory => Worker::tasks(url, work.clone()).await,
        _ => Worker::process(url, work.clone(), environment).await,
    }
}
