//! `lockwell convert`: gives existing tables another durability.

use std::time::Duration;

use lockwell::Registry;

use crate::args::ConvertArgs;
use crate::asking::{agrees, can_ask};
use crate::connect::Address;
use crate::exit::{Failure, NOT_OBTAINED};
use crate::json::{self, ConvertedReport, SCHEMA_VERSION};

pub(crate) async fn convert(registry: &Registry, args: &ConvertArgs) -> Result<u8, Failure> {
    can_ask("lockwell convert", args.yes, args.json)?;
    let url = Address::of(&args.server)?.url;
    let server = url.to_string();
    let question = format!(
        "All programs that use the tables at {server} have to connect again afterwards. Convert them?"
    );
    if !args.yes && !agrees(&question)? {
        return Err(Failure::silent(NOT_OBTAINED));
    }
    let converted = registry.convert(&url, args.wait.unwrap_or(Duration::ZERO)).await?;
    json::print(&if args.json {
        json::pretty(&ConvertedReport { schema_version: SCHEMA_VERSION, server, converted })?
    } else if converted {
        format!("the tables are converted to {server}; let all programs connect again\n")
    } else {
        format!("the tables are as {server} says; nothing was changed\n")
    })?;
    Ok(0)
}
