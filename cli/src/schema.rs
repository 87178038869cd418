//! `lockwell schema`: what an administrator runs once.

use crate::args::SchemaArgs;
use crate::connect::Address;
use crate::exit::Failure;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use crate::json::{self, SCHEMA_VERSION, TablesReport};

pub(crate) fn schema(args: &SchemaArgs) -> Result<u8, Failure> {
    let address = Address::of(&args.server)?;
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    if let Some(statements) = lockwell::sql::schema(&address.url)? {
        json::print(&if args.json {
            let server = address.url.to_string();
            json::pretty(&TablesReport { schema_version: SCHEMA_VERSION, server, statements: &statements })?
        } else {
            statements
        })?;
        return Ok(0);
    }
    let scheme = address.url.scheme();
    Err(Failure::usage(format!("{scheme}:// needs no schema, or its feature is not compiled in")))
}
