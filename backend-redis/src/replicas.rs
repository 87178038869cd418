//! Waiting for replicas.

use std::sync::Arc;
use std::time::Duration;

use lockcore::{Error, ErrorKind, Moment, Result};
use redis::Value;

use crate::error::{fatal, no_answer};
use crate::wire::Wire;

/// Waits until `wanted` replicas have acknowledged what was written on the wire's connection.
///
/// A shortfall is an unknown outcome, not a refusal: the lock stands at the master, and may or may not survive a
/// failover. The caller gives it up. The server answers other calls of this connection only afterwards.
pub(crate) async fn confirm(wire: &Arc<Wire>, wanted: u32, limit: Duration) -> Result<()> {
    let end = Moment::now().after(limit * 2);
    let (mut link, generation) = match tokio::time::timeout(end.remaining(), wire.link()).await {
        Ok(link) => link.map_err(|error| fatal(&error, None))?,
        Err(_) => return Err(no_answer(None)),
    };
    let mut command = redis::cmd("WAIT");
    command.arg(wanted).arg(limit.as_millis().max(1).to_string());
    let Ok(answer) = tokio::time::timeout(end.remaining(), link.query(&command)).await else {
        wire.hang_up(generation);
        return Err(no_answer(None));
    };
    match answer.map_err(|error| fatal(&error, None))? {
        Value::Int(have) if have >= i64::from(wanted) => Ok(()),
        Value::Int(have) => Err(Error::new(
            ErrorKind::UnknownOutcome,
            format!("{have} of {wanted} replicas have confirmed the lock: a failover could lose it"),
        )),
        _ => Err(crate::lane::unexpected()),
    }
}
