//! Whether the tables of an address are such that grants wait for no disk (see `grace.rs`), and what a client
//! needs for them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockwell_core::backend::{GraceGauge, GraceOptions, MarkWatch};
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};

use super::session::Found;
use super::statements::{GRACE, fill};
use crate::sql::library::statements;
use crate::sql::table::{Sql, Table};
use crate::words::micros;

statements! {
    each Sql:
    look_at_mark floor_ahead make_mark raise_count open_mark raise_bound copy_bound reclaim force_unknown grace_tables
    lacks_rights check_state check_mark;
}

/// What the address says about the tables: `None` as they are, or for new tables the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durability(pub(super) GraceOptions);

impl Durability {
    pub(super) fn read(url: &ServerUrl) -> Result<Self> {
        GraceOptions::read(url, "disk").map(Self).map_err(|error| error.on_backend("postgres"))
    }

    /// The longest lease that grants without a disk may have, on tables that were found or are made now.
    /// `None`: grants wait for the disk. The tables decide, since all clients must do the same; an address
    /// that says something else is an error.
    pub(super) fn of(self, found: Found) -> Result<Option<Duration>> {
        let mismatch = |what: &str| {
            let text = format!(
                "the lock tables were made with {what}: convert them while nobody holds a lock (`lockwell convert`), and let all \
                 clients connect again, or name others by the option `table`"
            );
            Err(Error::new(ErrorKind::Misconfigured, text))
        };
        match (self.0.is_grace, found) {
            (Some(true), Found::None) => Ok(Some(self.0.longest())),
            (_, Found::None) | (None | Some(false), Found::Disk) => Ok(None),
            (Some(true), Found::Disk) => mismatch("durability=disk"),
            (Some(false), Found::Grace(_)) => mismatch("durability=grace"),
            (_, Found::Grace(longest)) if self.0.longest.is_some_and(|wanted| wanted != longest) => {
                mismatch(&format!("longest_ttl={}ms", longest.as_millis()))
            }
            (_, Found::Grace(longest)) => Ok(Some(longest)),
        }
    }
}

/// What a client needs for such tables.
pub(super) struct Grace {
    pub(super) sql: Statements,
    pub(super) longest: Duration,
    pub(super) watch: MarkWatch,
    pub(super) gauge: GraceGauge,
    /// Whether the tables are there, so that a new connection can look at the mark.
    pub(super) is_known: AtomicBool,
}

impl Grace {
    pub(super) fn new(table: &Table, longest: Duration) -> Self {
        Self {
            sql: Statements::new(table, &GRACE),
            longest,
            watch: MarkWatch::new(longest),
            gauge: GraceGauge::new("postgres"),
            is_known: AtomicBool::new(false),
        }
    }

    /// What makes the tables of locks and members with these, if there are none.
    pub(super) fn ddl(&self) -> String {
        format!("SET LOCAL lockwell.longest_ttl = {}; {}", micros(self.longest), self.sql.grace_tables.text())
    }

    /// The same for a person.
    pub(super) fn script(&self) -> String {
        let (longest, tables) = (micros(self.longest), &self.sql.grace_tables);
        format!("SET lockwell.longest_ttl = {longest};\n{}", Sql::script([tables]))
    }
}
