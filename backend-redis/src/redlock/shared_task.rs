//! A task whose answer serves all who ask for it while it is under way.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use lockwell_core::{Error, Result};

use crate::words::error::no_answer;

type UnderWay<T> = Shared<BoxFuture<'static, Result<T, Arc<Error>>>>;

/// The latest task, and what it was for. It is a task of its own: whoever asked first may not be polled for a
/// while, and the others must not wait for that.
pub(super) struct SharedTask<T: Clone>(Mutex<Option<(u64, UnderWay<T>)>>);

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The answer of the task for `key` that is under way, or of this one.
    pub(super) async fn answer(
        &self,
        key: u64,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let answer = self.under_way(key, work);
        answer.await.map_err(|error| error.duplicate())
    }

    fn under_way(&self, key: u64, work: impl Future<Output = Result<T>> + Send + 'static) -> UnderWay<T> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, under_way)) = &*latest
            && *of == key
            && under_way.peek().is_none()
        {
            return under_way.clone();
        }
        let task = tokio::spawn(work);
        let answer = async { task.await.unwrap_or_else(|_| Err(no_answer(None))).map_err(Arc::new) };
        latest.insert((key, answer.boxed().shared())).1.clone()
    }
}
