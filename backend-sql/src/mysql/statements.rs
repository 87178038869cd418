//! The statements of the four files beside this one, with the names of the tables in them.

use super::call::Statement;
use crate::dialect::error::misconfigured;
use crate::dialect::verify::routine;
use crate::sql::library::statements;
use crate::sql::table::{HeldSql, Sql, Table};
use crate::words::SEVERAL;

pub(super) const FILES: [&str; 4] = [
    include_str!("statements.sql"),
    include_str!("hand_over.sql"),
    include_str!("groups.sql"),
    include_str!("tables.sql"),
];

/// Puts in what the code knows as well.
fn fill(_: &str, text: &str) -> String {
    text.replace("{several}", &SEVERAL.to_string())
}

statements! {
    each Statement:
    take_free take_overdue take_new take_many take_new_many lock_state enter enter_marked enter_one take_with_place poll_waiters release hand_over
    hand_over_and_wake pass_on owned release_many leave forget_all next turns park park_for_grants holders first_waiters names about held force alive
    write_record read_record recorded purge_records force_members portion purge purge_waiters dead_client forget_places places_of forget_stale forget_client
    join join_overdue may_join_one make leave_group reap stale_groups downgrade due_waiters;
    renew: HeldSql<Statement>, renew_some: HeldSql<Statement>, verify: HeldSql,
    read_record_under: HeldSql<Statement>,
    begin: Sql, commit: Sql, locks: Sql, members: Sql, waiters: Sql, clients: Sql, records: Sql, check: Sql, log_format: Sql
}

impl Statements {
    /// What makes the tables.
    pub(super) fn tables(&self) -> [&Sql; 5] {
        [&self.locks, &self.members, &self.waiters, &self.clients, &self.records]
    }
}

/// The statements that create the tables.
pub(crate) fn ddl(table: &Table) -> String {
    Sql::script(Statements::new(&table.clone().quoted("`"), &FILES).tables())
}

/// The statements that create the procedure `TABLE_verify`.
pub(crate) fn verify_routine(table: &Table) -> String {
    let table = table.clone().quoted("`");
    routine(&table, include_str!("verify.sql"), &Statements::new(&table, &FILES).verify)
}

pub(super) const STATEMENTS: &str = "the server writes statements into its binary log (binlog_format is STATEMENT), and refuses every \
                          write at the isolation level that locks need";
pub(super) const ROWS: &str = "set binlog_format to ROW or MIXED";

/// Fails where every write would fail.
pub(super) fn refuse_statements(format: &str) -> sqlx_core::Result<()> {
    if format == "STATEMENT" {
        return Err(misconfigured(format!("{STATEMENTS}: {ROWS}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_known_and_used() {
        crate::sql::library::Library::new(&FILES).check(fill);
    }
}
