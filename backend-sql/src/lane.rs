//! One connection, and the requests that travel on it.
//!
//! Requests that meet share a statement: whatever arrives while a statement is under way goes into the next one
//! (natural batching). Nobody waits for company: a request that finds the lane idle starts at once, alone.
//!
//! The lane owns its connection and runs in a task of its own, so a caller that goes away leaves no half-read answer
//! behind. A connection that failed or did not answer in time is dropped and replaced, and the requests are repeated:
//! every statement is idempotent for its owner, so that a lost reply does no harm. A request that is repeated keeps its
//! place before all that came later, so a release never overtakes the acquire that it cleans up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::seats::Seats;
use lockcore::{Moment, Result};
use tokio::sync::oneshot;

use crate::database::Verdict;
use crate::dialect::Dialect;
use crate::errand::{Errand, Job};
use crate::error::{fatal, no_answer};

/// How long a claim insists that meets a locked row which its lock's holders do not lock for long.
const INSIST: Duration = Duration::from_millis(500);

/// How often a statement that the database gave back as "not applied, try again" is repeated.
const REPEATS: u32 = 20;

/// The answer to one request, and when the statement that brought it was sent.
pub(crate) type Reply<T> = oneshot::Sender<Result<(T, Moment)>>;

/// One request of a batch.
pub(crate) struct Request<D: Dialect, E: Errand<D>> {
    pub(crate) input: E::Input,
    pub(crate) reply: Reply<E::Output>,
    pub(crate) give_up: Moment,
}

pub(crate) struct Lane<D: Dialect>(Arc<Inner<D>>);

impl<D: Dialect> Clone for Lane<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<D: Dialect> {
    dialect: Arc<D>,
    seats: Arc<Seats>,
    timeout: Duration,
    state: Mutex<State<D>>,
}

struct State<D: Dialect> {
    waiting: Vec<Job<D>>,
    /// Whether a task is serving the lane. It then has the connection.
    served: bool,
    conn: Option<D::Conn>,
}

impl<D: Dialect> Lane<D> {
    pub(crate) fn new(dialect: Arc<D>, seats: Arc<Seats>, timeout: Duration) -> Self {
        let state = State { waiting: Vec::new(), served: false, conn: None };
        Self(Arc::new(Inner { dialect, seats, timeout, state: Mutex::new(state) }))
    }

    /// Sends a request and waits for its answer, at most for the lane's timeout.
    pub(crate) async fn call<E: Errand<D>>(&self, input: E::Input) -> Result<(E::Output, Moment)> {
        self.call_within::<E>(input, self.0.timeout).await
    }

    /// Sends a request that is given up, and its connection replaced, after `patience`.
    pub(crate) async fn call_within<E: Errand<D>>(
        &self,
        input: E::Input,
        patience: Duration,
    ) -> Result<(E::Output, Moment)> {
        let (job, answer) = job::<D, E>(input, patience.min(self.0.timeout));
        self.post([job]);
        answer.await
    }

    /// Sends several requests, which travel together: in one statement, where they fit into one.
    pub(crate) async fn call_each<E: Errand<D>>(
        &self,
        inputs: impl IntoIterator<Item = E::Input>,
    ) -> Vec<Result<(E::Output, Moment)>> {
        let asked = inputs.into_iter().map(|input| job::<D, E>(input, self.0.timeout));
        let (jobs, asked): (Vec<_>, Vec<_>) = asked.unzip();
        self.post(jobs);
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.push(answer.await);
        }
        answers
    }

    /// Sends a request whose answer nobody waits for.
    pub(crate) fn send<E: Errand<D>>(&self, input: E::Input) {
        let (job, _) = job::<D, E>(input, self.0.timeout);
        self.post([job]);
    }

    fn post(&self, jobs: impl IntoIterator<Item = Job<D>>) {
        let mut state = self.0.state();
        state.waiting.extend(jobs);
        if !state.served {
            state.served = true;
            let server = Server { conn: state.conn.take(), inner: Arc::clone(&self.0), done: false };
            drop(state);
            drop(tokio::spawn(server.serve()));
        }
    }

    /// Closes the connection if it is idle.
    pub(crate) fn close(&self) {
        self.0.state().conn = None;
    }
}

/// A request that is given up after `patience`, and its answer.
fn job<D: Dialect, E: Errand<D>>(
    input: E::Input,
    patience: Duration,
) -> (Job<D>, impl Future<Output = Result<(E::Output, Moment)>> + use<D, E>) {
    let (reply, answer) = oneshot::channel();
    let job = E::job(Request { input, reply, give_up: Moment::now().after(patience) });
    // The lane's task is gone only with its runtime.
    (job, async move { answer.await.unwrap_or_else(|_| Err(no_answer(None))) })
}

impl<D: Dialect> Inner<D> {
    fn state(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that serves a lane for as long as there are requests.
pub(crate) struct Server<D: Dialect> {
    inner: Arc<Inner<D>>,
    conn: Option<D::Conn>,
    /// The lane was left in good order, and another task may be serving it by now.
    done: bool,
}

impl<D: Dialect> Drop for Server<D> {
    /// If the runtime drops the task half-way, the connection goes with it, in whatever state it is, and the requests
    /// learn that they have no answer. The next request starts a new task.
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.inner.state();
            state.served = false;
            state.waiting.clear();
        }
    }
}

