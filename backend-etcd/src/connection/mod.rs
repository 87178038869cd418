//! A connection to one server: all requests, keep-alives and watches of a runtime share it.

mod dial;
mod keep_alive;
mod line;
mod login;
mod open;
mod stream;
mod watch;

use std::sync::Arc;

use tonic::Status;
use tonic::transport::Channel;

use self::keep_alive::KeepAlives;
use self::line::{Line, Token};
pub(crate) use self::open::Opener;
use self::watch::Watches;
pub(crate) use self::watch::{PRESENT, Watch};
use crate::messages::{Alarms, Ask, Lease, LeaseGrant, LeaseReply, Members, Txn, TxnReply, WatchCreate};

/// One connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Inner>);

struct Inner {
    line: Line,
    keep_alives: KeepAlives,
    watches: Arc<Watches>,
}

impl Connection {
    fn new(channel: Channel, token: Option<Token>) -> Self {
        let line = Line { channel, token };
        let (keep_alives, watches) = (KeepAlives::new(line.clone()), Arc::new(Watches::new(line.clone())));
        Self(Arc::new(Inner { line, keep_alives, watches }))
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnReply, Status> {
        self.0.line.ask("/etcdserverpb.KV/Txn", txn).await
    }

    pub(crate) async fn grant_lease(&self, id: i64, seconds: i64) -> Result<LeaseReply, Status> {
        self.0.line.ask("/etcdserverpb.Lease/LeaseGrant", LeaseGrant { ttl: seconds, id }).await
    }

    pub(crate) async fn revoke_lease(&self, id: i64) -> Result<LeaseReply, Status> {
        self.0.line.ask("/etcdserverpb.Lease/LeaseRevoke", Lease { id }).await
    }

    pub(crate) async fn time_to_live(&self, id: i64) -> Result<LeaseReply, Status> {
        self.0.line.ask("/etcdserverpb.Lease/LeaseTimeToLive", Lease { id }).await
    }

    /// Extends a lease. The answer alone proves nothing: see `lease.rs`.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<LeaseReply, Status> {
        self.0.keep_alives.ask(id).await
    }

    pub(crate) fn watch(&self, watch: WatchCreate) -> Watch {
        self.0.watches.open(watch)
    }

    /// Whether the watch is one of this connection.
    pub(crate) fn has(&self, watch: &Watch) -> bool {
        watch.is_of(&self.0.watches)
    }

    pub(crate) async fn members(&self) -> Result<Members, Status> {
        self.0.line.ask("/etcdserverpb.Cluster/MemberList", Ask {}).await
    }

    pub(crate) async fn status(&self) -> Result<crate::messages::Status, Status> {
        self.0.line.ask("/etcdserverpb.Maintenance/Status", Ask {}).await
    }

    pub(crate) async fn alarms(&self) -> Result<Alarms, Status> {
        self.0.line.ask("/etcdserverpb.Maintenance/Alarm", Ask {}).await
    }
}
