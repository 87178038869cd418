//! Asks which master serves which slot: in the background, several nodes at once, by one task at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lockwell_core::Moment;
use rand::seq::SliceRandom;
use redis::{ConnectionAddr, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::cluster::{Cluster, Refreshing};
use super::slots::{View, most_common, view};
use crate::gather::next_until;
use crate::wire::Wire;
use crate::wire::connect::connect;
use crate::wire::dial::unreachable_now;
use crate::wire::link::Link;
use crate::words::error::{ErrorClass, classify};

/// How long one node may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How many connected nodes are asked, and how many more by a connection for the purpose.
const CONNECTED: usize = 3;
const AFRESH: usize = 8;

/// How long connected nodes have before others are asked.
const HEAD_START: Duration = Duration::from_millis(150);

/// How long further nodes are waited for when one has answered.
const GRACE: Duration = Duration::from_millis(30);

impl Cluster {
    /// Asks for the slots in the background, by one task at a time, with pauses in between.
    pub(crate) fn refresh_soon(self: &Arc<Self>) {
        drop(self.refresh());
    }

    /// Asks for the slots, and waits for the answer.
    pub(crate) async fn learn(self: &Arc<Self>) -> RedisResult<()> {
        // The task is gone only with its runtime; then the next call starts another.
        let mut asking = self.refresh().ok_or_else(unreachable_now)?;
        let outcome = asking.wait_for(Option::is_some).await.map_err(|_| unreachable_now())?.clone();
        outcome.unwrap_or(Ok(()))
    }

    fn refresh(self: &Arc<Self>) -> Option<Refreshing> {
        // A call can be dropped outside of any runtime.
        let runtime = Handle::try_current().ok()?;
        let mut state = self.state();
        if let Some(asking) = &state.refreshing
            && asking.borrow().is_none()
            && asking.has_changed().is_ok()
        {
            return Some(asking.clone());
        }
        let (sender, asking) = watch::channel(None);
        state.refreshing = Some(asking.clone());
        let begin = state.next_refresh;
        drop(state);
        let cluster = Arc::clone(self);
        drop(runtime.spawn(async move {
            tokio::time::sleep(begin.remaining()).await;
            let found = cluster.read_slots().await;
            if let Err(error) = &found {
                tracing::debug!(%error, "no node says who serves which slot");
            }
            let found = found.map(|view| cluster.apply(&view));
            let mut state = cluster.state();
            let pause = state.pauses.next_pause();
            state.next_refresh = Moment::now().after(pause);
            drop(state);
            sender.send_replace(Some(found));
        }));
        Some(asking)
    }

    /// Asks some nodes at once, and takes the answer of most of those that answer soon. Those that hang are
    /// not waited for.
    async fn read_slots(&self) -> RedisResult<View> {
        let mut connected: Vec<_> =
            self.masters().into_iter().filter_map(|wire| Some((wire.ready()?.0, wire))).collect();
        connected.retain(|(_, wire)| !wire.looks_dead());
        connected.shuffle(&mut rand::rng());
        connected.truncate(CONNECTED);
        let head_start = if connected.is_empty() { Duration::ZERO } else { HEAD_START };
        let at_once = connected.len();
        let mut asks: FuturesUnordered<BoxFuture<'_, RedisResult<View>>> = FuturesUnordered::new();
        for (link, wire) in connected {
            asks.push(Box::pin(async move { within(ask(link, wire.host())).await }));
        }
        for addr in self.addresses() {
            asks.push(Box::pin(async move {
                tokio::time::sleep(head_start).await;
                let wire = Wire::new(self.address.at(addr), None);
                let asked = async {
                    let address = wire.address.logging_in().await?;
                    ask(connect(&address, None).await?, wire.host()).await
                };
                within(asked).await
            }));
        }
        let (mut views, mut failure) = (Vec::new(), None);
        let mut end = None;
        loop {
            match next_until(&mut asks, end).await {
                Some(Ok(view)) => {
                    views.push(view);
                    end.get_or_insert_with(|| tokio::time::Instant::now() + GRACE);
                }
                Some(Err(error)) => failure = Some(worse(failure, error)),
                None => break,
            }
            if at_once > 0 && views.len() == at_once {
                break;
            }
        }
        most_common(&views).cloned().ok_or_else(|| failure.unwrap_or_else(unreachable_now))
    }

    /// The nodes that are known, by the address or by each other, in a random order.
    fn addresses(&self) -> Vec<ConnectionAddr> {
        let mut addresses = self.seeds().to_vec();
        for name in self.state().masters.keys() {
            let addr = self.address.node(name.host.clone(), name.port);
            if !addresses.contains(&addr) {
                addresses.push(addr);
            }
        }
        addresses.shuffle(&mut rand::rng());
        addresses.truncate(AFRESH);
        addresses
    }
}

async fn within(asked: impl Future<Output = RedisResult<View>>) -> RedisResult<View> {
    let too_late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(TIMEOUT, asked).await.unwrap_or_else(|_| too_late())
}

async fn ask(mut link: Link, host: String) -> RedisResult<View> {
    let mut command = redis::cmd("CLUSTER");
    let answer: Value = link.query(command.arg("SLOTS")).await?;
    view(&answer, &host).ok_or_else(unreachable_now)
}

/// An error that is final is preferred to one that says that a node cannot be reached.
fn worse(before: Option<RedisError>, error: RedisError) -> RedisError {
    match before {
        Some(before) if classify(&before, true) == ErrorClass::Fatal => before,
        _ => error,
    }
}
