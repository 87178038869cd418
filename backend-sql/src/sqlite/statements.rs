//! The statements of the four files beside this one, with the names of the tables in them.

use lockwell_core::{Error, ErrorKind, Result};

use super::write::{Granted, Synced, Written};
use crate::sql::library::statements;
use crate::sql::table::{HeldSql, Sql, Table, filled};
use crate::words::SEVERAL;

pub(super) const FILES: [&str; 4] = [
    include_str!("statements.sql"),
    include_str!("groups.sql"),
    include_str!("bounds.sql"),
    include_str!("tables.sql"),
];

/// What a claim asks for, in the order of the arguments of `take`.
const TAKING: [&str; 7] = ["name", "owner", "ttl", "tokens", "boot", "label", "ticket"];

/// Puts in what the code knows as well.
fn fill(name: &str, text: &str) -> String {
    let place = if name == "enqueue" { "(SELECT ticket FROM {queue} WHERE owner = ?2)" } else { "?6" };
    let text = filled(text, |name| match name {
        "several" => Some(SEVERAL.to_string()),
        "place" => Some(place.to_owned()),
        _ => None,
    });
    // A trigger has no arguments, but the columns of a row.
    let numbered = TAKING.iter().zip(1..).filter(|_| name == "take_each");
    numbered
        .fold(text, |text, (column, number)| text.replace(&format!("?{number}"), &format!("NEW.{column}")))
}

statements! {
    each Sql:
    lock_state next turns holders first_waiters count_clients names held portion
    member stale_groups due_waiters
    locks queue queue_index tickets members state check_locks check_queue check_members check_state
    records check_records read_record recorded longest_ttl closed_for taken taking take_each handed handing hand;
    raise: Synced, write_record: Synced, purge_records: Written,
    take: Granted, take_batch: Granted, renew: HeldSql<Granted>, join: Granted, downgrade: Granted, force: Granted,
    release_unwaited: Written, release_many: Written, hand_over: Written, leave_group: Written, reap: Written,
    enqueue: Written, keep_place: Written, forget_place: Written, leave: Written, purge: Written,
    forget_dead: Written,
    renewed: HeldSql, verify: HeldSql
}

impl Statements {
    /// What makes the tables.
    pub(super) fn tables(&self) -> [&Sql; 7] {
        [
            &self.locks,
            &self.queue,
            &self.queue_index,
            &self.tickets,
            &self.members,
            &self.state,
            &self.records,
        ]
    }

    /// What each connection makes for itself.
    pub(super) fn temporary(&self) -> [&Sql; 6] {
        [&self.taken, &self.taking, &self.take_each, &self.handed, &self.handing, &self.hand]
    }

    /// What fails where a table or a column is missing.
    pub(super) fn checks(&self) -> [&Sql; 4] {
        [&self.check_locks, &self.check_queue, &self.check_members, &self.check_state]
    }
}

pub(super) fn invalid(complaint: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, complaint).on_backend("sqlite")
}

/// The table without its schema, quoted, since its name may be a word of SQL. A temporary table would be
/// another one for each connection.
pub(super) fn plain_table(table: &Table) -> Result<Table> {
    let whole = table.to_string();
    let schema = whole.strip_suffix(table.base()).unwrap_or_default();
    if !schema.is_empty() && !schema.eq_ignore_ascii_case("main.") {
        return Err(invalid("table: an SQLite file has no schema but `main`"));
    }
    if table.base().to_ascii_lowercase().starts_with("sqlite_") {
        return Err(invalid("table: SQLite keeps names that begin with `sqlite_` for itself"));
    }
    Ok(Table::new(table.base())?.quoted("\""))
}

/// The statements that create the tables.
pub(crate) fn ddl(table: &Table) -> Result<String> {
    Ok(Sql::script(Statements::new(&plain_table(table)?, &FILES).tables()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_known_and_used() {
        crate::sql::library::Library::new(&FILES).check(fill);
    }

    /// All statements but those that list everything, and the few that look for what is old.
    #[tokio::test]
    async fn no_request_scans_a_table() {
        use sqlx_core::connection::Connection;
        use sqlx_core::row::Row;
        use sqlx_core::sql_str::AssertSqlSafe;
        use sqlx_sqlite::SqliteConnection;

        let library = crate::sql::library::Library::new(&FILES);
        let table = crate::sql::table::Table::new("locks").unwrap();
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let statements = Statements::new(&table, &FILES);
        for made in statements.tables().into_iter().chain(statements.temporary()) {
            sqlx_core::raw_sql::raw_sql(made.get()).execute(&mut conn).await.unwrap();
        }
        let names = "take take_each lock_state release_unwaited release_many hand next renew enqueue keep_place forget_place leave turns renewed holders \
                     first_waiters held force portion purge verify join member leave_group \
                     reap downgrade due_waiters raise closed_for write_record read_record";
        for name in names.split_whitespace() {
            for held in ["{locks}", "{members}"] {
                let text = fill(name, &library.text(name)).replace("{held}", held);
                // What a trigger does is not explained with the statement that fires it.
                let body = text.split_once("BEGIN\n").and_then(|(_, body)| body.strip_suffix(";\nEND"));
                let arguments =
                    ["place", "name", "owner", "ttl", "tokens", "boot", "label", "ticket", "token", "ends"];
                let text = body.map_or(text.clone(), |body| {
                    let number = |text: String, (at, name): (usize, &&str)| {
                        text.replace(&format!("NEW.{name}"), &format!("?{}", at + 1))
                    };
                    arguments.iter().enumerate().fold(body.to_owned(), number)
                });
                // Some are two.
                for text in table.fill(&text).split(";\n") {
                    let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
                    for row in sqlx_core::raw_sql::raw_sql(plan).fetch_all(&mut conn).await.unwrap() {
                        let step: String = row.try_get(3).unwrap();
                        let scanned = step.strip_prefix("SCAN ").and_then(|what| what.split(' ').next());
                        // Arguments, and what another step has found.
                        let found = scanned.filter(|what| match *what {
                            "CONSTANT" | "w" | "c" | "json_each" => false,
                            "q" => name != "due_waiters" && name != "hand",
                            what => !what.starts_with('('),
                        });
                        assert_eq!(found, None, "{name}: {step}");
                    }
                }
            }
        }
    }
}
