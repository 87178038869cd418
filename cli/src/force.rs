//! `lockwell release`: by its handle, or by force.

use std::io::{self, BufRead as _};

use lockwell::backend::Released;
use lockwell::{Holder, LockName, Operation, Registry};

use crate::args::ReleaseArgs;
use crate::asking::{agrees, can_ask};
use crate::connect::{Address, Purpose};
use crate::exit::{self, Failure};
use crate::handle;
use crate::json::{self, ReleasedReport};
use crate::obtain::sentence;
use crate::patience::Patience;
use crate::say::Voice;

pub(crate) async fn release(registry: &Registry, args: &ReleaseArgs) -> Result<u8, Failure> {
    if args.force {
        return by_force(registry, args).await;
    }
    let (claim, token) = if args.what == "-" {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        handle::read(&line)?
    } else {
        handle::read(&args.what)?
    };
    let address = Address::of(&args.server)?;
    let connection = address.connect(registry, Purpose::Looking, &mut Patience::none(Voice::Usual)).await?;
    let backend = connection.backend.capabilities().backend();
    // Some servers free a lease that has ended and that nobody else has got, and call that released. Whether
    // it was held is asked before, so 76 means the same on every server. The release is sent whatever the
    // answer is.
    let status = connection.backend.inspect(claim.name()).await;
    let had_ended = status.is_ok_and(|status| !status.holders.iter().any(|holder| holder.token == token));
    let released = connection
        .backend
        .release(&claim)
        .await
        .map_err(|error| error.during(Operation::Release).for_lock(claim.name()).on_backend(backend))?;
    let was_held = released != Released::NotHeld && !had_ended;
    report(args, &ReleasedReport::by_handle(claim.name(), was_held))?;
    if !was_held {
        let name = claim.name();
        let text =
            format!("the lock {name:?} was not held any more: its lease had ended, or it had been released");
        return Err(Failure::new(exit::LOST, text));
    }
    Ok(0)
}

async fn by_force(registry: &Registry, args: &ReleaseArgs) -> Result<u8, Failure> {
    let name: LockName = args.what.parse()?;
    can_ask("--force", args.yes, args.json)?;
    let address = Address::of(&args.server)?;
    let locks =
        address.connect(registry, Purpose::Looking, &mut Patience::none(Voice::Usual)).await?.locks()?;
    let status = locks.inspect(&name).await?;
    let Some(who) = sentence(&status) else {
        report(args, &ReleasedReport::by_force(&status))?;
        return Err(Failure::new(exit::LOST, format!("the lock {name:?} is not held")));
    };
    if !args.yes {
        if !agrees(&format!("{who}. It may be at work. Free the lock all the same?"))? {
            return Err(Failure::silent(exit::NOT_OBTAINED));
        }
        // The answer is about those that were shown. Meanwhile another may have got the lock.
        let now = locks.inspect(&name).await?;
        let is_shown = |one: &Holder| status.holders.iter().any(|shown| shown.token == one.token);
        if !now.holders.iter().all(is_shown) {
            let who = sentence(&now).unwrap_or_default();
            let text = format!("nothing was freed, since the holders have changed: {who}");
            return Err(Failure::new(exit::NOT_OBTAINED, text));
        }
    }
    locks.force_release(&name).await?;
    report(args, &ReleasedReport::by_force(&status))?;
    Voice::Usual.warn(&if status.is_held() {
        format!(
            "freed by force; until now {who}: if that still runs, it goes on until its next renewal, and a lock of \
             lockwell acquire until its release"
        )
    } else {
        format!("{who}; whoever holds it loses it with the next renewal")
    });
    Ok(0)
}

fn report(args: &ReleaseArgs, report: &ReleasedReport) -> Result<(), Failure> {
    if args.json {
        json::print(&json::pretty(report)?)?;
    }
    Ok(())
}
