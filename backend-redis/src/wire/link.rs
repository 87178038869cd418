//! One connection, and what receives its notifications.

use std::sync::Arc;

use lockwell_core::backend::{Notification, Waiters};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection, SendError};
use redis::{Cmd, PushInfo, PushKind, RedisResult, Value};

use crate::words::error::of_command;

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Link(pub(crate) MultiplexedConnection);

impl Link {
    pub(crate) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.0.req_packed_command(command).await?.extract_error().map_err(of_command)
    }

    /// A command for a slot that its node is receiving. The permission holds for the next command of the
    /// connection, so that both are sent in one piece.
    pub(crate) async fn query_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let answers = self.0.req_packed_commands(&both, 0, 2).await?;
        let answers = answers.into_iter().map(Value::extract_error).collect::<RedisResult<Vec<_>>>();
        Ok(answers.map_err(of_command)?.into_iter().next_back().unwrap_or(Value::Nil))
    }

    pub(super) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        self.0.subscribe(channel).await
    }
}

/// Receives what the server pushes.
#[derive(Clone, Debug)]
pub(crate) struct Subscriber {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) channel: Arc<str>,
    /// The number of the connection.
    pub(crate) generation: u64,
}

impl AsyncPushSender for Subscriber {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        match push.kind {
            PushKind::Message => {
                let notification = push.data.get(1).and_then(|payload| match payload {
                    Value::BulkString(bytes) => {
                        let parsed = Notification::parse(std::str::from_utf8(bytes).ok()?);
                        parsed.map(|notification| notification.over(self.generation))
                    }
                    _ => None,
                });
                match notification {
                    Some(notification) => self.waiters.deliver(notification),
                    None => self.waiters.notify_all(),
                }
            }
            // Notifications that were sent meanwhile are lost.
            PushKind::Disconnection => self.waiters.notify_all(),
            _ => (),
        }
        Ok(())
    }
}
