//! What the raw statements of all servers have in common.

use std::fmt::Debug;
use std::time::Duration;

use lockwell::backend::{ServerUrl, async_trait};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::stats::Sample;

/// The table of the raw statements: columns and types as in the backend's own table.
pub(super) const TABLE: &str = "lockwell_compare_floor";

/// The table, or the node, of a recipe that is there for contrast. Its processes share it, so it is removed
/// here, too.
pub(crate) const CONTRAST: &str = "lockwell_compare_contrast";

/// The lease that the raw statements write, in microseconds.
pub(super) const TTL: i64 = 10_000_000;

/// What a server says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// Raw statements on one bare connection.
#[async_trait]
pub(super) trait Raw: Debug + Send + Sync {
    /// What a cycle does, for those who read the results.
    fn what(&self) -> &'static str;

    /// How many cycles [`cycle`](Self::cycle) does.
    fn batch(&self) -> u32 {
        1
    }

    /// A cycle on the name with this number.
    async fn cycle(&mut self, name: usize) -> Result<()>;

    /// Whether cycles on several names share the connection.
    fn shares(&self) -> bool {
        false
    }

    /// As many tasks as there are names, all of them on the same connection, where they share it.
    async fn crowd(&self, _length: Duration, _names: usize) -> Result<Sample> {
        Ok(Sample::new())
    }

    async fn server(&mut self) -> Result<Server>;

    /// Removes what was made, and closes the connection.
    async fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// The row's key. Made before the clock starts would be fairer by 50 ns; the statement costs a thousand times
/// that.
pub(super) fn key(name: usize) -> String {
    format!("compare/floor/{name}")
}

/// A new owner for each cycle, as the lock has.
#[derive(Debug, Default)]
pub(super) struct Owners(u128);

impl Owners {
    pub(super) fn next(&mut self) -> Uuid {
        // An odd factor scatters the bits, as random ones are.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        Uuid::from_u128(self.0)
    }
}

/// The address without the options that are lockwell's own, for a bare connection: host, port, user,
/// password, database.
pub(super) struct Address<'a> {
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) user: Option<&'a str>,
    pub(super) password: Option<&'a str>,
    pub(super) database: &'a str,
}

impl<'a> Address<'a> {
    pub(super) fn of(url: &'a ServerUrl) -> Result<Self> {
        let hosts = url.hosts()?;
        let first = hosts.first().ok_or_else(|| Error::failed("the address names no host"))?;
        Ok(Self {
            host: first.name().to_owned(),
            port: first.port(),
            user: url.user(),
            password: url.password().map(lockwell::backend::Secret::expose),
            database: url.path().trim_start_matches('/'),
        })
    }
}

/// A refused claim: the floor's names are nobody else's, so the statements are wrong.
pub(super) fn refused() -> Error {
    Error::failed("the raw statement did not get its row")
}
