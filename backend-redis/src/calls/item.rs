//! One call of a script, and its answer.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{Claim, Moment};
use redis::Value;

use crate::wire::Wire;
use crate::words::script::Script;

/// One item of a script call. Its first keys and arguments may concern the whole call (see
/// [`Script::sharing`]).
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) script: &'static Script,
    pub(crate) slot: u16,
    pub(crate) keys: Arc<Vec<String>>,
    pub(crate) args: Arc<Vec<String>>,
    /// The last argument, if it is no text.
    pub(crate) value: Option<Arc<[u8]>>,
    /// The claim that the item may grant the lock to.
    pub(crate) takes: Option<Claim>,
}

impl Item {
    /// One that grants nothing.
    pub(crate) fn new(script: &'static Script, slot: u16, keys: Vec<String>, args: Vec<String>) -> Self {
        Self { script, slot, keys: keys.into(), args: args.into(), value: None, takes: None }
    }
}

/// The arguments name owners, which are secret.
impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// What a script answered to one item.
#[derive(Debug)]
pub(crate) struct ItemReply {
    pub(crate) value: Value,
    /// When the call that brought the answer was sent.
    pub(crate) sent: Moment,
    /// Whether an earlier try, whose answer was lost, may have been carried out.
    pub(crate) in_doubt: bool,
    /// The server that it came from, and the number of the connection.
    pub(crate) wire: Arc<Wire>,
    pub(crate) generation: u64,
    /// For how long the server grants nothing. It is known of calls that read or queue.
    pub(crate) closed_for: Option<Duration>,
}
