//! Converts tables from one durability to the other.
//!
//! Nobody holds a lock meanwhile: a holder knows only the tables as they were, and could not renew. A
//! transaction locks the tables as a whole, looks whether somebody holds a lock, and makes of them what a new
//! address would have; the rows, and with them the tokens, stay. Clients that had connected before cannot
//! grant anything on what it has made, since the end of a lease has another name there.
//!
//! While the tables are locked, no holder can renew. So a look before the transaction must have found nobody
//! who holds a lock, and the transaction is short, also if this process is stopped or cut off: see [`BEGIN`].
//!
//! Tables that have forgotten grants are not converted before it is known who holds a lock. Nor are they
//! while tokens are ahead of the clock, unless a floor of tokens stays: a lock without a row begins with the
//! clock where grants wait for the disk.

use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Moment, Result};
use sqlx_core::connection::Connection as _;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_postgres::PgConnection;

use super::driver::Postgres;
use super::durability::Durability;
use super::session::{BEGIN, FOR_ONE, Found};
use super::statements::{GRACE, fill};
use crate::dialect::error::{class_of, fatal, no_answer, ours};
use crate::sql::library::statements;
use crate::sql::options::SqlOptions;
use crate::sql::table::{Sql, Table};
use crate::words::{ErrorClass, micros, span};

statements! {
    each Sql:
    lock_disk lock_grace held_on_disk held_with_grace is_settled to_grace to_disk to_another_longest;
}

const FILES: [&str; 5] = [GRACE[0], GRACE[1], GRACE[2], GRACE[3], include_str!("convert.sql")];

/// How long to wait for those who use the tables. All later users wait meanwhile.
const LOCK_TIMEOUT: &str = "1s";

/// The shortest time limit of a try: it may wait for the tables for a second.
const SHORTEST_TRY: Duration = Duration::from_secs(2);

/// The pause between two tries, in which others use the tables.
const PAUSE: Duration = Duration::from_millis(500);

/// What the tables are to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Grants wait for the disk, and did not.
    Disk,
    /// They do not, and did. The longest lease.
    Grace(Duration),
    /// Another longest lease.
    Longest(Duration),
}

impl Change {
    /// `None`: the tables are as the address says.
    fn new(wanted: Durability, found: Found) -> Result<Option<Self>> {
        let Durability(wanted) = wanted;
        let wrong = |kind, text: &str| Err(Error::new(kind, text));
        match (wanted.is_grace, found) {
            (None, _) => wrong(
                ErrorKind::InvalidInput,
                "the address does not say what to make of the tables: add durability=disk or durability=grace",
            ),
            (_, Found::None) => {
                wrong(ErrorKind::Misconfigured, "there are no lock tables: a client that connects makes them")
            }
            (Some(false), Found::Disk) => Ok(None),
            (Some(false), Found::Grace(_)) => Ok(Some(Self::Disk)),
            (Some(true), Found::Disk) => Ok(Some(Self::Grace(wanted.longest()))),
            (Some(true), Found::Grace(present)) => {
                let other = wanted.longest.filter(|longest| *longest != present);
                Ok(other.map(Self::Longest))
            }
        }
    }
}

/// Converts the tables of these options. False: they are as the address says.
///
/// # Cancel safety
/// Safe: the tables are as they were, or converted.
pub(super) async fn convert(
    postgres: &Postgres,
    options: &SqlOptions,
    wanted: Durability,
    wait: Duration,
) -> Result<bool> {
    let until = Moment::now().after(wait);
    let limit = options.timeout.max(SHORTEST_TRY);
    loop {
        let (table, found) = postgres.find(options).await?;
        let Some(change) = Change::new(wanted, found)? else { return Ok(false) };
        let error = match tokio::time::timeout(limit, once(postgres, &table, change)).await {
            Ok(Ok(())) => return Ok(true),
            Ok(Err(error)) => meaning(postgres, &error),
            // The next try finds out whether this one has converted them.
            Err(_) => no_answer(None),
        };
        if !error.is_retryable() || until.has_passed() {
            return Err(error);
        }
        tracing::info!(error = format!("{error:#}"), "the tables are not converted yet");
        tokio::time::sleep(PAUSE.min(until.remaining())).await;
    }
}

async fn once(postgres: &Postgres, table: &Table, change: Change) -> sqlx_core::Result<()> {
    let sql = Statements::new(table, &FILES);
    let mut conn = postgres.session.connect().await?;
    // As long as locks are held, nobody is kept from the tables.
    may_be_converted(&mut conn, &sql, change).await?;
    // A drop ends it, and so does the end of the connection.
    let mut work = conn.begin_with(BEGIN).await?;
    let lock = match change {
        Change::Grace(_) => &sql.lock_disk,
        Change::Disk | Change::Longest(_) => &sql.lock_grace,
    };
    run(&mut work, &format!("{FOR_ONE} SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {}", lock.text())).await?;
    // Somebody may have taken a lock meanwhile.
    may_be_converted(&mut work, &sql, change).await?;
    let of =
        |longest, sql: &Sql| format!("SET LOCAL lockwell.longest_ttl = {}; {}", micros(longest), sql.text());
    run(
        &mut work,
        &match change {
            Change::Disk => sql.to_disk.text().to_owned(),
            Change::Grace(longest) => of(longest, &sql.to_grace),
            Change::Longest(longest) => of(longest, &sql.to_another_longest),
        },
    )
    .await?;
    work.commit().await
}

