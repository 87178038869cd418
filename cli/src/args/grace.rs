//! The verb that begins a grace period.

use clap::Args;

use super::Server;

/// Begin a grace period: the server grants no lock until each lease has ended that it may have forgotten.
///
/// For a server that lacks grants and cannot notice that by itself, as after a move by logical replication.
/// Holders keep their locks. PostgreSQL and Redis have grace periods with durability=grace in the address; on
/// other servers it is refused. A period that is under way begins again. On a terminal, lockwell asks before.
///
/// Exit status: 0 when it has begun, 64 where there are no grace periods. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct GraceArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print JSON: schema_version, server, grace_ms. It does not ask: add --yes.
    #[arg(long)]
    pub(crate) json: bool,
}