impl<D: Dialect> Server<D> {
    async fn serve(mut self) {
        loop {
            let jobs = {
                let mut state = self.inner.state();
                if state.waiting.is_empty() {
                    state.served = false;
                    state.conn = self.conn.take();
                    self.done = true;
                    return;
                }
                std::mem::take(&mut state.waiting)
            };
            let alone = jobs.len() == 1;
            crate::errand::serve_all(&mut self, jobs).await;
            if !alone {
                // Those who were just answered often ask again at once: let them meet in the next statement.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Serves a batch of one kind: one statement, repeated until it has an answer or the time of its requests is over.
    pub(crate) async fn serve_batch<E: Errand<D>>(&mut self, batch: Vec<Request<D, E>>) {
        let inner = Arc::clone(&self.inner);
        let (mut inputs, mut replies) = (Vec::new(), Vec::new());
        for Request { input, reply, give_up } in batch {
            inputs.push(input);
            replies.push((reply, give_up));
        }
        let end = replies.iter().map(|(_, give_up)| *give_up).max().unwrap_or(Moment::NEVER);
        let insist = Moment::now().after(INSIST);
        let mut repeats = 0;
        let mut last = None;
        // Whether an earlier try may have been carried out without our hearing of it.
        let mut in_doubt = false;
        let error = loop {
            let left = end.remaining();
            if left.is_zero() {
                break no_answer(last.as_ref());
            }
            let conn = match self.connection(left).await {
                Ok(conn) => conn,
                Err(error) => break error,
            };
            let sent = Moment::now();
            let work = E::run(&inner.dialect, &inner.seats, conn, &inputs);
            match tokio::time::timeout(left, work).await {
                Ok(Ok(outputs)) => {
                    for (mut output, (reply, _)) in outputs.into_iter().zip(replies) {
                        if in_doubt {
                            E::after_doubt(&mut output);
                        }
                        let answer = if E::is_blocked(&output) { E::blocked() } else { Ok(output) };
                        // A caller that has gone away does not read its answer.
                        drop(reply.send(answer.map(|output| (output, sent))));
                    }
                    return;
                }
                Ok(Err(error)) => match verdict(&*inner.dialect, &error) {
                    Verdict::Again if repeats < REPEATS => {
                        repeats += 1;
                        pause(repeats).await;
                    }
                    Verdict::Blocked if inputs[1..].iter().any(|one| !E::is_about_one(&inputs[0], one)) => {
                        return self.serve_apart::<E>(inputs, replies).await;
                    }
                    Verdict::Blocked
                        if inputs.iter().all(E::insists) && insist.remaining() > Duration::ZERO => {}
                    Verdict::Blocked => {
                        for (reply, _) in replies {
                            drop(reply.send(E::blocked().map(|output| (output, sent))));
                        }
                        return;
                    }
                    Verdict::Broken => {
                        tracing::debug!(%error, "a connection failed and is replaced");
                        self.conn = None;
                        in_doubt = true;
                        last = Some(error);
                        repeats += 1;
                        pause(repeats.min(5)).await;
                    }
                    Verdict::Again | Verdict::Fatal => break fatal(&error),
                },
                Err(_) => {
                    tracing::debug!("a connection does not answer and is replaced");
                    self.conn = None;
                    in_doubt = true;
                }
            }
        };
        for (reply, _) in replies {
            drop(reply.send(Err(error.duplicate())));
        }
    }

    /// One row of the batch is locked by somebody's transaction: the others must not wait for it.
    async fn serve_apart<E: Errand<D>>(
        &mut self,
        inputs: Vec<E::Input>,
        replies: Vec<(Reply<E::Output>, Moment)>,
    ) {
        let mut parts: Vec<Vec<Request<D, E>>> = Vec::new();
        for (input, (reply, give_up)) in inputs.into_iter().zip(replies) {
            let place = parts.iter().position(|part| E::is_about_one(&part[0].input, &input));
            let request = Request { input, reply, give_up };
            match place {
                Some(at) => parts[at].push(request),
                None => parts.push(vec![request]),
            }
        }
        for part in parts {
            Box::pin(self.serve_batch::<E>(part)).await;
        }
    }

    /// The connection; a new one if there is none.
    async fn connection(&mut self, patience: Duration) -> Result<&mut D::Conn> {
        let end = Moment::now().after(patience);
        let mut tries = 0;
        while self.conn.is_none() {
            match tokio::time::timeout(end.remaining(), self.inner.dialect.connect()).await {
                Ok(Ok(conn)) => self.conn = Some(conn),
                Ok(Err(error)) => {
                    if verdict(&*self.inner.dialect, &error) == Verdict::Fatal {
                        return Err(fatal(&error));
                    }
                    tries += 1;
                    let nap = pause(tries);
                    if tokio::time::timeout(end.remaining(), nap).await.is_err() {
                        return Err(no_answer(Some(&error)));
                    }
                }
                Err(_) => return Err(no_answer(None)),
            }
        }
        self.conn.as_mut().ok_or_else(|| no_answer(None))
    }
}

/// Backs off, with jitter so that those who collided do not meet again.
async fn pause(times: u32) {
    let most = Duration::from_millis(1 << times.min(8));
    tokio::time::sleep(most.mul_f64(0.25 + 0.75 * rand::random::<f64>())).await;
}

pub(crate) fn verdict<D: Dialect>(dialect: &D, error: &sqlx::Error) -> Verdict {
    match error {
        sqlx::Error::Database(error) => dialect.verdict(&**error),
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => Verdict::Broken,
        _ => Verdict::Fatal,
    }
}
