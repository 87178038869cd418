//! Statements with their arguments: bound to a prepared statement, or written into the text of a packet.
//!
//! A statement names its arguments `$1`, `$2` and so on, each as often as it likes. What is one statement is
//! prepared, once for each connection. Several in one message, a *packet*, can only be sent as text; then
//! every argument is written in hexadecimal, which no mode of the server changes.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::StreamExt;
use lockwell_core::Claim;
use sqlx_core::Either;
use sqlx_core::arguments::Arguments;
use sqlx_core::from_row::FromRow;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::{MySqlArguments, MySqlConnection, MySqlQueryResult, MySqlRow};
use uuid::Uuid;

use crate::dialect::error::ended;
use crate::ids::AsUuid;
use crate::sql::library::Prepared;
use crate::sql::table::{Sql, Table, placed};

/// A statement, or the statements of a packet.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    text: Sql,
    /// The text with a question mark for each argument.
    prepared: Arc<str>,
    /// Which argument stands in the place of each question mark, from 0.
    order: Arc<[usize]>,
}

/// An argument.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Number(Option<i64>),
    Bytes(Vec<u8>),
    Text(String),
}

impl Prepared for Statement {
    fn prepare(table: &Table, text: &str) -> Self {
        let text = Sql::new(table, text);
        let mut order = Vec::new();
        let prepared = placed(text.text(), '$', |n| {
            order.push(n);
            Some("?".to_owned())
        });
        Self { text, prepared: prepared.into(), order: order.into() }
    }
}

impl Statement {
    /// The statement with its arguments yet to be bound.
    pub(super) fn call(&self) -> StatementCall<'_> {
        StatementCall { statement: self, arguments: Vec::new() }
    }

    /// The statement with the name and the owner of a claim.
    pub(super) fn of(&self, claim: &Claim) -> StatementCall<'_> {
        self.call().bind(claim.name()).bind(claim.owner().as_uuid())
    }

    pub(super) fn sql(&self) -> &Sql {
        &self.text
    }
}

/// A statement that is about to be sent.
#[must_use = "a call that is not sent does nothing"]
pub(super) struct StatementCall<'a> {
    statement: &'a Statement,
    arguments: Vec<Argument>,
}

impl StatementCall<'_> {
    /// Adds the next argument.
    pub(super) fn bind(mut self, value: impl Into<Argument>) -> Self {
        self.arguments.push(value.into());
        self
    }

    fn bound(&self) -> sqlx_core::Result<MySqlArguments> {
        let mut bound = MySqlArguments::default();
        for &n in &*self.statement.order {
            let added = match self.arguments.get(n) {
                Some(Argument::Number(number)) => bound.add(*number),
                Some(Argument::Bytes(bytes)) => bound.add(bytes.as_slice()),
                Some(Argument::Text(text)) => bound.add(text.as_str()),
                // The server says what is missing.
                None => continue,
            };
            added.map_err(sqlx_core::Error::Encode)?;
        }
        Ok(bound)
    }

    fn prepared(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.statement.prepared))
    }

    pub(super) async fn rows<T>(self, conn: &mut MySqlConnection) -> sqlx_core::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let rows = sqlx_core::query::query_with(self.prepared(), self.bound()?).fetch_all(conn).await?;
        rows.iter().map(T::from_row).collect()
    }

    pub(super) async fn row<T>(self, conn: &mut MySqlConnection) -> sqlx_core::Result<Option<T>>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        Ok(self.rows(conn).await?.into_iter().next())
    }

    /// The only column of all rows.
    pub(super) async fn values<T>(self, conn: &mut MySqlConnection) -> sqlx_core::Result<Vec<T>>
    where
        (T,): for<'r> FromRow<'r, MySqlRow>,
    {
        Ok(self.rows::<(T,)>(conn).await?.into_iter().map(|(value,)| value).collect())
    }

    /// The only column of the only row, if there is one.
    pub(super) async fn value<T>(self, conn: &mut MySqlConnection) -> sqlx_core::Result<Option<T>>
    where
        (T,): for<'r> FromRow<'r, MySqlRow>,
    {
        Ok(self.row::<(T,)>(conn).await?.map(|(value,)| value))
    }

    /// The only column of the only row.
    pub(super) async fn only_value<T>(self, conn: &mut MySqlConnection) -> sqlx_core::Result<T>
    where
        (T,): for<'r> FromRow<'r, MySqlRow>,
    {
        self.value(conn).await?.ok_or(sqlx_core::Error::RowNotFound)
    }

    pub(super) async fn execute(self, conn: &mut MySqlConnection) -> sqlx_core::Result<MySqlQueryResult> {
        sqlx_core::query::query_with(self.prepared(), self.bound()?).execute(conn).await
    }

    /// The text with all arguments in it.
    pub(super) fn written(&self) -> String {
        written(self.statement.text.text(), &self.arguments)
    }
}

