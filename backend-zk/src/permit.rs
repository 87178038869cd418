//! The turn of a permit.
//!
//! The first of those who wait watches the folder, and looks at the queue when a child comes or goes. Everybody else
//! watches the one before it: when that one goes, or says that its turn has come, it may be the first. So a release wakes
//! one, and that one wakes one more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockcore::backend::Backoff;
use lockcore::{Claim, Moment, Result};

use crate::acquire::Acquire;
use crate::child::Child;
use crate::error::{Fate, fate};
use crate::look::Look;
use crate::node::{Node, write_held};
use crate::patience::within;
use crate::queue::{Place, place};
use crate::thread;
use crate::turn::{Turn, failed, safety_poll};

/// Waits as the first of those who wait. The look and the watch are one request, so nobody leaves unseen in between.
pub(crate) async fn wait_for_any(acquire: &Acquire<'_>, node: &Arc<Node>) -> Result<Turn> {
    let (session, client) = (&acquire.session, &acquire.session.client);
    loop {
        let sent = Moment::now();
        let asking = session.bounded(client.list_and_watch_children(&acquire.folder));
        let (names, news) = match within(acquire.shared, acquire.claim, asking).await? {
            Ok(listed) => listed,
            Err(error) => return failed(&error).await,
        };
        let look = Look { sent, queue: Child::queue(names) };
        let first = matches!(place(&look.queue, node.name()), Place::Waiting(it) if it.watch.is_none());
        let mut news = news.changed().boxed();
        if !first || acquire.claim.is_given_up() {
            node.keep_watch(news);
            return Ok(Turn::Seen(look));
        }
        tokio::select! {
            biased;
            _ = &mut news => (),
            () = acquire.claim.given_up() => {
                // Our own node's end fires it.
                node.keep_watch(news);
                return Ok(Turn::GivenUp);
            }
            () = tokio::time::sleep(safety_poll()) => node.keep_watch(news),
        }
        if session.is_over() {
            return Ok(Turn::SessionOver);
        }
    }
}

/// Tells the one behind us that it may be the first. If that fails for good, its own timer tells it.
pub(crate) fn say_held(node: &Arc<Node>, claim: &Claim) {
    let (node, data) = (Arc::clone(node), write_held(claim));
    // It is sent at once, ahead of a release.
    let mut saying = node.session.client.set_data(&node.path, &data, None).boxed();
    drop(thread::spawn(async move {
        let mut pauses = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));
        while let Err(error) = node.session.bounded(saying).await {
            if fate(&error) != Fate::Unknown || node.session.is_over() {
                return;
            }
            pauses.pause().await;
            saying = node.session.client.set_data(&node.path, &data, None).boxed();
        }
    }));
}
