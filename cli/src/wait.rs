//! `lockwell wait`: until a lock is free.

use std::time::Duration;

use lockwell::{LockStatus, Registry};
use tokio::time::{Instant, sleep};

use crate::args::WaitArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{Failure, NOT_OBTAINED};
use crate::json::{self, WaitedReport};
use crate::obtain::sentence;
use crate::patience::{Patience, may_pass};
use crate::say::{Voice, rounded};

/// How often to check, at first and later on.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(1);

pub(crate) async fn wait(registry: &Registry, args: &WaitArgs) -> Result<u8, Failure> {
    let address = Address::of(&args.server)?;
    let began = Instant::now();
    let mut patience = Patience::new(args.limit, Voice::Usual);
    let locks = address.connect(registry, Purpose::Reading, &mut patience).await?.locks()?;
    let end = args.limit.and_then(|limit| began.checked_add(limit));
    let mut pause = SOON;
    loop {
        let status = match locks.inspect(&args.name).await {
            Ok(status) => status,
            Err(error) if may_pass(&error) => {
                patience.again(error.into()).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(who) = sentence(&status) else {
            report(args, &status, began)?;
            return Ok(0);
        };
        // The last check is at the end, not before.
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            report(args, &status, began)?;
            let limit = rounded(args.limit.unwrap_or_default());
            return Err(Failure::new(NOT_OBTAINED, format!("{who}; still so after {limit}")));
        }
        // A holder that died frees the lock with the end of its lease.
        let lease = status.holders.iter().map(|holder| holder.ttl_left).min().unwrap_or(LATER).max(SOON);
        sleep(pause.min(lease).min(left.unwrap_or(LATER))).await;
        pause = (pause * 2).min(LATER);
    }
}

fn report(args: &WaitArgs, status: &LockStatus, began: Instant) -> Result<(), Failure> {
    if args.json {
        json::print(&json::pretty(&WaitedReport::new(status, began.elapsed()))?)?;
    }
    Ok(())
}
