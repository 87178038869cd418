//! A bucket of keys: each name has one, whose value is the [`Record`] of its holder. A change names the revision
//! that it replaces, so it changes nothing if another change of the key came first. The first copy of an acquire
//! can still be late and take a lock: nobody has touched the key since, or the server has forgotten it meanwhile
//! and counts from 0 again. Hence [`Claim::note_in_doubt`].

use std::time::Duration;

use async_nats::{HeaderMap, Subscriber, datetime::parse_rfc3339};
use base64::{Engine, prelude::BASE64_STANDARD};
use lockwell::backend::{
    Claim, Error, ErrorKind, Failure, LockName, Moment, Reconnect, Result, ServerUrl, escape,
    note_reconnection,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::connection::{Connection, SILENCE};

/// Errors that are answers: no such message, another revision.
const NO_MESSAGE: u64 = 10037;
const OTHER_REVISION: [u64; 2] = [10071, 10164];

/// The header of a release, as the tools of NATS write it.
pub(crate) const OPERATION: &str = "KV-Operation";

/// Who holds a lock. The owner id is secret, so there is no `Debug`.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Record {
    pub(crate) owner: String,
    pub(crate) label: String,
    pub(crate) ttl: Duration,
    /// The revision of the grant; 0 in the grant itself.
    pub(crate) token: u64,
    /// For how long the lock has been held, and how much of the lease is left.
    pub(crate) held: Duration,
    #[serde(skip)]
    pub(crate) left: Duration,
}

/// Locks in a bucket of NATS.
#[derive(Debug)]
pub struct NatsLock {
    timeout: Duration,
    url: ServerUrl,
    pub(crate) servers: String,
    bucket: String,
    connections: Reconnect<Connection>,
}

