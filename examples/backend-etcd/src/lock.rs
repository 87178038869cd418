//! The lock.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, KeyValue, LeaseGrantOptions, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use futures_util::future::join_all;
use lockwell::backend::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Moment,
    Reconnect, Released, Renewal, Requirement, Result, ServerUrl, Wait, async_trait, valid_until,
};
use tonic::Code;

use crate::connection::{SILENCE, Servers, code, explain};
use crate::keys::{self, folder, key, lease, rivals, seconds, token};

/// How often a waiter reads the queue, even without a notification.
const RECHECK: Duration = Duration::from_secs(5);

/// How often a holder reads its key while its watch reports nothing.
const WATCH_AGAIN: Duration = Duration::from_secs(30);

static SYSTEM: Clock = Clock::system();

/// One and a half election timeouts of etcd, which are a second if nobody has changed that, in whole seconds.
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_hours(24);

/// Locks in etcd.
#[derive(Debug)]
pub struct EtcdLock {
    prefix: String,
    servers: Servers,
    connections: Reconnect<Client>,
}

/// A claim's place in the queue.
struct Place {
    /// The create revision of its key.
    revision: i64,
    /// The last key before it that it has to wait for; none if it holds the lock.
    before: Option<Vec<u8>>,
    /// When this was so.
    seen: i64,
}

