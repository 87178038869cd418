//! Nodes of a claim that it has not heard of: those of lost answers, of sessions that are over, of other clients.

use std::sync::Arc;

use lockcore::{FencingToken, Grant, Result};

use crate::acquire::Acquire;
use crate::child::Child;
use crate::error::{Fate, explain, fate};
use crate::look::Look;
use crate::node::Node;
use crate::patience::within;
use crate::queue::{Place, place};

/// What a look for the node of a lost answer comes to.
pub(crate) enum Found {
    Node(Arc<Node>),
    Nothing,
    SessionOver,
}

/// What becomes of an older node with our owner id.
pub(crate) enum Met {
    /// It is ours, and takes the place of the newer one.
    Adopted(Arc<Node>),
    /// Another client has it: the grant, if it holds the lock.
    Elsewhere(Option<Grant>),
    /// It has gone, or may have: look again.
    Gone,
}

impl Acquire<'_> {
    /// After a lost answer: looks for the node.
    ///
    /// The look is ordered behind all that the leader had accepted from the old connection; what it had not, it refuses
    /// since the session has moved. So a node that is not there now will not come.
    pub(crate) async fn find(&self) -> Result<Found> {
        let owner = Some(self.claim.owner().as_uuid());
        'look: loop {
            if self.session.is_over() {
                return Ok(Found::SessionOver);
            }
            let Some(look) = self.look_now().await? else { return Ok(Found::SessionOver) };
            for child in look.queue.into_iter().filter(|child| child.owner == owner) {
                let path = format!("{}/{}", self.folder, child.name);
                let checking = self.session.bounded(self.session.client.check_stat(&path));
                match within(self.shared, self.claim, checking).await? {
                    Ok(Some(stat)) if stat.ephemeral_owner == self.session.id() => {
                        return Ok(Found::Node(self.settle(path, child.sequence, stat.czxid).await?));
                    }
                    // Of another session: not ours. If it stands before us, it will be met.
                    Ok(_) => (),
                    Err(error) => match fate(&error) {
                        Fate::SessionOver => return Ok(Found::SessionOver),
                        Fate::Refused => return Err(explain(&error)),
                        Fate::Unknown => continue 'look,
                    },
                }
            }
            return Ok(Found::Nothing);
        }
    }

    /// An older node carries our owner id.
    pub(crate) async fn meet(&self, node: &Arc<Node>, older: &Child, now: &Look) -> Result<Met> {
        let path = format!("{}/{}", self.folder, older.name);
        let checking = self.session.bounded(self.session.client.check_stat(&path));
        let stat = match within(self.shared, self.claim, checking).await? {
            Ok(Some(stat)) => stat,
            Err(error) if fate(&error) == Fate::Refused => return Err(explain(&error)),
            _ => return Ok(Met::Gone),
        };
        if self.past.contains(&stat.ephemeral_owner) {
            // The last trace of a session of ours that is over.
            self.delete(&path).await?;
            return Ok(Met::Gone);
        }
        if !self.delete(&node.path).await? {
            return Ok(Met::Gone);
        }
        self.shared.table.remove(self.claim.owner().as_uuid());
        if stat.ephemeral_owner == self.session.id() {
            // An earlier create of this acquire, whose answer was lost.
            return Ok(Met::Adopted(self.settle(path, older.sequence, stat.czxid).await?));
        }
        // The claim was asked for through another client. Its session keeps the node, so how long is not known here,
        // and the grant carries no belief.
        let granted = place(&now.queue, &older.name) == Place::Granted;
        let token = FencingToken::new(stat.czxid.cast_unsigned());
        Ok(Met::Elsewhere(granted.then(|| Grant::new(self.claim, token, now.sent).with_deadline(now.sent))))
    }

    /// Whether the node is surely gone.
    async fn delete(&self, path: &str) -> Result<bool> {
        let deleting = self.session.bounded(self.session.client.delete(path, None));
        let answer = within(self.shared, self.claim, deleting).await?;
        Ok(matches!(answer, Ok(()) | Err(zookeeper_client::Error::NoNode)))
    }
}
