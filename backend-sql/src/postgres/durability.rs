//! What a client needs for the mark of the server, and whether its grants wait for the disk (see `grace.rs`).

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockwell_core::backend::{GraceGauge, GraceOptions, MarkWatch};
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};

use super::session::Found;

/// The longest lease of lazy grants, if an address makes them so, on tables that were found or are made now.
/// `None`: grants wait for the disk.
pub(super) fn lazy(url: &ServerUrl, found: Found) -> Result<Option<Duration>> {
    let options = GraceOptions::read(url, "disk").map_err(|error| error.on_backend("postgres"))?;
    match (options.is_grace, found) {
        (None | Some(false), _) => Ok(None),
        (_, Found::Lazy(longest)) if options.longest.is_some_and(|wanted| wanted != longest) => {
            let longest = longest.as_millis();
            let text = format!(
                "other clients of the lock tables have longest_ttl={longest}ms: name the same one. Another one is possible when all \
                 clients with durability=grace have ended: docs/sql.md has the statement"
            );
            Err(Error::new(ErrorKind::Misconfigured, text))
        }
        (_, Found::Lazy(longest)) => Ok(Some(longest)),
        (_, Found::None | Found::Durable) => Ok(Some(options.longest())),
    }
}

/// What a client knows of the mark.
pub(super) struct Grace {
    /// The longest lease, if the grants of this client are lazy.
    pub(super) lazy: Option<Duration>,
    pub(super) watch: MarkWatch,
    pub(super) gauge: GraceGauge,
    /// Whether the tables have said that there may be lazy grants.
    pub(super) is_lazy: AtomicBool,
}

impl Grace {
    pub(super) fn new(lazy: Option<Duration>) -> Self {
        Self {
            lazy,
            watch: MarkWatch::default(),
            gauge: GraceGauge::new("postgres"),
            is_lazy: AtomicBool::new(false),
        }
    }
}
