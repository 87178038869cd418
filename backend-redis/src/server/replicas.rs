//! Waiting for replicas.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{Claim, Error, ErrorKind, Grant, Result};
use redis::Value;

use crate::server::client::Answered;
use crate::server::client::Client;
use crate::wire::Wire;
use crate::words::answers::{ClaimAnswer, Tokens};
use crate::words::error::unexpected;
use crate::words::error::{ErrorClass, classify, fatal};

/// How often a claim is repeated whose connection is replaced again and again before replicas have confirmed
/// the grant.
const CONFIRMATIONS: u32 = 5;

/// Whether replicas have confirmed a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmed {
    Yes,
    /// The connection of the write was replaced before they answered.
    Replaced,
}

/// Waits until `wanted` replicas have acknowledged what was written on the wire's connection of this number.
///
/// `WAIT` is about the writes of its own connection, and so it goes over the very connection of the write, to
/// that server only. On another one, which has written nothing, it would promise nothing. If that connection
/// was replaced, the caller has to write again on the new one, and to wait there: it calls the idempotent
/// script again. If the lock still stands, the script writes (it extends the lease), and so whatever the
/// server is by now, it has the lock, and its replicas have the lock when they have that write, which comes
/// later in the order of the server's writes. If the lock is gone, the script says so.
///
/// A shortfall is an unknown outcome, not a refusal: the lock stands at the master, and may or may not
/// survive a failover. The caller releases it. The server answers other calls of this connection only
/// afterwards.
async fn confirm(wire: &Arc<Wire>, generation: u64, wanted: u32, limit: Duration) -> Result<Confirmed> {
    let unknown = |text: &str| Error::new(ErrorKind::UnknownOutcome, text);
    let Some((mut link, present)) = wire.ready() else { return Ok(Confirmed::Replaced) };
    if present != generation {
        return Ok(Confirmed::Replaced);
    }
    let mut command = redis::cmd("WAIT");
    command.arg(wanted).arg(limit.as_millis().max(1).to_string());
    let answer = match tokio::time::timeout(limit * 2, link.query(&command)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if classify(&error, true) == ErrorClass::Fatal => return Err(fatal(&error, None)),
        Ok(Err(_)) => {
            wire.hang_up(generation);
            return Ok(Confirmed::Replaced);
        }
        Err(_) => {
            wire.hang_up(generation);
            return Err(unknown(LOST));
        }
    };
    match answer {
        Value::Int(have) if have >= i64::from(wanted) => Ok(Confirmed::Yes),
        Value::Int(have) => Err(unknown(&format!(
            "{have} of {wanted} replicas have confirmed the lock: a failover could lose it"
        ))),
        _ => Err(unexpected()),
    }
}

impl Client {
    /// `None`: the lock is another's by now.
    pub(crate) async fn granted(
        &self,
        claim: &Claim,
        tokens: Tokens,
        call: Answered,
    ) -> Result<Option<Grant>> {
        match self.common.settings.wait_replicas {
            0 => Ok(Some(self.grant(claim, tokens, &call))),
            _ => Box::pin(self.confirmed(claim, tokens, call)).await,
        }
    }

    fn grant(&self, claim: &Claim, tokens: Tokens, call: &Answered) -> Grant {
        tokens.grant(claim, self.counts_from(claim, (&call.wire, call.generation), call.sent))
    }

    /// Waits until a grant is confirmed. If its connection has been replaced since, the claim is repeated
    /// (see [`confirm`]).
    async fn confirmed(
        &self,
        claim: &Claim,
        mut tokens: Tokens,
        mut call: Answered,
    ) -> Result<Option<Grant>> {
        for _ in 0..CONFIRMATIONS {
            match self.confirm(&call.wire, call.generation, time_to_confirm(claim)).await? {
                Confirmed::Yes => return Ok(Some(self.grant(claim, tokens, &call))),
                Confirmed::Replaced if claim.is_cancelled() => break,
                Confirmed::Replaced => (),
            }
            match self.claim(claim, None).await? {
                (ClaimAnswer::Granted(again), answered) => (tokens, call) = (again, answered),
                (ClaimAnswer::Busy(_), _) => return Ok(None),
            }
        }
        Err(lost())
    }

    /// Waits until enough replicas have what was written on this connection.
    async fn confirm(&self, wire: &Arc<Wire>, generation: u64, limit: Duration) -> Result<Confirmed> {
        match self.common.settings.wait_replicas {
            0 => Ok(Confirmed::Yes),
            replicas => confirm(wire, generation, replicas, limit).await,
        }
    }

    /// Waits until enough replicas have what was written, without repeating the claim.
    pub(crate) async fn confirm_once(
        &self,
        wire: &Arc<Wire>,
        generation: u64,
        limit: Duration,
    ) -> Result<()> {
        match self.confirm(wire, generation, limit).await? {
            Confirmed::Yes => Ok(()),
            Confirmed::Replaced => Err(lost()),
        }
    }
}

/// How long replicas may take. Other calls of the connection wait meanwhile.
pub(crate) fn time_to_confirm(claim: &Claim) -> Duration {
    (claim.ttl() / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
}

/// The error of a write whose connection was replaced, if it is not repeated.
fn lost() -> Error {
    Error::new(ErrorKind::UnknownOutcome, LOST)
}

const LOST: &str = "the connection failed while replicas were to confirm the lock";
