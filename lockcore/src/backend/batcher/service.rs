//! How a backend sends its requests, and what comes of them.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;

use crate::{Error, ErrorKind, Moment, Result};

/// How a backend sends its requests; a [`Batcher`](super::Batcher) decides which of them share a call, and
/// when.
pub trait Service: Send + Sync + Sized + 'static {
    /// Requests with different keys never wait for each other. A key is a server node, a cluster slot or a
    /// connection.
    type Key: Clone + Debug + Eq + Hash + Send + Sync + 'static;
    /// One request.
    type Request: Send + Sync + 'static;
    /// Its answer.
    type Answer: Send + 'static;

    /// In how many parts an answer may come, each of which wakes whoever polls the call. A caller that
    /// [drives](Self::is_light) its call polls it again so often; then a task has it.
    const PARTS: u8 = 1;

    /// Whether a request can share a call with the first of a batch. Both have the same key.
    fn shares(&self, first: &Self::Request, other: &Self::Request) -> bool;

    /// The most requests in a call that begins with this one, if that is fewer than the
    /// [bound](Bounds::batch).
    fn most(&self, _first: &Self::Request) -> usize {
        usize::MAX
    }

    /// Whether two requests want the same resource, so that if one is [blocked](CallOutcome::Blocked), the
    /// other is, too.
    fn is_about_one(&self, _first: &Self::Request, _other: &Self::Request) -> bool {
        false
    }

    /// Of several waiting requests, those with the lowest number are sent first.
    fn urgency(&self, _request: &Self::Request) -> u8 {
        0
    }

    /// Whether a request should still be sent. A request that queues should not, once its claim was
    /// cancelled.
    fn is_wanted(&self, _request: &Self::Request) -> bool {
        true
    }

    /// Whether the caller of this request may drive its call itself, as long as there is no other caller of
    /// its key, and until it has been woken so [many](Self::PARTS) times: with the answer, as a rule. That is
    /// quicker than a task, but a caller can be left without being polled at the first awaits of
    /// [`prepare`](Self::prepare) and [`call`](Self::call). So it is allowed only if nothing is kept from
    /// others meanwhile, no mutex here and no lock of a transaction at the server, and if what follows those
    /// awaits may be done late.
    fn is_light(&self, _key: &Self::Key, _request: &Self::Request) -> bool {
        false
    }

    /// Notes that a request may have been executed although its answer was lost, and will be repeated.
    fn note_in_doubt(&self, _request: &Self::Request) {}

    /// Makes sure that there is a connection. It is a separate step, since it may take long. A request that
    /// was cancelled meanwhile is not sent, so that it does not arrive after the release that cleans up after
    /// it.
    ///
    /// After a [retryable](Error::is_retryable) error this is tried again; any other error ends all requests
    /// of the batch.
    fn prepare(&self, key: &Self::Key, attempt: Attempt) -> impl Future<Output = Result<()>> + Send {
        let _: (&Self::Key, Attempt) = (key, attempt);
        std::future::ready(Ok(()))
    }

    /// Sends a batch at once, and returns an outcome for each request, in order.
    ///
    /// It should return by [`Attempt::until`]. Otherwise its future is dropped then: the connection of that
    /// future must not be used any more.
    fn call(
        &self,
        key: &Self::Key,
        batch: &[&Self::Request],
        attempt: Attempt,
    ) -> impl Future<Output = Vec<CallOutcome<Self::Answer>>> + Send;
}

/// One try of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub(super) began: Moment,
    pub(super) until: Moment,
}

impl Attempt {
    /// When the batch was tried for the first time.
    pub fn began(&self) -> Moment {
        self.began
    }

    /// When the last caller stops waiting.
    pub fn until(&self) -> Moment {
        self.until
    }
}

/// The outcome of one request of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallOutcome<T> {
    /// It was answered.
    Answered(T),
    /// It failed, and another try would not help.
    Failed(Error),
    /// The server refused the call that it was in. One request may be the reason for which all others were
    /// refused, so each half of the call is tried again by itself, in doubt. A request that was alone fails.
    Refused(Error),
    /// The server cannot execute it now, for instance while it starts, and has not executed it. It is tried
    /// again until its caller stops waiting.
    Unavailable(Error),
    /// It collided with others, for instance in a deadlock, and was not executed. It is tried again a limited
    /// number of times.
    Again(Error),
    /// It is unknown whether it was executed. It is tried again after a pause, in doubt, with fewer others:
    /// it may be the reason.
    Unknown(Error),
    /// It was not executed, since a resource that a request of the batch wants is blocked. Requests for
    /// different resources are tried again separately.
    Blocked,
}

/// An answer.
#[derive(Debug)]
pub struct Reply<T> {
    pub(super) answer: T,
    pub(super) in_doubt: bool,
}

impl<T> Reply<T> {
    /// The answer of the server.
    pub fn into_answer(self) -> T {
        self.answer
    }

    /// The answer of the server, and whether an earlier try, whose answer was lost, may have been executed as
    /// well.
    pub fn into_parts(self) -> (T, bool) {
        (self.answer, self.in_doubt)
    }
}

/// The bounds of a batcher. By default there are at most 500 requests in a call, one call of a key at a time,
/// and 65,536 waiting requests.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Bounds {
    pub(super) batch: usize,
    pub(super) under_way: usize,
    pub(super) waiting: usize,
}

impl Bounds {
    /// The default bounds.
    pub const fn new() -> Self {
        Self { batch: 500, under_way: 1, waiting: 65_536 }
    }

    /// The most requests in one call.
    pub const fn batch(self, most: usize) -> Self {
        Self { batch: most, ..self }
    }

    /// The most calls of one key that are under way at a time.
    pub const fn under_way(self, most: usize) -> Self {
        Self { under_way: most, ..self }
    }

    /// The most waiting requests, of all keys together. One more is refused as
    /// [`Overloaded`](crate::ErrorKind::Overloaded).
    pub const fn waiting(self, most: usize) -> Self {
        Self { waiting: most, ..self }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new()
    }
}

/// The error of a caller that has no answer in time, with the last failure as its cause if there is one.
pub(in crate::backend) fn no_answer(last: Option<&Error>) -> Error {
    if let Some(last) = last.filter(|last| last.kind() == ErrorKind::Unreachable) {
        return last.duplicate();
    }
    match last {
        Some(last) => Error::silence().with_source(format!("{last:#}")),
        None => Error::silence(),
    }
}
