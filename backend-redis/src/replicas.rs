//! Waiting for replicas.

use std::sync::Arc;
use std::time::Duration;

use lockcore::{Error, ErrorKind, Result};
use redis::Value;

use crate::calls::unexpected;
use crate::error::{Verdict, fatal, verdict};
use crate::wire::Wire;

/// Waits until `wanted` replicas have acknowledged what was written on the wire's connection of this number.
///
/// A shortfall is an unknown outcome, not a refusal: the lock stands at the master, and may or may not survive a
/// failover. The caller gives it up. So is a connection that was replaced meanwhile: on another one, which has written
/// nothing, the server would have nothing to wait for. It answers other calls of this connection only afterwards.
pub(crate) async fn confirm(wire: &Arc<Wire>, generation: u64, wanted: u32, limit: Duration) -> Result<()> {
    let unknown = |text: &str| Error::new(ErrorKind::UnknownOutcome, text);
    let (mut link, present) = match tokio::time::timeout(limit, wire.link()).await {
        Ok(Ok(link)) => link,
        Ok(Err(error)) => return Err(unknown(LOST).with_source(error.to_string())),
        Err(_) => return Err(unknown(LOST)),
    };
    if present != generation {
        return Err(unknown(LOST));
    }
    let mut command = redis::cmd("WAIT");
    command.arg(wanted).arg(limit.as_millis().max(1).to_string());
    let answer = match tokio::time::timeout(limit * 2, link.query(&command)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if verdict(&error, true) == Verdict::Fatal => return Err(fatal(&error, None)),
        Ok(Err(error)) => {
            wire.hang_up(generation);
            return Err(unknown(LOST).with_source(error.to_string()));
        }
        Err(_) => {
            wire.hang_up(generation);
            return Err(unknown(LOST));
        }
    };
    match answer {
        Value::Int(have) if have >= i64::from(wanted) => Ok(()),
        Value::Int(have) => Err(unknown(&format!(
            "{have} of {wanted} replicas have confirmed the lock: a failover could lose it"
        ))),
        _ => Err(unexpected()),
    }
}

const LOST: &str = "the connection failed while replicas were to confirm the lock";
