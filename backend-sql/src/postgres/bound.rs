//! Statements with their arguments: bound to a prepared statement or, behind a pooler, written into the text.
//!
//! A pooler in transaction mode gives each transaction to any of its connections. A prepared statement stays
//! on the one where it was prepared, and on another one its name may stand for another client's: the wrong
//! one would be executed, without an error. A text that has everything in it means the same on all of them.

use sqlx_core::arguments::Arguments as _;
use sqlx_core::encode::Encode;
use sqlx_core::from_row::FromRow;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_core::types::Type;
use sqlx_postgres::{PgArguments, PgConnection, PgQueryResult, PgRow};
use uuid::Uuid;

use super::session::FOR_ONE;
use crate::sql::table::{Sql, hex, placed};

/// How arguments are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Prepared,
    Inline,
}

enum Arguments {
    Prepared(sqlx_core::Result<PgArguments>),
    Inline(Vec<String>),
}

/// A statement with its arguments.
#[must_use = "a statement that is not sent does nothing"]
pub(super) struct BoundStatement<'a> {
    sql: &'a Sql,
    arguments: Arguments,
}

impl<'a> BoundStatement<'a> {
    pub(super) fn new(sql: &'a Sql, style: Style) -> Self {
        let arguments = match style {
            Style::Prepared => Arguments::Prepared(Ok(PgArguments::default())),
            Style::Inline => Arguments::Inline(Vec::new()),
        };
        Self { sql, arguments }
    }

    /// A statement whose arguments will be written into a text.
    pub(super) fn written(sql: &'a Sql) -> Self {
        Self::new(sql, Style::Inline)
    }

    /// The text of a [written](Self::written) statement.
    pub(super) fn text(&self) -> String {
        match &self.arguments {
            Arguments::Prepared(_) => self.sql.text().to_owned(),
            Arguments::Inline(texts) => written(self.sql, texts),
        }
    }

    /// The arguments of a [written](Self::written) statement, for `EXECUTE`.
    pub(super) fn list(&self) -> String {
        match &self.arguments {
            Arguments::Prepared(_) => String::new(),
            Arguments::Inline(texts) => texts.join(", "),
        }
    }

    /// Adds the next argument.
    pub(super) fn bind<'t, T>(mut self, value: T) -> Self
    where
        T: Encode<'t, sqlx_postgres::Postgres> + Type<sqlx_postgres::Postgres> + Literal,
    {
        match &mut self.arguments {
            Arguments::Prepared(arguments) => {
                if let Ok(bound) = arguments
                    && let Err(error) = bound.add(value)
                {
                    *arguments = Err(sqlx_core::Error::Encode(error));
                }
            }
            Arguments::Inline(texts) => texts.push(literal(&value)),
        }
        self
    }

    pub(super) async fn rows<T>(self, conn: &mut PgConnection) -> sqlx_core::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let rows = match self.arguments {
            Arguments::Prepared(arguments) => {
                sqlx_core::query::query_with(self.sql.get(), arguments?).fetch_all(conn).await?
            }
            Arguments::Inline(texts) => {
                sqlx_core::raw_sql::raw_sql(alone(self.sql, &texts)).fetch_all(conn).await?
            }
        };
        rows.iter().map(T::from_row).collect()
    }

    pub(super) async fn row<T>(self, conn: &mut PgConnection) -> sqlx_core::Result<Option<T>>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        Ok(self.rows(conn).await?.into_iter().next())
    }

    /// The only column of all rows.
    pub(super) async fn values<T>(self, conn: &mut PgConnection) -> sqlx_core::Result<Vec<T>>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        Ok(self.rows::<(T,)>(conn).await?.into_iter().map(|(value,)| value).collect())
    }

    /// The only column of the only row, if there is one.
    pub(super) async fn value<T>(self, conn: &mut PgConnection) -> sqlx_core::Result<Option<T>>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        Ok(self.row::<(T,)>(conn).await?.map(|(value,)| value))
    }

    /// The only column of the only row.
    pub(super) async fn only_value<T>(self, conn: &mut PgConnection) -> sqlx_core::Result<T>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        self.value(conn).await?.ok_or(sqlx_core::Error::RowNotFound)
    }

    pub(super) async fn execute(self, conn: &mut PgConnection) -> sqlx_core::Result<PgQueryResult> {
        match self.arguments {
            Arguments::Prepared(arguments) => {
                sqlx_core::query::query_with(self.sql.get(), arguments?).execute(conn).await
            }
            Arguments::Inline(texts) => {
                sqlx_core::raw_sql::raw_sql(alone(self.sql, &texts)).execute(conn).await
            }
        }
    }
}

