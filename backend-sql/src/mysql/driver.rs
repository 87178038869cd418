//! The driver for MySQL and MariaDB, and its connections.

use std::fmt;
use std::sync::Arc;

use lockcore::backend::Hot;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use super::contended::Contended;
use super::kill::Push;
use super::statements::Statements;

/// The MySQL dialect.
pub struct MySql {
    pub(super) connect: MySqlConnectOptions,
    pub(super) contended: Contended,
    pub(super) push: Arc<Push>,
    pub(super) hot: Hot,
    pub(super) sql: Statements,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    pub(super) inner: MySqlConnection,
    /// The channel to the task that notifies waiters of other clients, once it was needed.
    pub(super) killer: Option<UnboundedSender<Uuid>>,
    /// Whether a release may send its `KILL` itself; see `push.rs`. `None`: it is not known yet.
    pub(super) may_kill: Option<bool>,
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MySql({}:{})", self.connect.get_host(), self.connect.get_port())
    }
}
