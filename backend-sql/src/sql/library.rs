//! Files of named SQL.
//!
//! A file has sections: `-- name: NAME` before a statement, `-- part: NAME` before a piece that others use by
//! its name in braces. Other comments are for the reader.

use crate::sql::table::{HeldSql, Sql, Table, filled};

/// What the files of a dialect say, without their comments.
pub(crate) struct Library(Vec<Section>);

struct Section {
    is_part: bool,
    name: &'static str,
    text: String,
}

impl Library {
    pub(crate) fn new(files: &[&'static str]) -> Self {
        let mut sections: Vec<Section> = Vec::new();
        for line in files.iter().flat_map(|file| file.lines()) {
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

    /// A statement with all parts in it, but for the tables.
    pub(crate) fn text(&self, name: &str) -> String {
        let of_name = |section: &&Section| !section.is_part && section.name == name;
        let Some(Section { text, .. }) = self.0.iter().find(of_name) else {
            unreachable!("no statement {name}")
        };
        self.whole(text)
    }

    /// A part has others in it.
    fn whole(&self, text: &str) -> String {
        filled(text, |name| {
            let part = self.0.iter().find(|section| section.is_part && section.name == name);
            part.map(|part| self.whole(&part.text))
        })
    }

    /// All statements, by name.
    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, String)> {
        let statements = self.0.iter().filter(|section| !section.is_part);
        statements.map(|Section { name, .. }| (*name, self.text(name)))
    }

    /// Checks that each part is used, and that nothing but the names of tables is left in the statements once
    /// `fill` has seen them.
    #[cfg(test)]
    pub(crate) fn check(&self, fill: impl Fn(&str, &str) -> String) {
        for Section { is_part, name, text } in &self.0 {
            assert!(!text.is_empty() && !text.contains("--"), "{name}: {text}");
            if *is_part {
                let used = |other: &Section| other.text.contains(&format!("{{{name}}}"));
                assert!(self.0.iter().any(used), "{name}");
                continue;
            }
            let text = fill(name, &self.text(name));
            for (at, _) in text.match_indices('{') {
                let known = [
                    "{locks}",
                    "{members}",
                    "{queue}",
                    "{waiters}",
                    "{clients}",
                    "{state}",
                    "{mark}",
                    "{records}",
                    "{held}",
                    "{base}",
                ];
                assert!(known.iter().any(|table| text[at..].starts_with(table)), "{name}: {}", &text[at..]);
            }
        }
    }
}

/// What a statement with its parts becomes once the names of the tables are known.
pub(crate) trait Prepared: Sized {
    fn prepare(table: &Table, text: &str) -> Self;
}

impl Prepared for Sql {
    fn prepare(table: &Table, text: &str) -> Self {
        Self::new(table, text)
    }
}

impl<S: Prepared> Prepared for HeldSql<S> {
    fn prepare(table: &Table, text: &str) -> Self {
        Self::of_each(|held| S::prepare(table, &text.replace("{held}", held)))
    }
}

/// A struct of statements: the fields, and what fills each, which is the statement of its name.
macro_rules! statements {
    ($($name:ident: $kind:ty),* $(,)?) => {
        pub(super) struct Statements {
            $(pub(super) $name: $kind,)*
        }

        impl Statements {
            pub(super) fn new(table: &$crate::sql::table::Table, files: &[&'static str]) -> Self {
                let library = $crate::sql::library::Library::new(files);
                let text = |name: &str| fill(name, &library.text(name));
                Self { $($name: <$kind as $crate::sql::library::Prepared>::prepare(table, &text(stringify!($name))),)* }
            }
        }
    };
    // Most are of one kind.
    (each $kind:ty: $($name:ident)* ; $($other:tt)*) => {
        $crate::sql::library::statements! { $($name: $kind,)* $($other)* }
    };
}
pub(crate) use statements;