/// A value that can be written into a statement. All values are quoted, including numbers, so that a minus is
/// no operator.
pub(super) trait Literal {
    /// The type's name in SQL.
    fn kind() -> String;

    fn write(&self, out: &mut String);
}

impl Literal for &str {
    fn kind() -> String {
        "text".to_owned()
    }

    /// Writes the form in which a backslash means the same with any settings of the server. A NUL would end
    /// the statement: the server then finds no closing quote, and refuses it.
    fn write(&self, out: &mut String) {
        out.push_str("E'");
        for part in self.chars() {
            if matches!(part, '\'' | '\\') {
                out.push(part);
            }
            out.push(part);
        }
        out.push('\'');
    }
}

impl Literal for i64 {
    fn kind() -> String {
        "bigint".to_owned()
    }

    fn write(&self, out: &mut String) {
        out.extend(["'", &self.to_string(), "'"]);
    }
}

impl Literal for &[u8] {
    fn kind() -> String {
        "bytea".to_owned()
    }

    fn write(&self, out: &mut String) {
        out.extend(["E'\\\\x", &hex(self), "'"]);
    }
}

impl<T: Literal> Literal for Option<T> {
    fn kind() -> String {
        T::kind()
    }

    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("NULL"),
        }
    }
}

impl Literal for Uuid {
    fn kind() -> String {
        "uuid".to_owned()
    }

    fn write(&self, out: &mut String) {
        out.extend(["'", &self.to_string(), "'"]);
    }
}

impl<T: Literal> Literal for Vec<T> {
    fn kind() -> String {
        T::kind() + "[]"
    }

    fn write(&self, out: &mut String) {
        out.push_str("ARRAY[");
        for (n, one) in self.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            one.write(out);
        }
        out.push(']');
    }
}

fn literal<T: Literal>(value: &T) -> String {
    let mut text = String::new();
    value.write(&mut text);
    text + "::" + &T::kind()
}

/// A statement that does not depend on the session.
fn alone(sql: &Sql, arguments: &[String]) -> AssertSqlSafe<String> {
    AssertSqlSafe(FOR_ONE.to_owned() + &written(sql, arguments))
}

/// The text with the arguments in it. This is safe, since every literal is quoted. Where there is no such
/// argument, the server reports it.
fn written(sql: &Sql, arguments: &[String]) -> String {
    placed(sql.text(), '$', |n| arguments.get(n).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::table::Table;

    fn text(sql: &str, arguments: &[String]) -> String {
        written(&Sql::new(&Table::new("locks").unwrap(), sql), arguments)
    }

    #[test]
    fn arguments_are_written_in_their_places() {
        let many: Vec<_> = (1..=11).map(|n| literal(&i64::from(n))).collect();
        assert_eq!(text("a $1, b $11; c $1", &many), "a '1'::bigint, b '11'::bigint; c '1'::bigint");
        assert_eq!(text("a $2", &many[..1]), "a $2");
        assert_eq!(text("none", &many), "none");
    }

    #[test]
    fn nothing_gets_out_of_its_quotation() {
        assert_eq!(literal(&"it's"), "E'it''s'::text");
        assert_eq!(literal(&"\\'; DROP TABLE locks; --"), "E'\\\\''; DROP TABLE locks; --'::text");
        assert_eq!(literal(&"$1"), "E'$1'::text");
        // What is written is not looked at again.
        assert_eq!(text("$1 $2", &[literal(&"$2"), literal(&7)]), "E'$2'::text '7'::bigint");
        assert_eq!(literal(&i64::MIN), format!("'{}'::bigint", i64::MIN));
        assert_eq!(literal(&vec!["a,b", "c]"]), "ARRAY[E'a,b',E'c]']::text[]");
        assert_eq!(literal(&Vec::<i64>::new()), "ARRAY[]::bigint[]");
        assert_eq!(literal(&vec![Some(7), None]), "ARRAY['7',NULL]::bigint[]");
        assert_eq!(literal(&None::<Uuid>), "NULL::uuid");
        assert_eq!(literal(&&b"'\0\xff"[..]), "E'\\\\x2700ff'::bytea");
        let uuid = Uuid::nil();
        assert_eq!(literal(&vec![uuid]), format!("ARRAY['{uuid}']::uuid[]"));
    }
}
