//! The floor of etcd: the two transactions that every lock on it needs at least, with keys of one lease.
//!
//! The messages are those of etcd's `rpc.proto`, as far as they are needed.

use std::fs;
use std::time::Duration;

use lockwell::backend::ServerUrl;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::measure::cycles::{cycles, together};
use crate::measure::floor::raw::{Address, Owners, Server, key, refused};
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
    token: Option<MetadataValue<Ascii>>,
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

#[derive(Clone, PartialEq, Message)]
struct Authenticate {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    password: String,
}

#[derive(Clone, PartialEq, Message)]
struct Token {
    #[prost(string, tag = "2")]
    token: String,
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
        let is_safe = url.scheme() == "etcds";
        let scheme = if is_safe { "https" } else { "http" };
        let uri = format!("{scheme}://{}:{}", address.host, address.port.unwrap_or(2379));
        let unreachable =
            |error: tonic::transport::Error| Error::failed(format!("the raw requests: {error}"));
        let mut endpoint = Endpoint::from_shared(uri).map_err(unreachable)?;
        if is_safe {
            endpoint = endpoint.tls_config(files(url)?).map_err(unreachable)?;
        }
        let channel = endpoint.connect().await.map_err(unreachable)?;
        let mut member = Member { channel, token: None, lease: 0 };
        if let (Some(name), Some(password)) = (address.user, address.password) {
            let login = Authenticate { name: name.to_owned(), password: password.to_owned() };
            let Token { token } = member.ask("/etcdserverpb.Auth/Authenticate", login).await?;
            member.token = Some(token.parse().map_err(|_| Error::failed("the server's token is no text"))?);
        }
        let granted: LeaseReply =
            member.ask("/etcdserverpb.Lease/LeaseGrant", LeaseGrant { ttl: LEASE }).await?;
        member.lease = granted.id;
        Ok(Self { member, owners: Owners::default() })
    }

    pub(super) async fn cycle(&mut self, name: usize) -> Result<()> {
        self.member.cycle(name, self.owners.next()).await
    }

    /// As many tasks as there are names, all of them on the same connection.
    pub(super) async fn crowd(&mut self, length: Duration, names: usize) -> Result<Sample> {
        together(names, |name| {
            let (member, mut owners) = (self.member.clone(), Owners::default());
            async move { cycles(length, || member.cycle(name, owners.next())).await }
        })
        .await
    }

    /// A request that changes nothing, and that the server answers by itself.
    pub(super) async fn trip(&mut self) -> Result<()> {
        self.member.status().await.map(drop)
    }

    pub(super) async fn server(&mut self) -> Result<Server> {
        let StatusReply { version } = self.member.status().await?;
        Ok(Server { version: format!("etcd {version}"), settings: Vec::new() })
    }

    /// Ends the lease, and with it any key that is left.
    pub(super) async fn finish(self) -> Result<()> {
        let lease = LeaseRevoke { id: self.member.lease };
        let Nothing {} = self.member.ask("/etcdserverpb.Lease/LeaseRevoke", lease).await?;
        Ok(())
    }
}

/// The certificates of an address, as the backend takes them.
fn files(url: &ServerUrl) -> Result<ClientTlsConfig> {
    let file = |option| url.option(option).map(fs::read).transpose();
    let mut config = ClientTlsConfig::new();
    if let Some(ca) = file("ca")? {
        config = config.ca_certificate(Certificate::from_pem(ca));
    }
    if let (Some(cert), Some(key)) = (file("cert")?, file("key")?) {
        config = config.identity(Identity::from_pem(cert, key));
    }
    Ok(config)
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
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        let codec = ProstCodec::<Q, A>::default();
        let answer = client.unary(request, PathAndQuery::from_static(path), codec).await.map_err(failed)?;
        Ok(answer.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use testbed::{Certificates, Etcd, Options, if_installed};

    use super::*;

    #[tokio::test]
    async fn certificates_are_shown_and_asked_for() {
        let made = Certificates::make().expect("certificates");
        let Some(member) = if_installed(Etcd::start_with(&Options::new().tls(&made)).await) else { return };
        let file = |name| made.path(name);
        let url = format!(
            "etcds://{}?ca={}&cert={}&key={}",
            member.addr(),
            file("ca.pem"),
            file("ours.pem"),
            file("ours.key")
        );
        let mut floor = EtcdFloor::connect(&url.parse().expect("an address")).await.expect("a connection");
        floor.cycle(0).await.expect("a cycle");
        floor.finish().await.expect("the end");
    }
}
