//! The floor of etcd: the two transactions that every lock on it needs at least, with keys of one lease.
//!
//! The messages are those of etcd's `rpc.proto`, as far as they are needed.

use std::time::Duration;

use lockwell::backend::{ServerUrl, async_trait};
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::measure::cycles::{cycles, together};
use crate::measure::floor::raw::{Address, Owners, Raw, Server, key, refused};
use crate::stats::Sample;

/// The lease of all keys, in seconds: longer than a backend is measured.
const LEASE: i64 = 7200;

#[derive(Debug)]
pub(crate) struct EtcdFloor {
    member: Member,
    owners: Owners,
}

/// Clones share the connection.
#[derive(Clone, Debug)]
struct Member {
    channel: Channel,
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    /// 0: equal.
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    value: Option<Vec<u8>>,
}

/// What is compared.
const CREATE_REVISION: i32 = 1;
const VALUE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

/// One of these.
#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    delete: Option<Delete>,
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct TxnReply {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct LeaseGrant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct LeaseReply {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct LeaseRevoke {
    #[prost(int64, tag = "1")]
    id: i64,
}

/// A request without parameters, or an answer of which nothing is needed.
#[derive(Clone, Copy, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct StatusReply {
    #[prost(string, tag = "2")]
    version: String,
}

impl EtcdFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let address = Address::of(url)?;
        let endpoint =
            Endpoint::from_shared(format!("http://{}:{}", address.host, address.port.unwrap_or(2379)));
        let unreachable =
            |error: tonic::transport::Error| Error::failed(format!("the raw requests: {error}"));
        let channel = endpoint.map_err(unreachable)?.connect().await.map_err(unreachable)?;
        let mut member = Member { channel, lease: 0 };
        let granted: LeaseReply =
            member.ask("/etcdserverpb.Lease/LeaseGrant", LeaseGrant { ttl: LEASE }).await?;
        member.lease = granted.id;
        Ok(Self { member, owners: Owners::default() })
    }
}

#[async_trait]
impl Raw for EtcdFloor {
    fn what(&self) -> &'static str {
        "transaction that puts a key of a lease if there is none, then one that deletes it; one bare tonic channel"
    }

    fn shares(&self) -> bool {
        true
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        self.member.cycle(name, self.owners.next()).await
    }

    /// As many tasks as there are names, all of them on the same connection.
    async fn crowd(&self, length: Duration, names: usize) -> Result<Sample> {
        together(names, |name| {
            let (member, mut owners) = (self.member.clone(), Owners::default());
            async move { cycles(length, || member.cycle(name, owners.next())).await }
        })
        .await
    }

    async fn server(&mut self) -> Result<Server> {
        let StatusReply { version } = self.member.status().await?;
        Ok(Server { version: format!("etcd {version}"), settings: Vec::new() })
    }

    /// Ends the lease, and with it any key that is left.
    async fn finish(self: Box<Self>) -> Result<()> {
        let lease = LeaseRevoke { id: self.member.lease };
        let Nothing {} = self.member.ask("/etcdserverpb.Lease/LeaseRevoke", lease).await?;
        Ok(())
    }
}

impl Member {
    async fn cycle(&self, name: usize, owner: Uuid) -> Result<()> {
        let (key, owner) = (key(name).into_bytes(), owner.as_bytes().to_vec());
        let absent = Compare {
            target: CREATE_REVISION,
            key: key.clone(),
            create_revision: Some(0),
            ..Compare::default()
        };
        let put = Put { key: key.clone(), value: owner.clone(), lease: self.lease };
        self.txn(absent, Operation { put: Some(put), delete: None }).await?;
        let own = Compare { target: VALUE, key: key.clone(), value: Some(owner), ..Compare::default() };
        self.txn(own, Operation { put: None, delete: Some(Delete { key }) }).await
    }

    async fn txn(&self, when: Compare, then: Operation) -> Result<()> {
        let txn = Txn { compare: vec![when], success: vec![then] };
        let TxnReply { succeeded } = self.ask("/etcdserverpb.KV/Txn", txn).await?;
        if succeeded { Ok(()) } else { Err(refused()) }
    }

    async fn status(&self) -> Result<StatusReply> {
        self.ask("/etcdserverpb.Maintenance/Status", Nothing {}).await
    }

    async fn ask<Q, A>(&self, path: &'static str, message: Q) -> Result<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let failed = |status: Status| Error::failed(format!("the raw requests: {}", status.message()));
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| Error::failed(format!("the raw requests: {error}")))?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = client
            .unary(Request::new(message), PathAndQuery::from_static(path), codec)
            .await
            .map_err(failed)?;
        Ok(answer.into_inner())
    }
}
