//! The names of the tables.

use std::fmt;

use crate::words::Hold;
use lockwell_core::{Error, ErrorKind, Result, ServerUrl};

/// The table of locks; the others have the same name with `_members` behind it, for the members of groups,
/// `_queue`, or `_waiters` and `_clients`, for those who wait, `_state` for what outlives a crash,
/// `_mark` for what does not, and `_records` for the records of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    name: String,
    /// The schema to write before the name; the name contains none then.
    schema: Option<String>,
    /// The quote around identifiers, so that a name may be a reserved word. Empty for databases on which
    /// quotes would change how capital letters are read.
    quote: &'static str,
}

impl Table {
    const DEFAULT: &'static str = "lockwell_locks";

    /// The table that the address names.
    pub(crate) fn of(url: &ServerUrl) -> Result<Self> {
        Self::new(url.option("table").unwrap_or(Self::DEFAULT))
    }

    /// The name is written into statements unchanged, so it must be a plain identifier, with or without a
    /// schema.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let plain = |part: &str| {
            part.len() <= 48
                && part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let parts: Vec<_> = name.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| plain(part)) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{name:?} is not allowed as a table: write NAME or SCHEMA.NAME with letters, digits and _, \
                     at most 48 each"
                ),
            ));
        }
        Ok(Self { name: name.to_owned(), schema: None, quote: "" })
    }

    /// This table with quotes in the statements.
    #[cfg(any(feature = "mysql", feature = "sqlite-unbundled"))]
    pub(crate) fn quoted(self, quote: &'static str) -> Self {
        Self { quote, ..self }
    }

    /// The name without the schema.
    pub(crate) fn base(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// This table with quotes, for PostgreSQL, which reads names without quotes as lower case.
    #[cfg(feature = "postgres")]
    pub(crate) fn in_schema(&self, schema: &str) -> Self {
        Self { name: self.folded(), schema: Some(schema.to_owned()), quote: "\"" }
    }

    /// The schema of the address, in lower case.
    #[cfg(feature = "postgres")]
    pub(crate) fn schema(&self) -> Option<String> {
        self.name.split_once('.').map(|(schema, _)| schema.to_ascii_lowercase())
    }

    /// The name without the schema, in lower case.
    #[cfg(feature = "postgres")]
    pub(crate) fn folded(&self) -> String {
        self.base().to_ascii_lowercase()
    }

    /// The name of one of the tables in a statement. Names in addresses contain no quotes, so nothing has to
    /// be escaped.
    fn with(&self, suffix: &str) -> String {
        let Self { name, schema, quote } = self;
        let schema = match (schema, name.split_once('.')) {
            (Some(schema), _) => Some(schema.replace('"', "\"\"")),
            (None, split) => split.map(|(schema, _)| schema.to_owned()),
        };
        let before = schema.map(|schema| format!("{quote}{schema}{quote}.")).unwrap_or_default();
        format!("{before}{quote}{}{suffix}{quote}", self.base())
    }

    /// Puts the names into a statement: `{locks}`, `{members}` and so on, and `{base}` (the first without its
    /// schema).
    pub(crate) fn fill(&self, sql: &str) -> String {
        filled(sql, |name| {
            let suffix = match name {
                "locks" => "",
                "queue" => "_queue",
                "members" => "_members",
                "waiters" => "_waiters",
                "clients" => "_clients",
                "state" => "_state",
                "mark" => "_mark",
                "verify" => "_verify",
                "records" => "_records",
                "base" => return Some(self.base().to_owned()),
                _ => return None,
            };
            Some(self.with(suffix))
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A statement with the table names in it, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Sql(std::sync::Arc<str>);

impl Sql {
    pub(crate) fn new(table: &Table, text: &str) -> Self {
        Self(table.fill(text).into())
    }

    /// Statements for a person to read and run.
    pub(crate) fn script<'a>(statements: impl IntoIterator<Item = &'a Self>) -> String {
        statements.into_iter().flat_map(|one| [&*one.0, ";\n"]).collect()
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The statement for sqlx. It is safe: the only text from outside is the validated name of the table.
    pub(crate) fn get(&self) -> sqlx_core::sql_str::AssertSqlSafe<std::sync::Arc<str>> {
        sqlx_core::sql_str::AssertSqlSafe(std::sync::Arc::clone(&self.0))
    }
}

/// Puts something in the places of names in braces, in one pass: each client fills all of its statements. Other
/// braces stay.
pub(crate) fn filled(text: &str, of: impl Fn(&str) -> Option<String>) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        whole.push_str(before);
        let named = after.split_once('}').and_then(|(name, after)| Some((of(name)?, after)));
        if let Some((put, after)) = named {
            whole.push_str(&put);
            rest = after;
        } else {
            whole.push('{');
            rest = after;
        }
    }
    whole.push_str(rest);
    whole
}

/// Puts something in the places of `$1`, `$2` and so on, if the mark is `$`. What is put in is not looked at again.
pub(crate) fn placed(text: &str, mark: char, mut argument: impl FnMut(usize) -> Option<String>) -> String {
    let mut parts = text.split(mark);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let number = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        if let Some(argument) = number.and_then(&mut argument) {
            whole.push_str(&argument);
        } else {
            // A path in JSON, or not ours to fill: then the server says what is missing.
            whole.push(mark);
            whole.push_str(&part[..end]);
        }
        whole.push_str(rest);
    }
    whole
}

/// The hexadecimal digits of bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// A statement for both kinds of hold, which differs only in the table: `{held}`.
#[derive(Clone, Debug)]
pub(crate) struct HeldSql<S = Sql> {
    alone: S,
    together: S,
}

impl<S> HeldSql<S> {
    pub(crate) fn of_each(about: impl Fn(&str) -> S) -> Self {
        Self { alone: about("{locks}"), together: about("{members}") }
    }

    pub(crate) fn of(&self, hold: Hold) -> &S {
        match hold {
            Hold::Alone => &self.alone,
            Hold::Together => &self.together,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_filled_once_and_others_stay() {
        let of = |name: &str| (name == "a").then(|| "x{a}".to_owned());
        assert_eq!(filled("{a}{b} '{}' {{a}} {", of), "x{a}{b} '{}' {x{a}} {");
    }

    #[test]
    fn only_plain_names() {
        for good in ["locks", "app.locks", "_x1"] {
            assert_eq!(Table::new(good).unwrap().to_string(), good);
        }
        for bad in ["", "a b", "a'b", "a\"b", "a`b", "a;b", "1a", "a.b.c", "a.", "é", &"x".repeat(49)] {
            assert_eq!(Table::new(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
        assert_eq!(
            Table::new("app.locks").unwrap().fill("{locks} {queue} {members} {base}"),
            "app.locks app.locks_queue app.locks_members locks"
        );
        #[cfg(feature = "mysql")]
        for (name, filled) in [
            ("app.order", "`app`.`order` `app`.`order_queue` order"),
            ("order", "`order` `order_queue` order"),
        ] {
            let table = Table::new(name).unwrap().quoted("`");
            assert_eq!(table.fill("{locks} {queue} {base}"), filled);
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn names_are_quoted_in_a_schema() {
        let table = Table::new("App.Order").unwrap();
        assert_eq!(table.schema().as_deref(), Some("app"));
        assert_eq!(
            table.in_schema("a\"b").fill("{locks} {queue} {base}"),
            "\"a\"\"b\".\"order\" \"a\"\"b\".\"order_queue\" order"
        );
    }
}
