//! How a claim enters the queue: it creates its node, and finds the node again after a lost answer.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use lockwell_core::{Error, ErrorKind, Moment};
use tokio::sync::SemaphorePermit;
use zookeeper_client::{self as zk, CreateMode};

use crate::error::{ErrorClass, class_of, explain};
use crate::queue::child::{Child, Data, prefix};
use crate::queue::node::Node;
use crate::queue::place::patience;
use crate::queue::release::release;
use crate::queue::stop::Stop;
use crate::queue::waiter::NodeWaiter;
use crate::session::Session;

/// The server's counter is a signed 32-bit number. An overflow would destroy the order of the queue, so
/// claims are refused a million numbers earlier. That leaves time for the queue to become empty, which starts
/// the numbers again.
const LAST_SEQUENCE: i64 = (1 << 31) - 1_000_000;

impl NodeWaiter<'_> {
    /// The queue.
    ///
    /// A server never shows a session an older state than before. If the create of a node has been answered,
    /// the list has all nodes before it. It may still have a deleted node; the watch on that node fires as
    /// soon as the server learns of the deletion.
    pub(crate) async fn list(&self) -> Result<Vec<Child>, Stop> {
        let names = self.ask(self.session.client.list_children(&self.folder)).await?;
        Ok(Child::queue(names.unwrap_or_default()))
    }

    /// Creates the node, and lists the queue.
    ///
    /// The requests of a session are executed in order, so all are sent before the first answer. The folder
    /// is created with the node only if it is known to be missing: a request for it each time would be an
    /// unnecessary write.
    pub(crate) async fn enter(&mut self) -> Result<Arc<Node>, Stop> {
        if self.in_doubt {
            if let Some(node) = self.find().await? {
                return Ok(node);
            }
        }
        let (session, options) = (Arc::clone(&self.session), &self.inner.options);
        let client = &session.client;
        let head = format!("{}/{}", self.folder, prefix(self.claim.owner(), self.kind, self.form));
        let data = Data::write(self.claim, false);
        let ephemeral = CreateMode::EphemeralSequential.with_acls(options.acls());
        let folder = options.folder_mode().with_acls(options.acls());
        loop {
            let turn = self.turn_to_ask(&session).await?;
            // From now on there may be a node, whether somebody waits for the answers or not.
            let (leases, owner) = (&self.inner.leases, self.claim.owner());
            let is_over = self.is_given_up() || self.place.is_discarded();
            if is_over || !leases.begin(owner, Arc::clone(&self.place), patience(self.claim)) {
                return Err(Stop::GivenUp);
            }
            let sent = Moment::now();
            // Requests are sent when they are made, before a task waits for the answers.
            let making = self.folder_missing.then(|| client.create(&self.folder, b"", &folder));
            let creating = client.create(&head, &data, &ephemeral);
            let listing = client.list_children(&self.folder);
            self.in_doubt = true;
            // Answers come in this order, so the first is there with the second, and the task is woken once.
            let listed = self.bounded(listing).await;
            let created = self.ask(creating).await;
            self.in_doubt = matches!(created, Err(Stop::Unanswered));
            if turn.is_some() {
                session.turns_ended.fetch_add(1, Ordering::Relaxed);
            }
            drop(turn);
            if matches!(created, Ok(None) | Err(Stop::Failed(_) | Stop::Throttled)) {
                leases.withdraw(owner);
            }
            if let Some((stat, sequence)) = created? {
                session.wrote(sent);
                self.inner.clock.saw(stat.ctime, sent);
                let node = self.settle(format!("{head}{sequence}"), sequence.into_i64(), stat.czxid).await?;
                // This answer came before.
                let is_made = making.and_then(FutureExt::now_or_never).is_some_and(|made| made.is_ok());
                if is_made && !options.lasting && self.inner.folders.made() {
                    node.note_folder_too();
                }
                // The list request was sent after the create on the same session, so it has all nodes before
                // ours. If it failed, it is repeated.
                self.listed = listed.ok().map(Child::queue);
                // Whoever came between the two may have seen this claim wait.
                let is_last = |queue: &Vec<Child>| queue.last().is_some_and(|last| last.name == node.name());
                self.waited = !self.listed.as_ref().is_some_and(is_last);
                return Ok(node);
            }
            if let Some(making) = making {
                self.folder_made(self.bounded(making).await.err()).await?;
            }
            self.folder_missing = true;
        }
    }

    /// Waits until few enough acquires are under way in this session. As long as the servers answer nothing,
    /// this is a part of the wait for them. If others have their turns, and keep this claim from being sent
    /// for as long as a request may take, requests come faster than they are answered.
    ///
    /// `None`: all that are under way have been answered, and nobody polls them. They must not stop others,
    /// so this claim goes on without a turn.
    async fn turn_to_ask<'s>(&self, session: &'s Session) -> Result<Option<SemaphorePermit<'s>>, Stop> {
        const STEPS: u32 = 5;
        let ended = || session.turns_ended.load(Ordering::Relaxed);
        let mut turn = pin!(session.under_way.acquire());
        // How many turns had ended when all acquires under way had their answers.
        let mut answered = None;
        let mut busy = 0;
        loop {
            self.note_asked();
            let before = ended();
            match tokio::time::timeout(self.inner.options.timeout / STEPS, turn.as_mut()).await {
                Ok(turn) => return turn.map(Some).map_err(|_| Stop::SessionOver),
                Err(_) if ended() != before => {
                    busy += 1;
                    if busy == STEPS {
                        let text = "requests come faster than the servers answer them";
                        return Err(Stop::Failed(Error::new(ErrorKind::Overloaded, text)));
                    }
                }
                Err(_) if answered == Some(before) => return Ok(None),
                // Requests are answered in order, so the answer to this one comes after theirs.
                Err(_) => {
                    tokio::select! {
                        biased;
                        turn = turn.as_mut() => return turn.map(Some).map_err(|_| Stop::SessionOver),
                        answer = self.ask(session.ping()) => {
                            answer?;
                        }
                    }
                    answered = Some(ended());
                }
            }
        }
    }

    /// The node could not be created because its folder is missing, although a request for the folder was
    /// sent just before. Returns the reason, or creates the base path if that is missing.
    async fn folder_made(&self, error: Option<zk::Error>) -> Result<(), Stop> {
        let options = &self.inner.options;
        match error {
            Some(zk::Error::NoNode) if options.create && !options.base.is_empty() => {
                let directory = CreateMode::Persistent.with_acls(options.acls());
                let made = self.ask(self.session.client.mkdir(&options.base, &directory)).await?;
                made.ok_or_else(|| Stop::Failed(explain(&zk::Error::NoNode)))
            }
            Some(error) if class_of(&error) == ErrorClass::Refused && error != zk::Error::NodeExists => {
                Err(Stop::Failed(explain(&error)))
            }
            Some(zk::Error::Throttled) => Err(Stop::Throttled),
            // The folder was deleted again, or its state is unknown: the next try shows it.
            _ => Ok(()),
        }
    }

    /// After a lost answer: looks for the node.
    ///
    /// The list comes after all requests that the leader had accepted from the old connection; it refuses the
    /// others, since the session has moved. So a node that does not exist now will not be created later.
    async fn find(&mut self) -> Result<Option<Arc<Node>>, Stop> {
        let client = &self.session.client;
        let names = self.ask(self.session.list_now(&self.folder)).await?.unwrap_or_default();
        let owner = Some(self.claim.owner());
        for child in Child::queue(names).into_iter().filter(|child| child.owner == owner) {
            let path = format!("{}/{}", self.folder, child.name);
            // A node of another session does not count. If it is before ours, it is handled later.
            let stat = self.ask(client.check_stat(&path)).await?.flatten();
            if let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == self.session.id()) {
                let node = self.settle(path, child.sequence, stat.czxid).await?;
                self.in_doubt = false;
                return Ok(Some(node));
            }
        }
        self.in_doubt = false;
        Ok(None)
    }

    /// Notes the node.
    pub(crate) async fn settle(&self, path: String, sequence: i64, czxid: i64) -> Result<Arc<Node>, Stop> {
        let node = Node::new(&self.session, self.claim.name(), path, sequence, czxid);
        self.place.set_node(Some(Arc::clone(&node)));
        if (0..LAST_SEQUENCE).contains(&sequence) {
            return Ok(node);
        }
        release(self.inner, self.claim).await?;
        let text = format!(
            "the server's sequence numbers for {} are nearly used up, and with them the order of its queue; let its \
             queue run empty, or delete the node when nobody uses it",
            self.folder
        );
        Err(Stop::Failed(Error::new(ErrorKind::Misconfigured, text)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use lockwell_core::{DEFAULT_TTL, ErrorKind, Locks};

    use crate::ZkLock;

    #[tokio::test]
    async fn a_claim_that_others_keep_from_being_sent_is_refused_unless_nobody_polls_them() {
        let Some(server) =
            testbed::if_installed(testbed::ZooKeeper::start_with(&testbed::Options::new()).await)
        else {
            return;
        };
        let lock = Arc::new(ZkLock::connect(&server.url().parse().unwrap()).await.unwrap());
        let session = lock.inner.pool.session(DEFAULT_TTL, Duration::ZERO).await.unwrap();
        let locks = Locks::new(Arc::clone(&lock) as Arc<_>).unwrap();
        let all = session.under_way.available_permits();
        let others = session.under_way.acquire_many(all.try_into().unwrap()).await.unwrap();
        let minute = Duration::from_secs(60);
        // Nobody polls them: this one does not wait for that.
        let answer = tokio::time::timeout(minute, locks.lock("a").into_future()).await;
        answer.expect("an answer").unwrap().release().await.unwrap();
        // They end, and others get their turns.
        let busy = tokio::spawn({
            let session = Arc::clone(&session);
            async move {
                loop {
                    session.turns_ended.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        let answer = tokio::time::timeout(minute, locks.lock("a").into_future()).await;
        let refused = answer.expect("an answer").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
        let at_once = tokio::time::timeout(minute, locks.lock("a").try_now().into_future()).await;
        let refused = at_once.expect("an answer").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
        busy.abort();
        drop(others);
        locks.lock("a").await.unwrap().release().await.unwrap();
    }
}
