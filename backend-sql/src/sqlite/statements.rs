//! The statements of the three files beside this one, with the names of the tables in them.

use super::write::{Synced, Written};
use crate::dialect::SEVERAL;
use crate::library::statements;
use crate::table::{HeldSql, Sql};

const FILES: [&str; 3] =
    [include_str!("statements.sql"), include_str!("groups.sql"), include_str!("tables.sql")];

/// Puts in what the code knows as well.
fn fill(_: &str, text: &str) -> String {
    text.replace("{several}", &SEVERAL.to_string())
}

statements! {
    each Sql:
    lock_state next turns holders count_waiters count_clients names held force force_members portion
    join insert_member member delete_member reap shrink recount stale_groups downgrade downgraded due_waiters
    locks queue queue_index tickets members check_locks check_queue check_members;
    take: Synced, renew: HeldSql<Synced>, release: Written, enqueue: Written, keep_place: Written,
    forget_place: Written, leave: Written, purge: Written, forget_dead: Written, verify: HeldSql
}

impl Statements {
    /// What makes the tables.
    pub(super) fn tables(&self) -> [&Sql; 5] {
        [&self.locks, &self.queue, &self.queue_index, &self.tickets, &self.members]
    }

    /// What fails where a table or a column is missing.
    pub(super) fn checks(&self) -> [&Sql; 3] {
        [&self.check_locks, &self.check_queue, &self.check_members]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_known_and_used() {
        crate::library::Library::new(&FILES).check(fill);
    }
}
