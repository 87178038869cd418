//! The messages of etcd's API, as far as the locks use them.
//!
//! They are written by hand, so that the build needs no `protoc`. The numbers are those of etcd's `rpc.proto`
//! and `kv.proto`, which never change.

use prost::{Message, Oneof};

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "2")]
    pub(crate) member: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) term: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

/// Keys from `key` to `end`, which is not among them; `key` alone if there is no end.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// What was there at this revision; 0: what is there now.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(int32, tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(int32, tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

impl Range {
    const ASCENDING: i32 = 1;
    const DESCENDING: i32 = 2;
    const BY_CREATE_REVISION: i32 = 2;

    /// One key, without its value.
    pub(crate) fn any(self) -> Self {
        Self { limit: 1, keys_only: true, ..self }
    }

    /// So many keys, those that were created last, without their values.
    pub(crate) fn newest(self, limit: i64) -> Self {
        let sort_target = Self::BY_CREATE_REVISION;
        Self { limit, sort_order: Self::DESCENDING, sort_target, keys_only: true, ..self }
    }

    /// The key that was created first, without its value.
    pub(crate) fn oldest(self) -> Self {
        let sort_target = Self::BY_CREATE_REVISION;
        Self { limit: 1, sort_order: Self::ASCENDING, sort_target, keys_only: true, ..self }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeReply {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// The answer to a write, which says nothing that is used.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Done {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
    #[prost(message, tag = "4")]
    Txn(Txn),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplyOp {
    #[prost(oneof = "OpAnswer", tags = "1, 2, 3, 4")]
    answer: Option<OpAnswer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum OpAnswer {
    #[prost(message, tag = "1")]
    Range(RangeReply),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    Delete(Done),
    #[prost(message, tag = "4")]
    Txn(TxnReply),
}

/// A condition on one key, or on all keys of a range. An empty range has the create revision 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Than", tags = "5, 6, 7")]
    than: Option<Than>,
    #[prost(bytes = "vec", tag = "64")]
    end: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Than {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

impl Compare {
    const EQUAL: i32 = 0;
    const GREATER: i32 = 1;
    const LESS: i32 = 2;
    const OF_CREATE_REVISION: i32 = 1;
    const OF_MOD_REVISION: i32 = 2;
    const OF_VALUE: i32 = 3;

    fn of_revision(range: Range, result: i32, revision: i64) -> Self {
        let Range { key, end, .. } = range;
        let than = Some(Than::CreateRevision(revision));
        Self { result, target: Self::OF_CREATE_REVISION, key, than, end }
    }

    /// There is no such key.
    pub(crate) fn absent(range: Range) -> Self {
        Self::of_revision(range, Self::EQUAL, 0)
    }

    /// The key is there, and it is the one that was created at this revision.
    pub(crate) fn created_at(key: Range, revision: i64) -> Self {
        Self::of_revision(key, Self::EQUAL, revision)
    }

    /// There are such keys, and all of them were created at this revision or later.
    pub(crate) fn none_before(range: Range, revision: i64) -> Self {
        Self::of_revision(range, Self::GREATER, revision.saturating_sub(1))
    }

    /// There are no such keys, or all of them were created before this revision.
    pub(crate) fn before(range: Range, revision: i64) -> Self {
        Self::of_revision(range, Self::LESS, revision)
    }

    /// The key has not been written since before this revision.
    pub(crate) fn written_before(range: Range, revision: i64) -> Self {
        let than = Some(Than::ModRevision(revision));
        let target = Self::OF_MOD_REVISION;
        Self { result: Self::LESS, target, key: range.key, than, end: range.end }
    }

    /// The key has this value.
    pub(crate) fn value(key: &str, value: &[u8]) -> Self {
        let than = Some(Than::Value(value.into()));
        Self { result: Self::EQUAL, target: Self::OF_VALUE, key: key.into(), than, end: Vec::new() }
    }
}

/// If all conditions hold, `success` is carried out, otherwise `failure`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<RequestOp>,
}

impl Txn {
    pub(crate) fn new(
        when: impl IntoIterator<Item = Compare>,
        then: impl IntoIterator<Item = Op>,
        otherwise: impl IntoIterator<Item = Op>,
    ) -> Self {
        let request = |op| RequestOp { op: Some(op) };
        Self {
            compare: when.into_iter().collect(),
            success: then.into_iter().map(request).collect(),
            failure: otherwise.into_iter().map(request).collect(),
        }
    }

    /// Reads at one moment. Such a request writes nothing into the log of the servers.
    pub(crate) fn reads(ranges: impl IntoIterator<Item = Range>) -> Self {
        Self::new([], ranges.into_iter().map(Op::Range), [])
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnReply {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<ReplyOp>,
}

impl TxnReply {
    /// What each range found, in their order; and the answer of the inner transaction, if there is one.
    pub(crate) fn into_found(self) -> (Vec<Vec<KeyValue>>, Option<TxnReply>) {
        let (mut found, mut inner) = (Vec::new(), None);
        for response in self.responses {
            match response.answer {
                Some(OpAnswer::Range(range)) => found.push(range.kvs),
                Some(OpAnswer::Txn(txn)) => inner = Some(txn),
                _ => (),
            }
        }
        (found, inner)
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseGrant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// A request that names a lease: revoke, keep alive, time to live.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Lease {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseReply {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// In seconds. Zero or less: there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchWish", tags = "1, 2")]
    pub(crate) wish: Option<WatchWish>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchWish {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// 0: no events about writes.
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(crate) id: i64,
}

impl WatchCreate {
    /// Whether it tells of the same changes of the same keys.
    pub(crate) fn is_for_keys_of(&self, other: &Self) -> bool {
        (&self.key, &self.end, &self.filters) == (&other.key, &other.end, &other.filters)
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchReply {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// The watch tells of all changes after the revision of the header.
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// Something happened to a watched key. What it was is read anew.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Event {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Token {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// A request without parameters.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Ask {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Members {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Member {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) size: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Alarms {
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<Alarm>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Alarm {
    /// 1: no space. 2: corrupt.
    #[prost(int32, tag = "2")]
    pub(crate) kind: i32,
}

/// One key.
pub(crate) fn one(key: &str) -> Range {
    exactly(key.as_bytes())
}

/// One key, in bytes.
pub(crate) fn exactly(key: &[u8]) -> Range {
    Range { key: key.into(), ..Range::default() }
}

/// All keys that begin with this text, which ends in an ASCII character.
pub(crate) fn below(prefix: &str) -> Range {
    between(prefix, &after(prefix))
}

/// The keys from the first text on and before the second.
pub(crate) fn between(from: &str, to: &str) -> Range {
    Range { key: from.into(), end: to.into(), ..Range::default() }
}

/// The first text that does not begin with this one, and comes after those that do. It ends in an ASCII
/// character.
pub(crate) fn after(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    let last = end.pop().and_then(|last| u8::try_from(last).ok()).unwrap_or(b'/');
    end.push(char::from(last + 1));
    end
}
