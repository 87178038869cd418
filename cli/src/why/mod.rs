//! `lockwell why`: who waits for whom.

mod chains;
mod grants;
mod report;

use std::cmp::Reverse;

use lockwell::{LockName, LockStatus, Locks, Registry};

use crate::args::WhyArgs;
use crate::connect::{Address, Purpose};
use crate::exit::{DEADLOCK, Failure};
use crate::json;
use crate::patience::Patience;
use crate::say::Voice;

use self::chains::{Chains, Cycle, Known};
use self::grants::Watch;
use self::report::WhyReport;

pub(crate) async fn why(registry: &Registry, args: &WhyArgs) -> Result<u8, Failure> {
    let connection = Address::of(&args.server)?
        .connect(registry, Purpose::Reading, &mut Patience::none(Voice::Usual))
        .await?;
    let locks = connection.locks()?;
    let mut seen = look(&locks, args.name.as_ref()).await?;
    let before = seen.clone();
    let before = Chains { statuses: &before }.cycles();
    if !before.is_empty() {
        look_again(&locks, &mut seen, &before).await?;
    }
    let chains = Chains { statuses: &seen };
    let mut cycles = chains.cycles();
    cycles.retain(|cycle| before.iter().any(|one| one.lasts(cycle)));
    let (shown, of_rest) = match &args.name {
        // The lock that was asked about is the first.
        Some(_) => seen.split_at(seen.len().min(1)),
        None => (&seen[..], &[][..]),
    };
    if !of_rest.is_empty() {
        cycles.retain(|cycle| chains.leads(&shown[0], cycle));
    }
    let is_stuck = cycles.iter().any(|cycle| cycle.known == Known::Surely);
    let mut goes_on = true;
    if !args.json {
        goes_on = json::print(&report::words(chains, shown, &cycles))?;
    }
    let mut watch = Watch::new(shown);
    if let Some(span) = args.span.filter(|_| goes_on) {
        watch.over(&locks, span, !args.json).await?;
    }
    if args.json {
        json::print(&json::pretty(&WhyReport::new(
            chains,
            shown,
            &cycles,
            args.span.map(|_| watch.grants()),
        ))?)?;
    }
    Ok(if is_stuck { DEADLOCK } else { 0 })
}

/// The lock, and the others that are held if its holder may wait for one of them; or all that are held, those with
/// waiters first.
async fn look(locks: &Locks, name: Option<&LockName>) -> Result<Vec<LockStatus>, Failure> {
    let Some(name) = name else {
        let mut held = locks.held().await?;
        held.sort_by_key(|status| Reverse(status.waiters));
        return Ok(held);
    };
    let mut seen = vec![locks.inspect(name).await?];
    if seen[0].holders.iter().any(|holder| holder.traceparent.is_some()) {
        match locks.held().await {
            Ok(others) => seen.extend(others.into_iter().filter(|status| status.name != *name)),
            Err(error) => Voice::Usual.warn(&format!("what its holder waits for is not known: {error:#}")),
        }
    }
    Ok(seen)
}

/// Looks at all locks of the cycles once more: the first look saw one lock after the other.
async fn look_again(locks: &Locks, seen: &mut [LockStatus], cycles: &[Cycle<'_>]) -> Result<(), Failure> {
    let in_cycles =
        |name: &LockName| cycles.iter().flat_map(|cycle| &cycle.steps).any(|step| step.holds == name);
    for status in seen.iter_mut().filter(|status| in_cycles(&status.name)) {
        *status = locks.inspect(&status.name).await?;
    }
    Ok(())
}
