//! `lockwell schema`: what an administrator runs once.

use lockwell::Registry;

use crate::args::SchemaArgs;
use crate::connect::Address;
use crate::exit::Failure;
use crate::json::{self, SCHEMA_VERSION, TablesReport};

pub(crate) fn schema(registry: &Registry, args: &SchemaArgs) -> Result<u8, Failure> {
    let url = Address::of(&args.server)?.url;
    let Some(statements) = registry.schema(&url)? else {
        return Err(Failure::usage(format!("{}:// needs no schema", url.scheme())));
    };
    json::print(&if args.json {
        let server = url.to_string();
        json::pretty(&TablesReport { schema_version: SCHEMA_VERSION, server, statements: &statements })?
    } else {
        statements
    })?;
    Ok(0)
}