impl NatsLock {
    /// Connects to a bucket, and creates it if there is none.
    pub(crate) async fn connect(url: &ServerUrl) -> Result<Self> {
        url.allow_options(&["replicas", "timeout"])?;
        url.hosts()?;
        let bucket = url.path().strip_prefix('/').unwrap_or("lockwell").to_owned();
        if bucket.is_empty() || !bucket.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("no bucket is called {bucket:?}")));
        }
        let keys = format!("$KV.{bucket}.>");
        let stream = json!({
            "name": format!("KV_{bucket}"),
            "subjects": [keys],
            "num_replicas": url.parsed::<u8>("replicas", "a number")?.unwrap_or(1),
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": true,
            // No lock is deleted to make room.
            "discard": "new",
            // Notifications: a change is published again when it is stored, without the secret in its value.
            "republish": {"src": keys, "dest": format!("lockwell.{bucket}.>"), "headers_only": true},
        });
        let (url, connections) = (url.clone(), Reconnect::new(SILENCE));
        let this = Self { timeout: url.timeout()?, servers: url.servers(4222), url, bucket, connections };
        let (api, body) = (&this.api("STREAM.CREATE"), &stream.to_string());
        let create = |on: Connection, _| async move { on.request(api, HeaderMap::new(), body.into()).await };
        // It fails if there is a stream of this name with other settings.
        this.done(this.send(this.soon(), create).await?)?;
        Ok(this)
    }

    pub(crate) fn soon(&self) -> Moment {
        Moment::now().after(self.timeout)
    }

    /// The last revision of a name, and its holder, as the leader of the servers knows them.
    pub(crate) async fn look(&self, name: &LockName, until: Moment) -> Result<(u64, Option<Record>)> {
        let last = &json!({"last_by_subj": self.subject("$KV", name)}).to_string();
        let (info, get) = &(self.api("STREAM.INFO"), self.api("STREAM.MSG.GET"));
        let send = |on: Connection, _| async move {
            // The time first, so that no lease is taken for shorter than it is.
            let now = on.request(info, HeaderMap::new(), String::new());
            tokio::try_join!(now, on.request(get, HeaderMap::new(), last.clone()))
        };
        let (info, answer) = self.send(until, send).await?;
        if answer["error"]["err_code"] == NO_MESSAGE {
            return Ok((0, None));
        }
        let (info, message) = (self.done(info)?, &self.done(answer)?["message"]);
        let strange = || self.named(Error::new(ErrorKind::Misconfigured, "a key has another kind of value"));
        let revision = message["seq"].as_u64().ok_or_else(strange)?;
        let value = BASE64_STANDARD.decode(message["data"].as_str().unwrap_or_default()).unwrap_or_default();
        if value.is_empty() {
            return Ok((revision, None));
        }
        let mut record: Record = serde_json::from_slice(&value).map_err(|_| strange())?;
        let time = |at: &Value| parse_rfc3339(at.as_str().unwrap_or_default()).map_err(|_| strange());
        let age = Duration::try_from(time(&info["ts"])? - time(&message["time"])?).unwrap_or_default();
        record.token = if record.token == 0 { revision } else { record.token };
        (record.held, record.left) = (record.held + age, record.ttl.saturating_sub(age));
        Ok((revision, Some(record).filter(|record| !record.left.is_zero())))
    }

    /// Puts a record in the place of a revision, or frees the lock. `claim` is what takes it by that. Returns the
    /// new revision, if no other change came first; when the request was sent; and whether an earlier copy of it,
    /// whose answer was lost, may have made the change.
    pub(crate) async fn change(
        &self,
        name: &LockName,
        revision: u64,
        record: Option<&Record>,
        until: Moment,
        claim: Option<&Claim>,
    ) -> Result<(Option<u64>, Moment, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", revision.to_string());
        // Then the server forgets the key. It counts in seconds, so they are rounded up.
        let seconds = record.map_or(1, |record| record.ttl.as_millis().div_ceil(1000));
        headers.insert("Nats-TTL", seconds.to_string());
        if record.is_none() {
            headers.insert(OPERATION, "DEL");
        }
        let value = record.map(|record| json!(record).to_string()).unwrap_or_default();
        let subject = &self.subject("$KV", name);
        let send = |on: Connection, again: bool| {
            claim.filter(|_| again).map(Claim::note_in_doubt);
            let (headers, value, sent) = (headers.clone(), value.clone(), Moment::now());
            async move { Ok((on.request(subject, headers, value).await?, sent, again)) }
        };
        let (answer, sent, again) = self.send(until, send).await?;
        if answer["error"]["err_code"].as_u64().is_some_and(|code| OTHER_REVISION.contains(&code)) {
            return Ok((None, sent, again));
        }
        Ok((self.done(answer)?["seq"].as_u64(), sent, again))
    }

    /// The changes of a name from now on, until the connection ends.
    pub(crate) async fn changes(&self, name: &LockName) -> Result<Subscriber> {
        let subject = &self.subject("lockwell", name);
        self.send(self.soon(), |on, _| async move { on.subscribe(subject).await }).await
    }

    pub(crate) fn disconnect(&self) {
        self.connections.close();
    }

    async fn send<T, R>(&self, until: Moment, request: impl Fn(Connection, bool) -> R) -> Result<T>
    where
        R: Future<Output = std::result::Result<T, Failure>>,
    {
        let request = |on: Connection, again| {
            // It was sent on another connection, which this one replaces.
            if again && on.is_replacement() {
                note_reconnection("nats");
            }
            request(on, again)
        };
        let asked = self.connections.ask(until, || Connection::open(&self.url), request).await;
        asked.map_err(|error| self.named(error))
    }

    /// The answer of JetStream, if it has done what it was asked.
    fn done(&self, answer: Value) -> Result<Value> {
        let Some(text) = answer["error"]["description"].as_str() else { return Ok(answer) };
        Err(self.named(Error::new(ErrorKind::Misconfigured, format!("JetStream says: {text}"))))
    }

    fn api(&self, what: &str) -> String {
        format!("$JS.API.{what}.KV_{}", self.bucket)
    }

    fn subject(&self, prefix: &str, name: &LockName) -> String {
        // Without percent signs, which the tools of NATS do not accept in a key.
        let key = escape(name.as_str(), |_, c| c.is_ascii_alphanumeric() || "-_/".contains(c));
        format!("{prefix}.{}.{}", self.bucket, key.replace('%', "="))
    }

    fn named(&self, error: Error) -> Error {
        error.on_backend("nats").at(self.servers.clone())
    }
}