/// Fails if somebody holds a lock, or may hold one, and if tokens would fall.
async fn may_be_converted(
    conn: &mut PgConnection,
    sql: &Statements,
    change: Change,
) -> sqlx_core::Result<()> {
    let held = match change {
        Change::Grace(_) => &sql.held_on_disk,
        Change::Disk | Change::Longest(_) => &sql.held_with_grace,
    };
    if !matches!(change, Change::Grace(_)) {
        let (is_open, ahead): (bool, i64) = row(conn, &sql.is_settled).await?;
        if !is_open {
            return Err(ours(
                ErrorKind::GracePeriod,
                "the server may have forgotten grants, so it is not known who holds a lock: try again after the grace period",
            ));
        }
        if change == Change::Disk && ahead > 0 {
            let text = format!(
                "tokens are ahead of the clock since the last grace period, and would fall where grants wait for the disk: \
                 try again in {:.0?}",
                span(ahead)
            );
            return Err(ours(ErrorKind::Conflict, text));
        }
    }
    let (held,): (i64,) = row(conn, held).await?;
    if held > 0 {
        let text = format!(
            "{held} locks are held, whose holders know only the tables as they are: end those programs, or wait for them"
        );
        return Err(ours(ErrorKind::Held, text));
    }
    Ok(())
}

/// Statements without an answer.
async fn run(conn: &mut PgConnection, text: &str) -> sqlx_core::Result<()> {
    // The only text from outside is the name of the table, which has been checked.
    sqlx_core::raw_sql::raw_sql(AssertSqlSafe(text.to_owned())).execute(conn).await.map(drop)
}

/// The row of a statement that does not depend on the session, within a transaction or alone.
async fn row<T>(conn: &mut PgConnection, sql: &Sql) -> sqlx_core::Result<T>
where
    T: for<'r> sqlx_core::from_row::FromRow<'r, sqlx_postgres::PgRow>,
{
    let text = AssertSqlSafe(format!("{FOR_ONE} {}", sql.text()));
    T::from_row(&sqlx_core::raw_sql::raw_sql(text).fetch_one(conn).await?)
}

/// What an error means for whoever converts the tables.
fn meaning(postgres: &Postgres, error: &sqlx_core::Error) -> Error {
    match class_of(postgres, error) {
        ErrorClass::Again | ErrorClass::Blocked => {
            let text = "others use the lock tables, perhaps in a transaction that has verified a lock";
            Error::new(ErrorKind::Held, text).with_source(error.to_string())
        }
        ErrorClass::Broken => no_answer(Some(error)),
        ErrorClass::ReadOnly | ErrorClass::Fatal => match fatal(error) {
            known if known.kind() == ErrorKind::Refused => {
                let text = "only the owner of the tables can convert them";
                Error::new(ErrorKind::Refused, text).with_source(error.to_string())
            }
            known => known,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::library::Library;

    #[test]
    fn all_parts_are_known_and_used() {
        Library::new(&FILES).check(fill);
    }

    #[test]
    fn the_address_says_what_is_to_be_done() {
        let change = |options: &str, found| {
            let url = format!("postgres://host/db{options}").parse().unwrap();
            Change::new(Durability::read(&url).unwrap(), found)
        };
        let of = Duration::from_secs;
        for (options, found, wanted) in [
            ("?durability=disk", Found::Disk, None),
            ("?durability=disk", Found::Grace(of(9)), Some(Change::Disk)),
            ("?durability=grace", Found::Disk, Some(Change::Grace(of(30)))),
            ("?durability=grace&longest_ttl=8s", Found::Disk, Some(Change::Grace(of(8)))),
            ("?durability=grace", Found::Grace(of(9)), None),
            ("?durability=grace&longest_ttl=9s", Found::Grace(of(9)), None),
            ("?durability=grace&longest_ttl=8s", Found::Grace(of(9)), Some(Change::Longest(of(8)))),
        ] {
            assert_eq!(change(options, found).unwrap(), wanted, "{options}");
        }
        let unsaid = change("", Found::Disk).unwrap_err();
        assert_eq!(unsaid.kind(), ErrorKind::InvalidInput, "{unsaid}");
        let none = change("?durability=disk", Found::None).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::Misconfigured, "{none}");
    }
}
