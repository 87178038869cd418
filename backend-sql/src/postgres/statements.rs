//! The statements of the files beside this one, with the names of the tables in them.

use super::named::NamedSql;
use crate::sql::library::statements;
use crate::sql::table::{HeldSql, Sql, filled};
use crate::words::SEVERAL;

/// For a client whose grants wait for the disk.
pub(super) const DISK: [&str; 5] = [STATEMENTS, GROUPS, TABLES, MARK, include_str!("disk.sql")];
/// For one whose grants do not.
pub(super) const LAZY: [&str; 5] = [STATEMENTS, GROUPS, TABLES, MARK, include_str!("lazy.sql")];

const STATEMENTS: &str = include_str!("statements.sql");
const GROUPS: &str = include_str!("groups.sql");
const TABLES: &str = include_str!("tables.sql");
const MARK: &str = include_str!("mark.sql");

/// Stands for a head of a queue for which nothing is left to do: it waits in another process and was
/// notified, or has to wait.
pub(super) const ELSEWHERE: i64 = -2;
/// Stands for a head that the statement may not have seen.
pub(super) const UNSEEN: i64 = -3;

/// Puts in what the code knows as well.
pub(super) fn fill(name: &str, text: &str) -> String {
    let client = if matches!(name, "leave_group" | "leave_group_one") { "$3" } else { "$2" };
    // The longest lease of a statement that grants. That of a hand-over is short.
    let lease = match name {
        "take" | "take_new" | "claim" | "join_one" => "$3",
        "take_many" | "take_placed" | "join" | "renew" | "reclaim" => {
            "(SELECT max(ttl) FROM unnest($3::bigint[]) AS ttl)"
        }
        _ => "0",
    };
    filled(text, |name| match name {
        "client" => Some(client.to_owned()),
        "lease" => Some(lease.to_owned()),
        "several" => Some(SEVERAL.to_string()),
        "elsewhere" => Some(ELSEWHERE.to_string()),
        "unseen" => Some(UNSEEN.to_string()),
        _ => None,
    })
}

statements! {
    each Sql:
    take stand take_new take_many take_placed claim enter_marked look enter poll_waiters release leave notify_heads turns notify_client
    holders first_waiters names about force force_members portion purge purge_waiters dead_client forget_places places_of forget_stale forget_client
    join_one join make leave_group_one leave_group reap stale_groups downgrade member due_waiters
    write_record read_record recorded purge_records
    first_tables first_state waiters clients records check_locks check_members check_waiters check_clients check_state check_mark forgets
    look_at_state look_at_mark floor_ahead begin_lazy make_mark raise_count open_mark raise_bound copy_bound reclaim force_unknown lacks_rights;
    hand_first: NamedSql, hand_over: NamedSql, hand_on: NamedSql, hand_over_many: NamedSql,
    send_notes: NamedSql, renew: HeldSql, verify: HeldSql, read_record_under: HeldSql
}

impl Statements {
    /// What makes the tables.
    pub(super) fn tables(&self) -> [&Sql; 4] {
        [&self.first_tables, &self.waiters, &self.clients, &self.records]
    }

    /// The same as a script for a person.
    pub(super) fn ddl(&self) -> String {
        Sql::script(self.tables())
    }

    /// What fails where a table or a column is missing.
    pub(super) fn checks(&self) -> [&Sql; 6] {
        let (locks, members, state) = (&self.check_locks, &self.check_members, &self.check_state);
        [locks, members, &self.check_waiters, &self.check_clients, state, &self.check_mark]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::library::Library;

    #[test]
    fn all_parts_are_known_and_used() {
        Library::new(&DISK).check(fill);
        Library::new(&LAZY).check(fill);
    }

    /// A transaction that notifies keeps a lock of the whole server until it has committed.
    #[test]
    fn what_notifies_waits_for_no_disk_and_no_replica() {
        let lazy = "set_config('synchronous_commit', 'off', true)";
        let durable = "set_config('synchronous_commit', 'on', true)";
        for files in [&DISK[..], &LAZY[..]] {
            let notifying: Vec<_> =
                Library::new(files).all().filter(|(_, text)| text.contains("pg_notify(")).collect();
            assert!(notifying.iter().any(|(name, _)| *name == "send_notes"));
            for (name, text) in notifying {
                assert!(text.contains(lazy) && !text.contains(durable), "{name}: {text}");
            }
        }
    }
}
