//! The verb that converts tables.

use std::time::Duration;

use clap::Args;

use super::{Server, time};

/// Convert the lock tables of PostgreSQL to another durability, which the address names.
///
/// The address says what the tables are to be: durability=disk, or durability=grace, with longest_ttl if it
/// is not 30s. Tokens go on rising. Nobody may hold a lock meanwhile. All programs that had connected before
/// fail afterwards until they connect again. The user must own the tables. On a terminal, lockwell asks
/// before.
///
/// Exit status: 0 when the tables are as the address says, 75 if locks were held until the end of --wait, or
/// transactions use the tables, 69 in a grace period, 64 where there is nothing to convert. See lockwell run
/// --help for errors.
#[derive(Args)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The longest time to wait until nobody holds a lock, as in 5s or 2m; a plain number means seconds
    /// [default: one try].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print JSON: schema_version, server, converted. It does not ask: add --yes.
    #[arg(long)]
    pub(crate) json: bool,
}
