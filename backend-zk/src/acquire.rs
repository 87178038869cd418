//! Taking a place in the queue, and the lock if it is free.
//!
//! A place is an ephemeral sequential node with the owner id in its name. Making it and looking at the queue travel
//! back to back. The node is known by its path once the server has answered; before that, and after a lost answer, it
//! is found by the owner id, and by its session: a node of another session can vanish at any time, so it is not ours.

use std::sync::Arc;
use std::time::Duration;

use lockcore::{Claim, Error, ErrorKind, Grant, Moment, Result, Wait};
use zookeeper_client::{self as zk, CreateMode};

use crate::child::{Child, Form, Kind, prefix};
use crate::error::{Fate, explain, fate};
use crate::look::Look;
use crate::names::lock_path;
use crate::node::{Node, write_data};
use crate::patience::{session, within};
use crate::permit::say_held;
use crate::queue::{Place, place};
use crate::recover::{Found, Met};
use crate::release::release;
use crate::session::Session;
use crate::shared::Shared;
use crate::turn::{Turn, wait_for_turn};

/// The server's counter has 32 bits. Before its end the order of the queue is lost, so locks are refused a million
/// earlier: that is time enough for the queue to run empty, which starts the numbers anew.
const LAST_SEQUENCE: i64 = (1 << 31) - 1_000_000;

/// One acquire under way.
pub(crate) struct Acquire<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) claim: &'a Claim,
    pub(crate) session: Arc<Session>,
    /// The folder of the lock.
    pub(crate) folder: String,
    pub(crate) kind: Kind,
    form: Form,
    /// Sessions of this acquire that are over.
    pub(crate) past: Vec<i64>,
}

/// How an attempt on one session ends.
enum Ended {
    Granted(Grant),
    NotNow,
    SessionOver,
}

pub(crate) async fn acquire(shared: &Arc<Shared>, claim: &Claim, form: Form) -> Result<Option<Grant>> {
    let kind = Kind::of(claim.mode())
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, "this backend does not know this mode"))?;
    if claim.wait() != Wait::No {
        // The node is a place in the queue from the moment that it is there.
        claim.note_queued();
    }
    // Asked for again, the claim stays on the session that has its node.
    let former = shared.table.get(claim.owner().as_uuid()).map(|node| Arc::clone(&node.session));
    let (session, past) = match former {
        Some(session) if !session.is_over() => (session, Vec::new()),
        former => {
            shared.table.remove(claim.owner().as_uuid());
            (session(shared, claim).await?, former.iter().map(|session| session.id()).collect())
        }
    };
    let folder = lock_path(&shared.options.base, claim.name());
    let mut acquire = Acquire { shared, claim, session, folder, kind, form, past };
    loop {
        match acquire.attempt().await? {
            Ended::Granted(grant) => {
                claim.note_left_queue();
                return Ok(Some(grant));
            }
            Ended::NotNow => return Ok(None),
            Ended::SessionOver if claim.is_given_up() => return Err(explain(&zk::Error::SessionExpired)),
            // The place is lost; we start again at the end.
            Ended::SessionOver => acquire.renew_session().await?,
        }
    }
}

