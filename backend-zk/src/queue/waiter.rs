//! One acquire: it creates the node of the claim, lists the queue and waits; it continues after lost answers
//! and ended sessions.
//!
//! A place in the queue is an ephemeral sequential node with the owner id in its name. The requests that
//! create it and list the queue are sent together. The answer has the path of the node. Without an answer the
//! node is found by the owner id and the session: a node of an earlier session can be deleted at any time, so
//! it does not count.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::backend::{Backoff, lock};
use lockwell_core::{Claim, Error, ErrorKind, Grant, Moment, Result, Wait};
use zookeeper_client as zk;

use crate::client::ClientInner;
use crate::error::{ErrorClass, class_of, explain, no_answer};
use crate::names::lock_path;
use crate::queue::child::{Child, Data, Form, Kind};
use crate::queue::node::{Node, token_of};
use crate::queue::place::{Place, while_polled};
use crate::queue::position::{Position, Waiting, position};
use crate::queue::release::release;
use crate::queue::stop::Stop;
use crate::session::Session;

/// The pause before an unanswered request is repeated. Requests wait in the client for a connection, so this
/// is not a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest pause before a request is repeated that the server refused because it has too many.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One acquire under way.
pub(crate) struct NodeWaiter<'a> {
    pub(crate) inner: &'a Arc<ClientInner>,
    pub(crate) claim: &'a Claim,
    pub(crate) session: Arc<Session>,
    /// What is in the table of leases as soon as there may be a node.
    pub(crate) place: Arc<Place>,
    /// The folder of the lock.
    pub(crate) folder: String,
    pub(crate) kind: Kind,
    pub(crate) form: Form,
    /// Ended sessions of this acquire.
    past: Vec<i64>,
    /// How often it may begin again if it does not wait.
    tries_left: u8,
    /// The servers have reported that the folder does not exist.
    pub(crate) folder_missing: bool,
    /// A create was sent and not answered.
    pub(crate) in_doubt: bool,
    /// The latest list of the queue, if it has not been used yet.
    pub(crate) listed: Option<Vec<Child>>,
    /// Other claims may have seen this claim wait.
    pub(crate) waited: bool,
    /// When it began to wait for the last answer.
    asked: &'a Mutex<Moment>,
}

/// Acquires the lock for a claim. `None`: it is not free, and the wait is over.
pub(crate) async fn acquire(inner: &Arc<ClientInner>, claim: &Claim) -> Result<Option<Grant>> {
    let kind = Kind::of(claim.mode())
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, "this backend does not know this mode"))?;
    if claim.wait() != Wait::No {
        // The node is a place in the queue as soon as it exists.
        claim.note_queued();
    }
    // One time limit for all requests of the acquire. Each request goes on in the background; lockcore
    // releases the claim.
    let asked = Mutex::new(Moment::now());
    // Each of those who poll it would have room for it twice.
    let work = Box::pin(async { NodeWaiter::new(inner, claim, kind, &asked).await?.run().await });
    let work = while_polled(&inner.leases, claim, work);
    let granted = if claim.wait() == Wait::No {
        answered(work, &asked, inner.options.timeout).await.ok_or_else(no_answer)??
    } else {
        claim.while_wanted(work).await.ok_or_else(|| claim.wait_over_error(*lock(&asked)))??
    };
    if granted.is_some() {
        claim.note_left_queue();
    }
    Ok(granted)
}

/// Continues with some work as long as each request is answered within `limit`.
async fn answered<T>(work: impl Future<Output = T>, asked: &Mutex<Moment>, limit: Duration) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        let end = lock(asked).after(limit);
        if end.has_passed() {
            return None;
        }
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            () = end.sleep() => (),
        }
    }
}

impl<'a> NodeWaiter<'a> {
    async fn new(
        inner: &'a Arc<ClientInner>,
        claim: &'a Claim,
        kind: Kind,
        asked: &'a Mutex<Moment>,
    ) -> Result<Self> {
        let folder = lock_path(&inner.options.base, claim.name());
        // A repeated acquire stays on the session that has the claim's node.
        let former = inner.leases.get(claim.owner());
        let (place, past, in_doubt) = match former {
            Some(place) if !place.session().is_over() => {
                let in_doubt = place.node().is_none();
                (place, Vec::new(), in_doubt)
            }
            former => {
                inner.leases.withdraw(claim.owner());
                let room = inner.room(claim, &folder).await?;
                let past = former.iter().map(|place| place.session().id()).collect();
                (Place::new(room, claim.name()), past, false)
            }
        };
        Ok(Self {
            session: Arc::clone(place.session()),
            place,
            past,
            tries_left: 1,
            folder,
            form: inner.options.form,
            inner,
            claim,
            kind,
            folder_missing: false,
            in_doubt,
            listed: None,
            waited: true,
            asked,
        })
    }

