//! `lockwell grace`: begins a grace period by hand, or ends one.

use std::time::Duration;

use lockwell::Registry;

use crate::args::GraceArgs;
use crate::asking::{agrees, can_ask};
use crate::connect::{Address, Purpose};
use crate::exit::{Failure, NOT_OBTAINED};
use crate::json::{self, GraceReport};
use crate::patience::Patience;
use crate::say::{Voice, rounded};

pub(crate) async fn grace(registry: &Registry, args: &GraceArgs) -> Result<u8, Failure> {
    can_ask("lockwell grace", args.yes, args.json)?;
    let address = Address::of(&args.server)?;
    let server = address.url.to_string();
    let locks =
        address.connect(registry, Purpose::Looking, &mut Patience::none(Voice::Usual)).await?.locks()?;
    let question = if args.open {
        format!(
            "If somebody holds a lock that {server} has forgotten, another can get it. Grant locks at once?"
        )
    } else {
        format!("Nobody will get a lock at {server} until the longest lease has ended. Begin a grace period?")
    };
    if !args.yes && !agrees(&question)? {
        return Err(Failure::silent(NOT_OBTAINED));
    }
    let lasts = if args.open {
        locks.end_grace().await?;
        Duration::ZERO
    } else {
        locks.begin_grace().await?
    };
    json::print(&if args.json {
        json::pretty(&GraceReport::new(server, lasts))?
    } else if args.open {
        format!("{server} grants locks\n")
    } else {
        format!("{server} grants no lock for {}; holders keep theirs\n", rounded(lasts))
    })?;
    Ok(0)
}
