//! How the requests of one runtime are sent, and their answers come back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::Result;
use lockwell_core::backend::{Batcher, Waiters, lock};

use crate::client::service::{Answered, Statements, about_file};
use crate::dialect::Dialect;
use crate::dialect::places::HandOverPlaces;
use crate::dialect::requests::{Answer, Done, Job, Request, Route, other_answer};
use crate::words::Freed;

/// Sends the requests of one runtime. Those that arrive together share a statement.
pub(crate) struct Asker<D: Dialect> {
    pub(crate) dialect: Arc<D>,
    pub(crate) waiters: Arc<Waiters>,
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(crate) places: Arc<HandOverPlaces>,
    pub(super) batcher: Batcher<Statements<D>>,
    /// No request may take longer.
    pub(super) limit: Duration,
}

impl<D: Dialect> Asker<D> {
    pub(super) fn new(dialect: &Arc<D>, limit: Duration) -> Self {
        let waiters = Waiters::new();
        let statements = Statements::new(Arc::clone(dialect), Arc::clone(&waiters));
        let batcher = Batcher::new(statements, dialect.bounds());
        Self { dialect: Arc::clone(dialect), waiters, places: Arc::default(), batcher, limit }
    }

    /// Sends a request that must be answered within `limit`. Returns also whether an earlier try, whose answer
    /// was lost, may have been carried out as well.
    pub(super) async fn ask_within(
        &self,
        limit: Duration,
        route: Route,
        request: Request<D>,
    ) -> Result<(Answered<Answer>, bool)> {
        let reply = self.batcher.call(route, Arc::new(request), limit).await;
        Ok(reply.map_err(about_file::<D>)?.into_parts())
    }

    /// Sends a request, and waits for its answer.
    pub(crate) async fn ask(&self, route: Route, request: Request<D>) -> Result<Answered<Answer>> {
        Ok(self.ask_within(self.limit, route, request).await?.0)
    }

    /// Frees a lock, or leaves a group or the queue.
    pub(crate) async fn free(&self, route: Route, request: Request<D>) -> Result<Freed> {
        let ((Answer::Freed(freed), _), in_doubt) = self.ask_within(self.limit, route, request).await? else {
            return Err(other_answer());
        };
        // The first try may have freed the lock, and another may have taken it since.
        Ok(Freed { in_doubt: in_doubt || freed.in_doubt, ..freed })
    }

    /// Runs some work on the connection. The work is repeated until it has an answer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        route: Route,
        work: impl for<'c> Fn(&'c D, &'c mut D::Conn) -> Done<'c, T> + Send + Sync + 'static,
    ) -> Result<T> {
        let found = Arc::new(Mutex::new(None));
        let finds = Arc::clone(&found);
        let job = Job(Box::new(move |dialect, conn| {
            let (work, finds) = (work(dialect, conn), Arc::clone(&finds));
            Box::pin(async move {
                let outcome = work.await?;
                *lock(&finds) = Some(outcome);
                Ok(())
            })
        }));
        self.ask(route, Request::Job(job)).await?;
        let found = lock(&found).take();
        found.ok_or_else(other_answer)
    }
}