impl Acquire<'_> {
    async fn renew_session(&mut self) -> Result<()> {
        tracing::info!(lock = %self.claim.name(), "the session ended while waiting; the claim queues again");
        self.past.push(self.session.id());
        self.shared.table.remove(self.claim.owner().as_uuid());
        // Until the pool has noticed, too, it would hand out the same one.
        while self.session.id() == self.past.last().copied().unwrap_or_default() {
            self.session = session(self.shared, self.claim).await?;
            if self.session.id() == self.past.last().copied().unwrap_or_default() {
                if self.claim.is_given_up() {
                    return Err(explain(&zk::Error::SessionExpired));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }

    async fn attempt(&self) -> Result<Ended> {
        let owner = self.claim.owner().as_uuid();
        let (mut node, mut look) = match self.shared.table.get(owner) {
            // Asked for again.
            Some(node) => (node, None),
            None => match self.enter().await? {
                Some(entered) => entered,
                None => return Ok(Ended::SessionOver),
            },
        };
        // Whoever is behind us has seen us wait, unless we came in at the look that followed our coming.
        let mut waited = look.is_none();
        loop {
            let now = match look.take() {
                Some(look) => look,
                None => match self.look().await? {
                    Some(look) => look,
                    None => return Ok(Ended::SessionOver),
                },
            };
            let waiting = match place(&now.queue, node.name()) {
                Place::Granted => {
                    if waited && matches!(self.kind, Kind::Permit(_)) {
                        say_held(&node, self.claim);
                    }
                    return self.granted(&node, now.sent).await;
                }
                Place::Waiting(waiting) => waiting,
                Place::Clash(other) => return self.clash(other).await,
                Place::Gone => {
                    return Err(Error::new(ErrorKind::NotHeld, "the claim was taken out of the queue"));
                }
                Place::Again(older) => match self.meet(&node, &older, &now).await? {
                    Met::Adopted(older) => {
                        node = older;
                        continue;
                    }
                    Met::Elsewhere(grant) => return Ok(grant.map_or(Ended::NotNow, Ended::Granted)),
                    Met::Gone => continue,
                },
            };
            if self.claim.is_given_up() {
                // One who does not wait has heard of the writer before it by name only.
                let asks = self.kind == Kind::Shared && self.claim.wait() == Wait::No;
                if asks && self.joins(waiting.watch.as_deref().unwrap_or_default()).await? {
                    return self.granted(&node, now.sent).await;
                }
                return self.leave().await;
            }
            waited = true;
            match wait_for_turn(self, &node, &waiting).await? {
                Turn::Mine(since) => return self.granted(&node, since).await,
                // Our node was there at the last look.
                Turn::Joined => return self.granted(&node, now.sent).await,
                Turn::Look => (),
                Turn::Seen(now) => look = Some(now),
                Turn::GivenUp => return Ok(Ended::NotNow),
                Turn::SessionOver => return Ok(Ended::SessionOver),
            }
        }
    }

    /// The claim holds the lock since `sent`. A grant should last: if our last sign of life was some time ago, as after an
    /// election, others are awaited first. Answers prove something about those that are older by the lag.
    async fn granted(&self, node: &Arc<Node>, mut sent: Moment) -> Result<Ended> {
        node.note_held();
        let mut answers = 0;
        while answers < 4 && self.session.deadline().remaining() <= self.session.timeout() / 3 {
            match within(self.shared, self.claim, self.session.confirm()).await? {
                Ok(()) => {
                    answers += 1;
                    tokio::time::sleep(self.session.lag / 2).await;
                }
                Err(error) if fate(&error) == Fate::SessionOver => return Ok(Ended::SessionOver),
                Err(_) if self.session.is_over() => return Ok(Ended::SessionOver),
                // The connection is being replaced.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            // The claim's own lease is counted by us, and need not have begun yet.
            sent = Moment::now();
        }
        // It can only be ending if somebody gave the claim up meanwhile.
        Ok(self.shared.grant(self.claim, node, sent).map_or(Ended::NotNow, Ended::Granted))
    }

    /// Makes the node, and looks at the queue. The look can be missing. `None`: the session is over.
    ///
    /// The requests of a session are executed in order, so they are all sent before the first answer. The folder is
    /// made along with the node once it is known to be missing: a request for it each time would be a write for nothing.
    async fn enter(&self) -> Result<Option<(Arc<Node>, Option<Look>)>> {
        let (claim, client) = (self.claim, &self.session.client);
        let mut folder_missing = false;
        let head = format!("{}/{}", self.folder, prefix(claim.owner().as_uuid(), self.kind, self.form));
        let data = write_data(claim);
        let options = CreateMode::EphemeralSequential.with_acls(self.shared.options.acls());
        loop {
            let Ok(turn) = within(self.shared, claim, self.session.under_way.acquire()).await? else {
                return Ok(None);
            };
            let sent = Moment::now();
            let folder = self.shared.options.folder_mode().with_acls(self.shared.options.acls());
            // Requests go out when they are made, before anybody waits for them.
            let making = folder_missing.then(|| client.create(&self.folder, b"", &folder));
            let creating = self.session.bounded(client.create(&head, &data, &options));
            let listing = client.list_children(&self.folder);
            let created = within(self.shared, claim, creating).await?;
            drop(turn);
            let error = match created {
                Ok((stat, sequence)) => {
                    self.session.answered(sent);
                    self.shared.clock.saw(stat.ctime, sent);
                    let path = format!("{head}{sequence}");
                    let node = self.settle(path, sequence.into_i64(), stat.czxid).await?;
                    // It comes after the create on the same session: whoever is before us shows.
                    let listed = within(self.shared, claim, self.session.bounded(listing)).await?;
                    // If there is no answer, it is asked for again.
                    let look = listed.ok().map(|names| Look { sent, queue: Child::queue(names) });
                    return Ok(Some((node, look)));
                }
                Err(error) => error,
            };
            match fate(&error) {
                Fate::Refused if error == zk::Error::NoNode => {
                    if let Some(making) = making {
                        let made = within(self.shared, claim, self.session.bounded(making)).await?;
                        self.folder_made(made.err()).await?;
                    }
                    folder_missing = true;
                }
                Fate::Refused => return Err(explain(&error)),
                Fate::SessionOver => return Ok(None),
                Fate::Unknown => match self.find().await? {
                    Found::Node(node) => return Ok(Some((node, None))),
                    Found::Nothing => (),
                    Found::SessionOver => return Ok(None),
                },
            }
        }
    }

    /// Remembers the node, from now on.
    pub(crate) async fn settle(&self, path: String, sequence: i64, czxid: i64) -> Result<Arc<Node>> {
        let node = Node::new(&self.session, self.claim.name(), path, (sequence, czxid), true);
        self.shared.table.insert(self.claim.owner().as_uuid(), &node);
        if !(0..LAST_SEQUENCE).contains(&sequence) {
            release(self.shared, self.claim).await?;
            let text = format!(
                "the server's sequence numbers for {} are nearly used up, and with them the order of its queue; \
                 let its queue run empty, or delete the node when nobody uses it",
                self.folder
            );
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        Ok(node)
    }

    /// The node could not be made for want of its folder, though the folder was asked for just before. Says why, or makes
    /// the base where that is missing.
    async fn folder_made(&self, error: Option<zk::Error>) -> Result<()> {
        let options = &self.shared.options;
        match error {
            Some(zk::Error::NoNode) if options.create && !options.base.is_empty() => {
                let directory = CreateMode::Persistent.with_acls(options.acls());
                let making = self.session.bounded(self.session.client.mkdir(&options.base, &directory));
                match within(self.shared, self.claim, making).await? {
                    Err(error) if fate(&error) == Fate::Refused => Err(explain(&error)),
                    _ => Ok(()),
                }
            }
            Some(error) if fate(&error) == Fate::Refused && error != zk::Error::NodeExists => {
                Err(explain(&error))
            }
            // It has been deleted again, or nobody knows: that shows next time.
            _ => Ok(()),
        }
    }

    /// The name is in use as something else.
    async fn clash(&self, other: Kind) -> Result<Ended> {
        release(self.shared, self.claim).await?;
        let text =
            format!("the name is in use as {}, and was asked for as {}", other.mode(), self.claim.mode());
        Err(Error::new(ErrorKind::KindClash, text))
    }

    /// Leaves the queue. One who would have waited leaves it in the background.
    async fn leave(&self) -> Result<Ended> {
        if self.claim.wait() == Wait::No {
            release(self.shared, self.claim).await?;
        }
        Ok(Ended::NotNow)
    }
}