    async fn run(&mut self) -> Result<Option<Grant>> {
        let mut pauses = Backoff::new(PAUSE, LONGEST_PAUSE);
        let mut throttled = None;
        loop {
            let mut outcome = self.go().await;
            if matches!(outcome, Err(Stop::NotNow | Stop::Taken)) && self.is_given_up() {
                outcome = Err(Stop::GivenUp);
            }
            match outcome {
                Ok(grant) => return Ok(Some(grant)),
                Err(Stop::NotNow) => return Ok(None),
                Err(Stop::Taken) => {
                    return Err(Error::new(ErrorKind::NotHeld, "the claim was taken out of the queue"));
                }
                // In an earlier session there may be a node.
                Err(Stop::Failed(error))
                    if error.kind() == ErrorKind::Overloaded && !self.past.is_empty() =>
                {
                    return Err(no_answer());
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Unanswered) => tokio::time::sleep(PAUSE).await,
                Err(Stop::Throttled) => {
                    let since = *throttled.get_or_insert_with(Moment::now);
                    // Each request is answered. So the limit for answers does not end an acquire that has no
                    // wait.
                    if self.claim.wait() == Wait::No && since.after(self.inner.options.timeout).has_passed() {
                        return Err(explain(&zk::Error::Throttled));
                    }
                    pauses.pause().await;
                }
                Err(Stop::SessionOver) => {
                    if !self.may_begin_again() {
                        return Err(explain(&zk::Error::SessionExpired));
                    }
                    self.replace_session().await?;
                }
                Err(Stop::GivenUp) => {
                    if !self.may_begin_again() {
                        // Who does not wait must not be told that another holds the lock.
                        let asks = self.claim.wait() == Wait::No && !self.claim.is_cancelled();
                        return if asks { Err(no_answer()) } else { Ok(None) };
                    }
                    self.queue_again().await;
                }
            }
        }
    }

    /// A session can have ended unnoticed, as while the process was stopped. So a claim that does not wait is
    /// tried once more, with the next session.
    fn may_begin_again(&mut self) -> bool {
        if !self.claim.is_wait_over() {
            return true;
        }
        let may = self.claim.wait() == Wait::No && !self.claim.is_cancelled() && self.tries_left > 0;
        self.tries_left = self.tries_left.saturating_sub(1);
        may
    }

    /// Whether the place in the queue was given up, since nobody polled the claim for a while.
    pub(crate) fn is_given_up(&self) -> bool {
        // In this order: the place is marked before its row is removed.
        self.inner.leases.has_expired(self.claim.owner()) || self.place.is_given_up()
    }

    /// Continues with what is known of the node and the queue.
    async fn go(&mut self) -> Result<Grant, Stop> {
        loop {
            let node = match self.place.node() {
                Some(node) => node,
                None => self.enter().await?,
            };
            let queue = match self.listed.take() {
                Some(queue) => queue,
                None => self.list().await?,
            };
            match position(&queue, node.name()) {
                Position::First => return self.granted(&node).await,
                Position::Waiting(waiting) if self.claim.is_wait_over() => {
                    return self.leave(&node, &waiting).await;
                }
                Position::Waiting(waiting) => {
                    self.claim.note_in_use(waiting.held.mode())?;
                    self.waited = true;
                    if self.wait(&node, &waiting).await? {
                        return self.granted(&node).await;
                    }
                }
                Position::Behind(older) => {
                    if let Some(grant) = self.meet(&node, &older, &queue).await? {
                        return Ok(grant);
                    }
                }
                Position::Gone => return Err(Stop::Taken),
            }
        }
    }

