//! Turning a writer into a reader.
//!
//! The node stays where it is, and with it the token, the session and the place in the queue. What changes is what it
//! says. A writer that holds is the first of all: so if the last writer before a reader says that it reads, there is
//! nobody before the two but readers, and the reader holds, too. A writer waits for whoever stands before it, as ever.
//! So does a client of another maker, which does not know what the data mean: it waits for longer than it need.

use std::time::Duration;

use lockcore::{Error, ErrorKind, Grant, Result};
use zookeeper_client as zk;

use crate::acquire::Acquire;
use crate::error::{Fate, explain, fate};
use crate::node::{Node, says_reader, write_data};
use crate::patience::within;
use crate::shared::Shared;

/// Lets the node say that it is a reader's. Said twice it is the same, so it is repeated until there is an answer.
pub(crate) async fn downgrade(shared: &Shared, grant: &Grant) -> Result<Grant> {
    let Some(node) = grant.record::<Node>() else {
        let text = "the lock was granted through another client, whose session keeps it";
        return Err(Error::new(ErrorKind::Unsupported, text));
    };
    let reader = grant.downgraded();
    let (session, data) = (&node.session, write_data(reader.claim()));
    let mut pause = Duration::from_millis(2);
    // A claim that is being given up holds nothing any more, even if its node is still there.
    while shared.table.get(grant.claim().owner().as_uuid()).is_some() {
        match session.bounded(session.client.set_data(&node.path, &data, None)).await {
            Ok(stat) if stat.ephemeral_owner == session.id() && stat.czxid == node.czxid => {
                return Ok(reader);
            }
            Ok(_) | Err(zk::Error::NoNode) => break,
            Err(error) => match fate(&error) {
                Fate::SessionOver => break,
                Fate::Refused => return Err(explain(&error)),
                Fate::Unknown => tokio::time::sleep(pause).await,
            },
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
}

impl Acquire<'_> {
    /// Whether the last writer before us, for which alone a reader waits, has become a reader. If it cannot be said now,
    /// it has not.
    pub(crate) async fn joins(&self, writer: &str) -> Result<bool> {
        let reading = self.session.client.get_data(&format!("{}/{writer}", self.folder));
        let answer = within(self.shared, self.claim, self.session.bounded(reading)).await?;
        Ok(answer.is_ok_and(|(data, _)| says_reader(&data)))
    }
}
