//! The statements of the three files beside this one, with the names of the tables in them.

use crate::dialect::SEVERAL;
use crate::table::{HeldSql, Sql, Table};

const FILES: [&str; 3] =
    [include_str!("statements.sql"), include_str!("groups.sql"), include_str!("tables.sql")];

/// Stands for a head of a queue for which nothing is left to do: it waits in another process and was notified, or has to wait.
pub(super) const ELSEWHERE: i64 = -2;
/// Stands for a head that the statement may not have seen.
pub(super) const UNSEEN: i64 = -3;

/// The statements in the files, without their comments.
struct Library(Vec<Section>);

struct Section {
    is_part: bool,
    name: &'static str,
    text: String,
}

impl Library {
    fn new() -> Self {
        let mut sections: Vec<Section> = Vec::new();
        for line in FILES.iter().flat_map(|file| file.lines()) {
            match line.strip_prefix("-- ").and_then(|head| head.split_once(": ")) {
                Some((kind @ ("part" | "name"), name)) => {
                    sections.push(Section { is_part: kind == "part", name, text: String::new() });
                }
                _ if line.starts_with("--") => (),
                // What stands before the first one is for the reader.
                _ => sections
                    .last_mut()
                    .into_iter()
                    .for_each(|last| last.text.extend([line.trim_start(), "\n"])),
            }
        }
        for section in &mut sections {
            section.text = section.text.trim().to_owned();
        }
        Self(sections)
    }

    /// A statement with all parts replaced, except for the tables.
    fn text(&self, name: &str) -> String {
        let of_name = |section: &&Section| !section.is_part && section.name == name;
        let Some(Section { text, .. }) = self.0.iter().find(of_name) else {
            unreachable!("no statement {name}")
        };
        let mut whole = text.clone();
        // A part contains other parts.
        loop {
            let mut next = whole.clone();
            for Section { name, text, .. } in self.0.iter().filter(|section| section.is_part) {
                next = next.replace(&format!("{{{name}}}"), text);
            }
            if next == whole {
                break;
            }
            whole = next;
        }
        let client = if matches!(name, "leave_group" | "leave_group_one") { "$3" } else { "$2" };
        whole
            .replace("{client}", client)
            .replace("{several}", &SEVERAL.to_string())
            .replace("{elsewhere}", &ELSEWHERE.to_string())
            .replace("{unseen}", &UNSEEN.to_string())
    }
}

/// The fields. Each has the name of its statement.
macro_rules! statements {
    ($($name:ident)* ; $($held:ident)*) => {
        pub(super) struct Statements {
            $(pub(super) $name: Sql,)*
            $(pub(super) $held: HeldSql,)*
        }

        impl Statements {
            pub(super) fn new(table: &Table) -> Self {
                let library = Library::new();
                Self {
                    $($name: Sql::new(table, &library.text(stringify!($name))),)*
                    $($held: HeldSql::new(table, &library.text(stringify!($held))),)*
                }
            }
        }
    };
}

statements! {
    take take_new take_many claim enter poll_waiters release hand_over hand_on hand_over_many leave notify_heads turns notify_client
    holders count_waiters names about force force_members portion purge purge_waiters purge_clients
    join_one join make leave_group_one leave_group reap stale_groups downgrade member due_waiters
    locks members waiters clients upgrade check_locks check_members check_waiters check_clients forgets
    ;
    renew verify
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

    /// What fails where a table is missing or of an older form.
    pub(super) fn checks(&self) -> [&Sql; 4] {
        [&self.check_locks, &self.check_members, &self.check_waiters, &self.check_clients]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_known_and_used() {
        let library = Library::new();
        for Section { is_part, name, text } in &library.0 {
            assert!(!text.is_empty() && !text.contains("--"), "{name}: {text}");
            if *is_part {
                let used = |other: &Section| other.text.contains(&format!("{{{name}}}"));
                assert!(library.0.iter().any(used), "{name}");
                continue;
            }
            let text = library.text(name);
            for (at, _) in text.match_indices('{') {
                let known = ["{locks}", "{members}", "{waiters}", "{clients}", "{held}"];
                assert!(known.iter().any(|table| text[at..].starts_with(table)), "{name}: {}", &text[at..]);
            }
        }
    }
}