    /// The answer to a request, if there is one in time.
    pub(crate) async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        self.note_asked();
        self.session.bounded(answer).await
    }

    /// Begins to wait for another answer.
    pub(crate) fn note_asked(&self) {
        *lock(self.asked) = Moment::now();
    }

    /// The answer to a request; `None` if its node does not exist.
    pub(crate) async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<Option<T>, Stop> {
        match self.bounded(answer).await {
            Ok(answer) => Ok(Some(answer)),
            Err(zk::Error::NoNode) => Ok(None),
            Err(error) => Err(match class_of(&error) {
                ErrorClass::SessionOver => Stop::SessionOver,
                ErrorClass::Unknown if self.session.is_over() => Stop::SessionOver,
                ErrorClass::Unknown => Stop::Unanswered,
                ErrorClass::Throttled => Stop::Throttled,
                ErrorClass::Refused => Stop::Failed(explain(&error)),
            }),
        }
    }

    /// An older node has our owner id. Returns the grant if another client holds the lock by that node.
    /// `None`: list the queue again.
    async fn meet(&self, node: &Arc<Node>, older: &Child, queue: &[Child]) -> Result<Option<Grant>, Stop> {
        let (client, path) = (&self.session.client, format!("{}/{}", self.folder, older.name));
        let Some(stat) = self.ask(client.check_stat(&path)).await?.flatten() else { return Ok(None) };
        if self.past.contains(&stat.ephemeral_owner) {
            // A node of an ended session of this acquire.
            self.ask(client.delete(&path, None)).await?;
            return Ok(None);
        }
        self.ask(client.delete(&node.path, None)).await?;
        self.place.set_node(None);
        if stat.ephemeral_owner == self.session.id() {
            // An earlier create of this claim, whose answer was lost.
            self.settle(path, older.sequence, stat.czxid).await?;
            return Ok(None);
        }
        self.inner.leases.withdraw(self.claim.owner());
        // Another client acquired this claim. The session of that client keeps the node for an unknown time,
        // so the grant has no validity here.
        if position(queue, &older.name) != Position::First {
            return Err(Stop::NotNow);
        }
        let (token, now) = (token_of(stat.czxid), Moment::now());
        Ok(Some(Grant::new(self.claim, token, now).with_deadline(now)))
    }

    /// The claim holds the lock. A grant should be valid for some time: if the last heartbeat is old, as
    /// after an election, this waits for new ones first. An answer proves the heartbeats that are older by
    /// the lag.
    async fn granted(&self, node: &Arc<Node>) -> Result<Grant, Stop> {
        if self.waited && matches!(self.kind, Kind::Permit(_)) {
            node.say_held(self.claim);
        }
        node.note_held();
        let (session, delay) = (&self.session, self.claim.lock_delay());
        for _ in 0..4 {
            // The lock delay is not the holder's.
            let left = session.deadline().before(delay).remaining();
            if left > session.timeout().saturating_sub(delay) / 3 {
                break;
            }
            self.ask(session.sign()).await?;
            tokio::time::sleep(session.lag() / 2).await;
        }
        // This client ends the claim's lease, so the lease begins now, unless the claim was released
        // meanwhile.
        self.inner.grant(self.claim, node, Moment::now()).ok_or(Stop::NotNow)
    }

    /// The wait is over. If the claim was allowed to wait, lockcore releases it.
    async fn leave(&self, node: &Arc<Node>, waiting: &Waiting) -> Result<Grant, Stop> {
        if self.claim.wait() != Wait::No {
            return Err(Stop::NotNow);
        }
        // A claim that does not wait knows only the name of the writer before it. That writer may have become
        // a reader.
        if let (Kind::Shared, Some(writer)) = (self.kind, &waiting.watch) {
            let reading = self.session.client.get_data(&format!("{}/{writer}", self.folder));
            if self.ask(reading).await?.is_some_and(|(data, _)| Data::read(&data).reads) {
                return self.granted(node).await;
            }
        }
        release(self.inner, self.claim).await?;
        self.claim.note_in_use(waiting.held.mode())?;
        Err(Stop::NotNow)
    }

    /// The place in the queue ended with its session: the claim starts again at the end, with a new session.
    async fn replace_session(&mut self) -> Result<()> {
        tracing::info!(lockwell.name = %self.claim.name(), "the session has ended; the claim queues again");
        let over = self.session.id();
        self.past.push(over);
        self.inner.leases.withdraw(self.claim.owner());
        (self.in_doubt, self.listed, self.waited) = (false, None, true);
        loop {
            let room = self.inner.room(self.claim, &self.folder).await?;
            if room.session().id() != over {
                self.session = Arc::clone(room.session());
                self.place = Place::new(room, self.claim.name());
                return Ok(());
            }
            // The pool has not noticed the end of the session yet.
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The place in the queue was given up: the claim starts again at the end. Whoever deletes the old node
    /// could find the next one as well, so that is awaited first.
    async fn queue_again(&mut self) {
        tracing::info!(lockwell.name = %self.claim.name(), "nobody polled the claim for a while; it queues again");
        (self.in_doubt, self.listed, self.waited) = (false, None, true);
        let mut pauses = Backoff::new(PAUSE, LONGEST_PAUSE);
        while self.inner.leases.find(self.claim.owner()).is_some() {
            pauses.pause().await;
        }
        self.place = Place::new(self.place.room.clone(), self.claim.name());
    }
}