impl EtcdLock {
    /// Connects, and makes sure that etcd answers.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&["timeout"])?;
        let path = url.path().trim_matches('/');
        let prefix = if path.is_empty() { "lockwell" } else { path }.to_owned();
        let this = Self { prefix, servers: Servers::read(url)?, connections: Reconnect::new(SILENCE) };
        this.get(&this.prefix, GetOptions::new().with_count_only()).await?;
        Ok(this)
    }

    /// By when a request without a limit of its own must be answered.
    fn soon(&self) -> Moment {
        Moment::now().after(self.servers.timeout)
    }

    async fn ask<T, F>(&self, until: Moment, request: impl Fn(Client, bool) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let connect = || self.servers.connect();
        let request = |client, again| {
            let answer = request(client, again);
            async move { answer.await.map_err(explain) }
        };
        self.connections.ask(until, connect, request).await.map_err(|error| error.on_backend("etcd"))
    }

    async fn get(&self, key: &str, options: GetOptions) -> Result<Vec<KeyValue>> {
        let get = |mut client: Client, _| {
            let options = options.clone();
            async move { client.get(key, Some(options)).await }
        };
        Ok(self.ask(self.soon(), get).await?.take_kvs())
    }

    /// Makes the lease of a claim. Says when the request was sent that it counts from at the earliest.
    async fn open_lease(&self, claim: &Claim) -> Result<Moment> {
        let (id, seconds) = (lease(claim), seconds(claim.ttl()));
        let grant = |mut client: Client, again| {
            if again {
                claim.note_in_doubt();
            }
            async move {
                let sent = Moment::now();
                match client.lease_grant(seconds, Some(LeaseGrantOptions::new().with_id(id))).await {
                    Ok(_) => Ok(Some(sent)),
                    // It exists: the claim is asked for again, or the first answer was lost.
                    Err(error) if code(&error) == Some(Code::FailedPrecondition) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        };
        match self.ask(self.soon(), grant).await? {
            Some(sent) => Ok(sent),
            None => self.keep_alive(id, self.soon()).await?.ok_or_else(ended),
        }
    }

    /// Extends a lease. Says when the request was sent; `None` if the lease is gone.
    async fn keep_alive(&self, id: i64, until: Moment) -> Result<Option<Moment>> {
        let keep = |mut client: Client, _| async move {
            let sent = Moment::now();
            match client.lease_keep_alive(id).await {
                Ok(_) => Ok(Some(sent)),
                Err(etcd_client::Error::LeaseKeepAliveError(text)) if text == "lease not found" => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.ask(until, keep).await
    }

    /// Ends a lease, and with it its key. If it is gone, an earlier copy of this request may have ended it.
    async fn revoke(&self, id: i64) -> Result<Released> {
        let revoke = |mut client: Client, again| async move {
            match client.lease_revoke(id).await {
                Ok(_) => Ok(Released::Released),
                Err(error) if code(&error) == Some(Code::NotFound) => Ok(Released::from_answer(false, again)),
                Err(error) => Err(error),
            }
        };
        self.ask(self.soon(), revoke).await
    }

    /// Puts the claim into the queue, unless it is there. `None`: it does not wait, and the lock is not free.
    ///
    /// The key belongs to the lease. So a copy of this request that arrives after the lease was revoked
    /// changes nothing.
    async fn enter(&self, claim: &Claim) -> Result<Option<Place>> {
        let (key, rivals) = (key(&self.prefix, claim), rivals(&self.prefix, claim));
        let absent = if claim.wait() == Wait::No {
            Compare::create_revision(rivals.as_str(), CompareOp::Equal, 0).with_prefix()
        } else {
            Compare::create_revision(key.as_str(), CompareOp::Equal, 0)
        };
        let put =
            TxnOp::put(key.as_str(), keys::value(claim), Some(PutOptions::new().with_lease(lease(claim))));
        let last_two = newest(GetOptions::new(), 2);
        let txn = Txn::new()
            .when([absent])
            .and_then([put, TxnOp::get(rivals, Some(last_two))])
            .or_else([TxnOp::get(key.as_str(), None)]);
        let (entered, seen, mut found) = self.txn(claim, txn).await?;
        if entered {
            let others = found.pop().unwrap_or_default();
            let before = others.iter().find(|other| other.key() != key.as_bytes());
            let before = before.map(|other| other.key().to_vec());
            return Ok(Some(Place { revision: seen, before, seen }));
        }
        match found.pop().unwrap_or_default().first() {
            Some(mine) => self.look(claim, mine.create_revision()).await,
            None => Ok(None),
        }
    }

    /// Where the claim stands in the queue; `None` if it is not there any more.
    async fn look(&self, claim: &Claim, revision: i64) -> Result<Option<Place>> {
        let earlier = newest(GetOptions::new().with_max_create_revision(revision - 1), 1);
        let mine = TxnOp::get(key(&self.prefix, claim), Some(GetOptions::new().with_keys_only()));
        let txn = Txn::new().and_then([mine, TxnOp::get(rivals(&self.prefix, claim), Some(earlier))]);
        let (_, seen, found) = self.txn(claim, txn).await?;
        let [mine, before] = &found[..] else { return Err(Error::new(ErrorKind::Internal, "two answers")) };
        let is_there = mine.first().is_some_and(|mine| mine.create_revision() == revision);
        let before = before.first().map(|before| before.key().to_vec());
        Ok(is_there.then_some(Place { revision, before, seen }))
    }

    /// Says in the claim's key since when it holds the lock; false if the key is gone.
    async fn note_turn(&self, claim: &Claim, revision: i64) -> Result<bool> {
        let key = key(&self.prefix, claim);
        let put =
            TxnOp::put(key.as_str(), keys::value(claim), Some(PutOptions::new().with_lease(lease(claim))));
        let txn =
            Txn::new().when([Compare::create_revision(key, CompareOp::Equal, revision)]).and_then([put]);
        Ok(self.txn(claim, txn).await?.0)
    }

    /// Whether the comparisons held, the revision, and what each `get` found.
    async fn txn(&self, claim: &Claim, txn: Txn) -> Result<(bool, i64, Vec<Vec<KeyValue>>)> {
        let ask = |mut client: Client, again| {
            if again {
                claim.note_in_doubt();
            }
            let txn = txn.clone();
            async move { client.txn(txn).await }
        };
        let answer = self.ask(self.soon(), ask).await?;
        let found = answer.op_responses().into_iter().filter_map(|one| match one {
            TxnOpResponse::Get(mut get) => Some(get.take_kvs()),
            _ => None,
        });
        let seen = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok((answer.succeeded(), seen, found.collect()))
    }

    /// Resolves when this key is deleted after that revision, or the watch fails, which is not said.
    async fn deleted(&self, key: Vec<u8>, after: i64) {
        let watch = |mut client: Client, _| {
            let key = key.clone();
            async move { client.watch(key, Some(WatchOptions::new().with_start_revision(after + 1))).await }
        };
        if let Ok(mut stream) = self.ask(self.soon(), watch).await {
            while let Ok(Some(news)) = stream.message().await {
                if news.events().iter().any(|event| event.event_type() == EventType::Delete) {
                    return;
                }
                if news.canceled() {
                    break;
                }
            }
        }
        // Not at once again, whatever is wrong.
        SYSTEM.sleep(Duration::from_millis(300)).await;
    }

    /// Waits in the queue. `None`: not worth waiting any more. `Lost`: the lease ended meanwhile, and with it
    /// the place.
    async fn wait(&self, claim: &Claim, mut place: Place) -> Result<Option<Grant>> {
        let recheck = (claim.ttl() / 3).min(RECHECK);
        while let Some(before) = place.before.take() {
            tokio::select! {
                biased;
                () = claim.wait_over() => return Ok(None),
                () = self.deleted(before, place.seen) => (),
                () = SYSTEM.sleep(recheck) => (),
            }
            // In whatever order they arrive: a key is there for as long as its lease is.
            let kept = self.keep_alive(lease(claim), self.soon());
            let looked = self.look(claim, place.revision);
            let (sent, looked) = claim.within_wait(async { tokio::try_join!(kept, looked) }).await?;
            let (Some(sent), Some(now)) = (sent, looked) else { return Err(ended()) };
            place = now;
            if place.before.is_none() {
                if !claim.within_wait(self.note_turn(claim, place.revision)).await? {
                    return Err(ended());
                }
                return Ok(Some(Grant::new(claim, token(place.revision), sent)));
            }
        }
        Ok(None)
    }

    async fn acquire_once(&self, claim: &Claim) -> Result<Option<Grant>> {
        let sent = claim.within_wait(self.open_lease(claim)).await?;
        match claim.within_wait(self.enter(claim)).await? {
            Some(place) if place.before.is_none() => Ok(Some(Grant::new(claim, token(place.revision), sent))),
            Some(place) if claim.wait() != Wait::No => {
                claim.note_waiting();
                self.wait(claim, place).await
            }
            _ => {
                // Whoever does not wait leaves nothing behind.
                self.revoke(lease(claim)).await?;
                Ok(None)
            }
        }
    }

    /// All claims to a lock, and how many of them hold it.
    async fn queue(&self, name: &LockName) -> Result<(Vec<keys::Entry>, usize)> {
        let folder = folder(&self.prefix, name);
        let found = self.get(&folder, GetOptions::new().with_prefix()).await?;
        Ok(keys::queue(&found, &folder))
    }

    /// How long a lease still has; `None` if it is gone.
    async fn time_left(&self, id: i64) -> Result<Option<Duration>> {
        let ask = |mut client: Client, _| async move {
            match client.lease_time_to_live(id, None).await {
                Ok(answer) => Ok(u64::try_from(answer.ttl()).ok().map(Duration::from_secs)),
                Err(error) if code(&error) == Some(Code::NotFound) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.ask(self.soon(), ask).await
    }
}

/// So many keys of a folder, the newest first, and not what they hold.
fn newest(options: GetOptions, limit: i64) -> GetOptions {
    options.with_prefix().with_keys_only().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(limit)
}

fn ended() -> Error {
    Error::new(ErrorKind::Lost, "the lease ended before the lock was granted").on_backend("etcd")
}

#[async_trait]
impl DistributedLock for EtcdLock {
    fn capabilities(&self) -> Capabilities {
        use Requirement::{
            AcrossHosts, Durable, FailoverSafe, Fencing, Fifo, HerdFree, LossPush, Push, Shared,
        };
        let promised = [Shared, Fencing, Fifo, Push, LossPush, HerdFree, AcrossHosts, Durable, FailoverSafe];
        Capabilities::minimal("etcd").promising(promised).with_ttl(SHORTEST, LONGEST)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        if claim.wait() != Wait::No {
            claim.note_queued();
        }
        loop {
            match self.acquire_once(claim).await {
                // We were away for longer than the lease, and start again at the end of the queue.
                Err(error) if error.kind() == ErrorKind::Lost && !claim.is_wait_over() => (),
                Err(error) if error.kind() == ErrorKind::Lost => return Ok(None),
                answer => return answer,
            }
        }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let renew = async |grant: &Grant| match self.keep_alive(lease(grant.claim()), until).await {
            Ok(Some(sent)) => Renewal::Renewed(valid_until(sent, grant.claim().ttl())),
            Ok(None) => Renewal::Lost,
            Err(error) => Renewal::Unknown(error),
        };
        join_all(grants.iter().map(renew)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.revoke(lease(claim)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let (entries, holding) = self.queue(name).await?;
        let (holding, waiting) = entries.split_at(holding);
        let left = join_all(holding.iter().map(|entry| self.time_left(entry.lease))).await;
        let mut holders = Vec::new();
        for (entry, left) in holding.iter().zip(left) {
            holders.extend(left?.map(|left| entry.holder(left)));
        }
        Ok(LockStatus::new(name.clone(), holders, waiting.len()))
    }

    /// Every lock that has a key has a holder.
    async fn names(&self) -> Result<Vec<LockName>> {
        let all = GetOptions::new().with_prefix().with_keys_only();
        let keys = self.get(&format!("{}/", self.prefix), all).await?;
        let names: BTreeSet<_> = keys.iter().filter_map(|key| keys::name(&self.prefix, key.key())).collect();
        Ok(names.into_iter().collect())
    }

    /// Revokes the leases of those who hold the lock now: of no one who comes later.
    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let (entries, holding) = self.queue(name).await?;
        let mut freed = 0;
        for answer in join_all(entries[..holding].iter().map(|entry| self.revoke(entry.lease))).await {
            freed += usize::from(answer? != Released::NotHeld);
        }
        Ok(freed)
    }

    async fn lost(&self, grant: &Grant) {
        let key = key(&self.prefix, grant.claim());
        let revision = i64::try_from(grant.token().get()).unwrap_or(i64::MAX);
        // The watch begins at the revision of the grant, so no change since then is missed.
        let mut seen = revision;
        loop {
            tokio::select! {
                () = self.deleted(key.clone().into_bytes(), seen) => (),
                () = SYSTEM.sleep(WATCH_AGAIN) => (),
            }
            match self.look(grant.claim(), revision).await {
                Ok(None) => return,
                Ok(Some(place)) => seen = place.seen,
                Err(_) => SYSTEM.sleep(Duration::from_secs(1)).await,
            }
        }
    }

    async fn close(&self) {
        self.connections.close();
    }
}
