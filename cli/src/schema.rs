//! `lockwell schema`: what an administrator runs once.

use lockwell::Registry;
use lockwell::backend::ServerUrl;

use crate::args::SchemaArgs;
use crate::connect::Address;
use crate::exit::Failure;
use crate::json::{self, SCHEMA_VERSION, TablesReport};

pub(crate) fn schema(registry: &Registry, args: &SchemaArgs) -> Result<u8, Failure> {
    let url = Address::of(&args.server)?.url;
    let (what, statements) = if args.verify {
        ("has no such routine", routine(&url)?)
    } else {
        ("needs no schema", registry.schema(&url)?)
    };
    let Some(statements) = statements else {
        return Err(Failure::usage(format!("{}:// {what}", url.scheme())));
    };
    json::print(&if args.json {
        let server = url.to_string();
        json::pretty(&TablesReport { schema_version: SCHEMA_VERSION, server, statements: &statements })?
    } else {
        statements
    })?;
    Ok(0)
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn routine(url: &ServerUrl) -> lockwell::Result<Option<String>> {
    lockwell::sql::verify_routine(url)
}

#[cfg(not(any(feature = "postgres", feature = "mysql")))]
#[expect(clippy::unnecessary_wraps, reason = "it is that of the other features")]
fn routine(_: &ServerUrl) -> lockwell::Result<Option<String>> {
    Ok(None)
}
