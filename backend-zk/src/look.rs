//! Looking at the queue.

use std::time::Duration;

use lockcore::{Moment, Result};
use zookeeper_client as zk;

use crate::acquire::Acquire;
use crate::child::Child;
use crate::error::{Fate, explain, fate};
use crate::patience::within;

/// What a look at the queue has told.
pub(crate) struct Look {
    pub(crate) sent: Moment,
    pub(crate) queue: Vec<Child>,
}

impl Acquire<'_> {
    /// Looks at the queue. `None`: the session is over.
    ///
    /// A server never shows a session less than it has seen before. That is enough for a node whose making has been
    /// answered: those before it were there by then. Whoever still shows, but has gone, will be watched in vain for no
    /// longer than it takes our server to hear of it.
    pub(crate) async fn look(&self) -> Result<Option<Look>> {
        self.list(|client| client.list_children(&self.folder)).await
    }

    /// The same, as of now.
    pub(crate) async fn look_now(&self) -> Result<Option<Look>> {
        self.list(|client| {
            let (synced, listed) = (client.sync(&self.folder), client.list_children(&self.folder));
            async { synced.await.and(listed.await) }
        })
        .await
    }

    async fn list<'c, Listing>(&'c self, send: impl Fn(&'c zk::Client) -> Listing) -> Result<Option<Look>>
    where
        Listing: Future<Output = std::result::Result<Vec<String>, zk::Error>>,
    {
        let mut pause = Duration::from_millis(5);
        loop {
            let sent = Moment::now();
            let listing = self.session.bounded(send(&self.session.client));
            let error = match within(self.shared, self.claim, listing).await? {
                Ok(names) => return Ok(Some(Look { sent, queue: Child::queue(names) })),
                Err(zk::Error::NoNode) => return Ok(Some(Look { sent, queue: Vec::new() })),
                Err(error) => error,
            };
            match fate(&error) {
                Fate::SessionOver => return Ok(None),
                Fate::Unknown if self.session.is_over() => return Ok(None),
                Fate::Refused => return Err(explain(&error)),
                Fate::Unknown => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}
