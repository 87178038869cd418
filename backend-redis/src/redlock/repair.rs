//! Restores the token counters of nodes that have lost them.
//!
//! Delayed restart keeps the *lock* safe: a node that forgot votes again only when every lease that it can
//! have granted is over. It does not keep the *tokens* rising: the node's counter is gone, too, and with its
//! low vote the next claim can get a token below one that was granted (`tools/models/tests/redlock` finds it
//! in 11 steps). So after the delay, and before its first vote, the counters are raised to the highest of a
//! majority of nodes that have not forgotten. Every token that was ever granted is stored at one of those.
//! The model finds no violation with this rule, and finds one with each part of it left out.
//!
//! A node that has its counters is known by a [note](super::note) that names the server's run. In a new
//! installation, and when a majority has forgotten, there are too few notes: then all nodes are read, none
//! may be missing, and tokens depend on the clock's floor.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::{Error, ErrorKind, Result};
use redis::Value;

use super::context::NodesContext;
use super::node::Node;
use super::tally::majority;
use crate::calls::item::Item;
use crate::words::answers;
use crate::words::error::unexpected;
use crate::words::script::{READ_COUNTERS, RESTORE_COUNTERS};

impl NodesContext {
    /// Repairs a node that has lost its counters, if it is time for that.
    pub(super) async fn repair_if_due(self: &Arc<Self>, nodes: &[Arc<Node>], index: usize) {
        if nodes[index].wants_repair()
            && let Err(error) = repair(self, nodes, index).await
        {
            let error = format!("{error:#}");
            let node = &self.common.settings.nodes[index].topology;
            tracing::warn!(lockwell.node = ?node, error, "this node cannot be repaired yet: no vote");
            nodes[index].note_failed_repair();
        }
    }
}

const LIMIT: Duration = Duration::from_secs(2);

/// Restores the counters of one node, if enough of the others have theirs.
pub(super) async fn repair(shared: &Arc<NodesContext>, nodes: &[Arc<Node>], index: usize) -> Result<()> {
    let broken = &nodes[index];
    let Some(run) = broken.run_to_repair() else { return Ok(()) };
    if let Ok(Some(noted)) = broken.noted(LIMIT).await
        && noted.is_of(&run.id)
    {
        // Another client has done it. If its note says more than this client has found, the settings have
        // changed meanwhile.
        if noted.kept && !run.note.kept {
            broken.examine_again(run.generation);
        } else {
            broken.note_whole(run.generation);
        }
        return Ok(());
    }
    let counters = shared.common.keys.all_token_buckets();
    let reads = nodes.iter().map(|node| read(node, &counters));
    let mut whole = Vec::new();
    let mut all = Vec::new();
    for (place, answer) in join_all(reads).await.into_iter().enumerate() {
        let Ok((values, is_whole)) = answer else { continue };
        if is_whole && place != index {
            whole.push(values.clone());
        }
        all.push(values);
    }
    let majority = majority(nodes.len());
    let sources = if whole.len() >= majority {
        whole
    } else if all.len() == nodes.len() {
        tracing::warn!("too few Redlock nodes have a history of tokens: taken for a new installation");
        all
    } else {
        let text =
            format!("{} nodes still have their tokens, and {majority} are needed to repair one", whole.len());
        return Err(Error::new(ErrorKind::Unreachable, text));
    };
    let mut args = vec![run.note.text()];
    for bucket in 0..counters.len() {
        args.push(sources.iter().map(|values| values[bucket]).max().unwrap_or(0).to_string());
    }
    let mut keys = vec![shared.common.keys.whole_note()];
    keys.extend(counters);
    let item = Item::new(&RESTORE_COUNTERS, 0, keys, args);
    let (_, generation) = broken.numbers(item, LIMIT).await?;
    // On another connection it may have been another run, which has forgotten again. Then the note names the
    // wrong run.
    if generation == run.generation {
        broken.note_whole(generation);
        tracing::info!("a Redlock node has its token counters back and votes again");
    }
    Ok(())
}

/// The counters of a node, and whether it has not forgotten them.
async fn read(node: &Arc<Node>, counters: &[String]) -> Result<(Vec<u64>, bool)> {
    // Before and after: a node that is repaired in between shows numbers from before its repair.
    let known = node.calls.wire().ready().map(|(_, generation)| generation);
    let was_whole = known.is_some_and(|generation| node.is_whole_on(generation));
    let item = Item::new(&READ_COUNTERS, 0, counters.to_vec(), Vec::new());
    let answer = node.calls.call_within(item, LIMIT).await?;
    let Value::Array(values) = answer.value else { return Err(unexpected()) };
    let values = values
        .iter()
        .map(|value| answers::text(Some(value))?.parse().map_err(|_| unexpected()))
        .collect::<Result<Vec<u64>>>()?;
    Ok((values, was_whole && known == Some(answer.generation)))
}
