//! The statements of the three files beside this one, with the names of the tables in them.

use super::named::NamedSql;
use crate::sql::library::statements;
use crate::sql::table::{HeldSql, Sql, Table};
use crate::words::SEVERAL;

const FILES: [&str; 3] =
    [include_str!("statements.sql"), include_str!("groups.sql"), include_str!("tables.sql")];

/// Stands for a head of a queue for which nothing is left to do: it waits in another process and was
/// notified, or has to wait.
pub(super) const ELSEWHERE: i64 = -2;
/// Stands for a head that the statement may not have seen.
pub(super) const UNSEEN: i64 = -3;

/// Puts in what the code knows as well.
fn fill(name: &str, text: &str) -> String {
    let client = if matches!(name, "leave_group" | "leave_group_one") { "$3" } else { "$2" };
    text.replace("{client}", client)
        .replace("{several}", &SEVERAL.to_string())
        .replace("{elsewhere}", &ELSEWHERE.to_string())
        .replace("{unseen}", &UNSEEN.to_string())
}

statements! {
    each Sql:
    take take_new take_many take_placed claim enter poll_waiters release send_notes leave notify_heads turns notify_client
    holders count_waiters names about force force_members portion purge purge_waiters dead_client forget_places forget_client
    join_one join make leave_group_one leave_group reap stale_groups downgrade member due_waiters
    locks members waiters clients check_locks check_members check_waiters check_clients forgets;
    hand_over: NamedSql, hand_on: NamedSql, hand_over_many: NamedSql, renew: HeldSql, verify: HeldSql
}

impl Statements {
    /// What makes the tables.
    pub(super) fn tables(&self) -> [&Sql; 4] {
        [&self.locks, &self.members, &self.waiters, &self.clients]
    }

    /// The same as a script for a person.
    pub(super) fn ddl(&self) -> String {
        Sql::script(self.tables())
    }

    /// What fails where a table or a column is missing.
    pub(super) fn checks(&self) -> [&Sql; 4] {
        [&self.check_locks, &self.check_members, &self.check_waiters, &self.check_clients]
    }
}

/// The statements that create the tables.
pub(crate) fn ddl(table: &Table) -> String {
    let table = match table.schema() {
        Some(schema) => table.in_schema(&schema),
        None => table.clone(),
    };
    Statements::new(&table).ddl()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_known_and_used() {
        crate::sql::library::Library::new(&FILES).check(fill);
    }
}
