//! The verb that begins a grace period, or ends one.

use clap::Args;

use super::Server;

/// Begin a grace period: the server grants no lock until each lease has ended that it may have forgotten.
///
/// For a server that lacks grants and cannot notice that by itself, as after a move by logical replication.
/// Holders keep their locks. PostgreSQL and Redis have grace periods with durability=grace in the address; on
/// other servers it is refused. A period that is under way begins again. On a terminal, lockwell asks before.
///
/// With --open, the contrary: the server is new, so that it has forgotten nothing, and grants locks from now on.
/// A Redis server, group or cluster without a mark grants nothing at first, since it may have lost everything.
///
/// Exit status: 0 when it has begun, 64 where there are no grace periods. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct GraceArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// End a grace period: nobody holds a lock that the server does not know. Redis.
    #[arg(long)]
    pub(crate) open: bool,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print JSON: schema_version, server, grace_ms. It does not ask: add --yes.
    #[arg(long)]
    pub(crate) json: bool,
}
