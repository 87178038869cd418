//! What the calls of one client share.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{Failure, PerRuntime, Reconnect};
use lockwell_core::{Claim, Error, ErrorKind, Moment, Result};
use tonic::Status;

use crate::BACKEND;
use crate::connection::{Connection, Opener};
use crate::dials::Dials;
use crate::error::{explain, is_full};
use crate::floor::{Floor, Stored};
use crate::keys;
use crate::messages::{KeyValue, Op, Put, Txn, TxnReply, one};
use crate::options::EtcdOptions;
use crate::turns::{RequestTurn, RuntimeTurns};

/// A request without an answer for this time is repeated on a new connection.
const SILENCE: Duration = Duration::from_secs(2);

/// A pause before the floor is read again because another client has changed it.
const CHANGED: Duration = Duration::from_millis(30);

/// One client.
pub(crate) struct ClientInner {
    pub(crate) options: Arc<EtcdOptions>,
    pub(crate) floor: Floor,
    opener: Arc<Opener>,
    dials: Dials<Connection>,
    connections: Reconnect<Connection>,
    turns: PerRuntime<RuntimeTurns>,
}

/// The answer to a transaction.
pub(crate) struct Answer {
    pub(crate) succeeded: bool,
    pub(crate) revision: i64,
    pub(crate) term: u64,
    /// What each range found.
    pub(crate) found: Vec<Vec<KeyValue>>,
    pub(crate) inner: Option<TxnReply>,
}

impl Answer {
    pub(crate) fn of(reply: TxnReply) -> Self {
        let (succeeded, header) = (reply.succeeded, reply.header.unwrap_or_default());
        let (found, inner) = reply.into_found();
        Self { succeeded, revision: header.revision, term: header.term, found, inner }
    }

    /// The first key that this range has found.
    pub(crate) fn first(&self, range: usize) -> Option<&KeyValue> {
        self.found.get(range)?.first()
    }
}

impl ClientInner {
    pub(crate) fn new(options: EtcdOptions) -> Result<Self> {
        let options = Arc::new(options);
        Ok(Self {
            opener: Arc::new(Opener::new(&options)?),
            dials: Dials::new(),
            options,
            floor: Floor::default(),
            connections: Reconnect::new(SILENCE),
            turns: PerRuntime::new(),
        })
    }

    /// By when a request without a limit of its own must be answered.
    pub(crate) fn soon(&self) -> Moment {
        Moment::now().after(self.options.timeout)
    }

    /// Repeats a request until it has an answer, on new connections. Its second argument says whether an
    /// earlier copy may have been executed.
    pub(crate) async fn ask<T, F>(&self, until: Moment, request: impl Fn(Connection, bool) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let _turn = self.turn(until).await?;
        self.ask_now(until, request).await
    }

    /// A new connection, for all of this runtime.
    async fn connect(&self) -> Result<Connection, Failure> {
        let open = || {
            let opener = Arc::clone(&self.opener);
            async move { opener.open().await }
        };
        self.dials.connect(open).await
    }

    /// Waits for the turn of a claim, or of another request.
    pub(crate) async fn turn(&self, until: Moment) -> Result<RequestTurn> {
        self.turns.get(RuntimeTurns::new)?.requests.take(until).await.map_err(|error| self.named(error))
    }

    /// The turn of a claim that waits in its queue. Its failure is none that says that nothing was done.
    pub(crate) async fn look_turn(&self, until: Moment) -> Result<RequestTurn> {
        let unreachable = |error: Error| Error::new(ErrorKind::Unreachable, error.message().to_owned());
        let taken = self.turns.get(RuntimeTurns::new)?.looks.take(until).await;
        taken.map_err(|error| self.named(unreachable(error)))
    }

    /// Repeats a request that has its turn, or needs none, as a renewal does, until it has an answer.
    pub(crate) async fn ask_now<T, F>(
        &self,
        until: Moment,
        request: impl Fn(Connection, bool) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let request = |connection, again| {
            let answer = request(connection, again);
            async move { answer.await.map_err(|status| explain(&status)) }
        };
        let answer = self.connections.ask(until, || self.connect(), request).await;
        if answer.is_ok() {
            self.turns.get(RuntimeTurns::new)?.answered();
        }
        answer.map_err(|error| self.named(error))
    }

    pub(crate) fn named(&self, error: Error) -> Error {
        error.on_backend(BACKEND).at(self.options.servers.as_str())
    }

    /// A transaction. `claim`: the claim that it may put into a queue.
    ///
    /// Fails with [`Lost`](ErrorKind::Lost) if the servers have lost revisions. Nothing that was granted
    /// before is held then; the floor has been raised.
    pub(crate) async fn txn(&self, claim: Option<&Claim>, txn: &Txn) -> Result<Answer> {
        let until = self.soon();
        let _turn = self.turn(until).await?;
        self.txn_now(until, claim, txn).await
    }

