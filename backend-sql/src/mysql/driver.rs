//! The driver for MySQL and MariaDB, and its connections.

use std::fmt;
use std::sync::Arc;

use lockwell_core::Moment;
use lockwell_core::backend::Waiters;
use sqlx_mysql::{MySqlConnectOptions, MySqlConnection};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use super::kill::Push;
use super::statements::Statements;
use crate::dialect::hints::Hints;
use crate::ids::AsUuid;
use crate::sql::login::Login;

/// The MySQL dialect.
pub struct MySql {
    /// The address for messages.
    pub(super) address: String,
    pub(super) connect: Login<MySqlConnectOptions>,
    /// There is no TLS, whatever the server has.
    pub(super) is_plain: bool,
    pub(super) push: Arc<Push>,
    pub(super) hints: Hints,
    pub(super) sql: Statements,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    pub(super) inner: MySqlConnection,
    /// The waiters of the client whose connection it is.
    pub(super) waiters: Arc<Waiters>,
    /// The channel to the task that notifies waiters of other clients, once it was needed.
    pub(super) killer: Option<UnboundedSender<Uuid>>,
    /// Whether a release may send its `KILL` itself; see `push.rs`. `None`: it is not known yet.
    pub(super) may_kill: Option<bool>,
    /// When the last heartbeat of the client was sent that the server has answered on this connection.
    pub(super) signed: Option<Moment>,
}

impl Conn {
    pub(super) fn new(inner: MySqlConnection, waiters: &Arc<Waiters>) -> Self {
        Self { inner, waiters: Arc::clone(waiters), killer: None, may_kill: None, signed: None }
    }

    pub(super) fn client(&self) -> Uuid {
        self.waiters.client().as_uuid()
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MySql({})", self.address)
    }
}
