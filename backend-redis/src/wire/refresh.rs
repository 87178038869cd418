//! Asks several nodes at once which master serves which slot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rand::seq::SliceRandom;
use redis::{ConnectionAddr, RedisError, RedisResult, Value};

use super::slots::{View, most_common, view};
use crate::gather::next_until;
use crate::wire::Wire;
use crate::wire::connect::connect;
use crate::wire::dial::unreachable_now;
use crate::wire::link::Link;
use crate::words::address::Address;
use crate::words::error::{ErrorClass, classify};

/// How long one node may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How many connected nodes are asked, and how many more by a connection for the purpose.
const CONNECTED: usize = 3;
const AFRESH: usize = 8;

/// How long connected nodes have before others are asked.
const HEAD_START: Duration = Duration::from_millis(150);

/// How long further nodes are waited for when one has answered.
const FURTHER_NODES: Duration = Duration::from_millis(30);

/// Asks some of the nodes at once, and takes the answer of most of those that answer soon. Those that hang
/// are not waited for. `masters` may have connections; the others are reached by `address`.
pub(super) async fn read_slots(
    address: &Address,
    masters: Vec<Arc<Wire>>,
    mut others: Vec<ConnectionAddr>,
) -> RedisResult<View> {
    let mut connected: Vec<_> =
        masters.into_iter().filter_map(|wire| Some((wire.ready()?.0, wire))).collect();
    connected.retain(|(_, wire)| !wire.looks_dead());
    connected.shuffle(&mut rand::rng());
    connected.truncate(CONNECTED);
    others.shuffle(&mut rand::rng());
    others.truncate(AFRESH);
    let head_start = if connected.is_empty() { Duration::ZERO } else { HEAD_START };
    let at_once = connected.len();
    let mut asks: FuturesUnordered<BoxFuture<'_, RedisResult<View>>> = FuturesUnordered::new();
    for (link, wire) in connected {
        asks.push(Box::pin(async move { within(ask(link, wire.host())).await }));
    }
    for addr in others {
        asks.push(Box::pin(async move {
            tokio::time::sleep(head_start).await;
            let wire = Wire::new(address.at(addr), None);
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
                end.get_or_insert_with(|| tokio::time::Instant::now() + FURTHER_NODES);
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

async fn within(asked: impl Future<Output = RedisResult<View>>) -> RedisResult<View> {
    let too_late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(TIMEOUT, asked).await.unwrap_or_else(|_| too_late())
}

async fn ask(mut link: Link, host: String) -> RedisResult<View> {
    ask_slots(&mut link, &host).await
}

/// Asks one node, which may name no host where it means itself.
pub(super) async fn ask_slots(link: &mut Link, host: &str) -> RedisResult<View> {
    let mut command = redis::cmd("CLUSTER");
    let answer: Value = link.query(command.arg("SLOTS")).await?;
    view(&answer, host).ok_or_else(unreachable_now)
}

/// An error that is final is preferred to one that says that a node cannot be reached.
fn worse(before: Option<RedisError>, error: RedisError) -> RedisError {
    match before {
        Some(before) if classify(&before, true) == ErrorClass::Fatal => before,
        _ => error,
    }
}