    /// A transaction that must not arrive twice: it is sent once.
    ///
    /// Fails with [`UnknownOutcome`](ErrorKind::UnknownOutcome) if it has no answer, or none that says
    /// whether it was executed.
    pub(crate) async fn txn_once(&self, txn: Txn) -> Result<bool> {
        let request = |connection: Connection| {
            let txn = txn.clone();
            async move {
                match connection.txn(txn).await {
                    Ok(reply) => Ok(Ok(reply.succeeded)),
                    Err(status) if is_full(&status) => Ok(Err(status)),
                    Err(status) => Err(explain(&status)),
                }
            }
        };
        let until = self.soon();
        let _turn = self.turn(until).await?;
        let answer = match self.connections.ask_once(until, || self.connect(), request).await {
            // A member checks the quota once more when it executes a transaction, and reports that after it.
            Ok(Err(status)) => {
                let text =
                    "etcd is full (alarm NOSPACE), and does not say whether it has executed the writes";
                Err(Error::new(ErrorKind::UnknownOutcome, text).with_source(status.message().to_owned()))
            }
            Ok(Ok(succeeded)) => Ok(succeeded),
            Err(error) => Err(error),
        };
        answer.map_err(|error| self.named(error))
    }

    /// Carries out a transaction for who has a turn.
    pub(crate) async fn txn_now(&self, until: Moment, claim: Option<&Claim>, txn: &Txn) -> Result<Answer> {
        let sent = self.floor.mark();
        let ask = |connection: Connection, again| {
            if let Some(claim) = claim.filter(|_| again) {
                claim.note_in_doubt();
            }
            let txn = txn.clone();
            async move { connection.txn(txn).await }
        };
        let answer = Answer::of(self.ask_now(until, ask).await?);
        if self.floor.note(sent, answer.revision) {
            return Ok(answer);
        }
        self.raise_floor(until).await?;
        Err(self.named(forgotten()))
    }

    /// Raises the floor of all tokens, after the servers have lost revisions.
    pub(crate) async fn raise_floor(&self, until: Moment) -> Result<()> {
        let key = keys::floor(&self.options.prefix);
        loop {
            // Before the read: answers to others that come meanwhile are of later revisions.
            let highest = self.floor.highest();
            let read = Txn::reads([one(&key)]);
            let answer = self.ask_now(until, |connection, _| {
                let read = read.clone();
                async move { connection.txn(read).await }
            });
            let answer = Answer::of(answer.await?);
            let stored = Stored::read(answer.first(0)).map_err(|error| self.named(error))?;
            let Some(floor) = Floor::needed(highest, stored.number(), answer.revision) else {
                self.floor.begin_at(stored, answer.revision);
                return Ok(());
            };
            tracing::warn!(
                lockwell.servers = self.options.servers,
                lockwell.lost = floor.saturating_sub(stored.number()),
                "the revisions of etcd or the floor of the tokens went back, as when a snapshot is restored; the \
                 tokens go on above the old ones"
            );
            let put = Put { key: key.clone().into(), value: floor.to_string().into(), lease: 0 };
            let put = Txn::new([stored.condition(&key)], [Op::Put(put)], []);
            let answer = self.ask_now(until, |connection, _| {
                let put = put.clone();
                async move { connection.txn(put).await }
            });
            let answer = Answer::of(answer.await?);
            if answer.succeeded {
                self.floor.begin_at(Stored::of(floor), answer.revision);
                return Ok(());
            }
            // Another client has changed it.
            tokio::time::sleep(CHANGED).await;
        }
    }

    /// Takes the floor that a claim has found. One that is lower than before was deleted, or is that of a
    /// snapshot: tokens must not go back with it.
    pub(crate) async fn learn_floor(&self, stored: Stored) -> Result<()> {
        if stored.number() < self.floor.known().number() {
            return self.raise_floor(self.soon()).await;
        }
        self.floor.set_known(stored);
        Ok(())
    }

    /// Reads the floor.
    pub(crate) async fn read_floor(&self) -> Result<()> {
        let read = Txn::reads([one(&keys::floor(&self.options.prefix))]);
        let answer = self.txn(None, &read).await?;
        self.floor.set_known(Stored::read(answer.first(0)).map_err(|error| self.named(error))?);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.connections.close();
        self.dials.close();
    }
}

/// The servers have lost revisions, and perhaps the claim with them.
pub(crate) fn forgotten() -> Error {
    Error::new(ErrorKind::Lost, "the servers have lost data: a snapshot was restored")
}
