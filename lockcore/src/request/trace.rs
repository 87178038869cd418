//! The traceparent of a request.

use std::fmt;
use std::sync::Arc;

use crate::{Result, TraceParent};

/// Yields the traceparent of what runs now, if there is one.
type Current = dyn Fn() -> Option<String> + Send + Sync;

/// Where a request has its traceparent from.
#[derive(Clone, Default)]
pub(crate) enum Trace {
    #[default]
    None,
    /// The request says it.
    Said(Arc<str>),
    /// The client finds it when the claim is made.
    Found(Arc<Current>),
}

impl Trace {
    /// Refuses what the request says, unless it is a traceparent.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Said(text) => text.parse::<TraceParent>().map(drop),
            Self::None | Self::Found(_) => Ok(()),
        }
    }

    /// The traceparent. What is found and is none is left out: a claim does not fail for that.
    pub(crate) fn get(&self) -> Option<TraceParent> {
        match self {
            Self::None => None,
            Self::Said(text) => text.parse().ok(),
            Self::Found(current) => current()?.parse().ok(),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Said(text) => f.write_str(text),
            Self::Found(_) => f.write_str("Found"),
        }
    }
}