/// A text with all arguments in it.
pub(super) fn written(text: &str, arguments: &[Argument]) -> String {
    placed(text, '$', |n| arguments.get(n).map(Argument::literal))
}

/// What a packet has answered, statement by statement.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The rows of all its queries.
    pub(super) rows: Vec<MySqlRow>,
    /// What each of its statements has done.
    pub(super) done: Vec<MySqlQueryResult>,
}

/// Sends statements in one message. After an error the answers are those of the statements before it, and a
/// transaction that they have begun is open: [`undo`] ends it.
pub(super) async fn send(conn: &mut MySqlConnection, packet: String) -> (Answers, sqlx_core::Result<()>) {
    let mut answers = Answers::default();
    let mut stream = sqlx_core::raw_sql::raw_sql(AssertSqlSafe(packet)).fetch_many(conn);
    loop {
        match stream.next().await {
            Some(Ok(Either::Right(row))) => answers.rows.push(row),
            Some(Ok(Either::Left(done))) => answers.done.push(done),
            Some(Err(error)) => return (answers, Err(error)),
            None => return (answers, Ok(())),
        }
    }
}

/// Ends what an error has left of a transaction. Nothing of it may stay open: later statements would join it.
pub(super) async fn undo(conn: &mut MySqlConnection, error: sqlx_core::Error) -> sqlx_core::Error {
    if !matches!(error, sqlx_core::Error::Database(_)) {
        // The connection is no good.
        return error;
    }
    let ending = "ROLLBACK; SET SESSION wait_timeout = DEFAULT";
    let ending = sqlx_core::raw_sql::raw_sql(ending).execute(conn).await.map(drop);
    match ended(Err::<Infallible, _>(error), ending) {
        Err(error) => error,
    }
}

/// Sends statements in one message, all or none of which are to be carried out.
pub(super) async fn send_whole(conn: &mut MySqlConnection, packet: String) -> sqlx_core::Result<Answers> {
    match send(conn, packet).await {
        (answers, Ok(())) => Ok(answers),
        (_, Err(error)) => Err(undo(conn, error).await),
    }
}

impl Argument {
    fn literal(&self) -> String {
        match self {
            Self::Number(Some(number)) => number.to_string(),
            Self::Number(None) => "NULL".to_owned(),
            Self::Bytes(bytes) => format!("x'{}'", hex(bytes)),
            Self::Text(text) => format!("_utf8mb4 x'{}'", hex(text.as_bytes())),
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02X}").unwrap_or_default();
        text
    })
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<Option<i64>> for Argument {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl From<Uuid> for Argument {
    fn from(uuid: Uuid) -> Self {
        Self::Bytes(uuid.as_bytes().to_vec())
    }
}

impl From<&lockwell_core::LockName> for Argument {
    fn from(name: &lockwell_core::LockName) -> Self {
        Self::Bytes(name.as_str().as_bytes().to_vec())
    }
}

impl From<&[u8]> for Argument {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Numbers between commas.
pub(super) fn numbers(text: Option<&str>) -> Vec<i64> {
    text.unwrap_or_default().split(',').filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str) -> Statement {
        Statement::prepare(&Table::new("locks").unwrap(), text)
    }

    #[test]
    fn an_argument_stands_in_each_of_its_places() {
        let statement = statement("a $2, '$[0]', b $1, c $2");
        assert_eq!(&*statement.prepared, "a ?, '$[0]', b ?, c ?");
        assert_eq!(*statement.order, [1, 0, 1]);
        assert_eq!(statement.call().bind(7).bind(None::<i64>).written(), "a NULL, '$[0]', b 7, c NULL");
    }

    #[test]
    fn nothing_gets_out_of_its_quotation() {
        let written = |argument: Argument| statement("$1").call().bind(argument).written();
        assert_eq!(written("'; DROP".into()), "_utf8mb4 x'273B2044524F50'");
        assert_eq!(written("".into()), "_utf8mb4 x''");
        assert_eq!(written(Uuid::nil().into()), format!("x'{}'", "00".repeat(16)));
        assert_eq!(written((-5).into()), "-5");
    }
}
