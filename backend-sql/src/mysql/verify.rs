//! The check of a lock inside the user's own transaction.

use lockwell_core::{ErrorKind, Grant};
use sqlx_mysql::MySqlConnection;

use super::call::{Argument, send, written};
use crate::dialect::error::ours;
use crate::ids::AsUuid;
use crate::sql::table::Sql;

/// Whether the grant is found. Both statements are one message.
pub(super) async fn finds(conn: &mut MySqlConnection, sql: &Sql, grant: &Grant) -> sqlx_core::Result<bool> {
    let (name, owner) = (grant.claim().name(), grant.claim().owner().as_uuid());
    let arguments: [Argument; 3] = [name.into(), owner.into(), grant.last_token().get().cast_signed().into()];
    let (answers, outcome) = send(conn, written(sql.text(), &arguments)).await;
    match outcome {
        // The error of the second statement names the state of the XA transaction.
        Err(sqlx_core::Error::Database(error)) if !answers.done.is_empty() => {
            if error.message().contains("ACTIVE") {
                let text = "an XA transaction does not keep a lock from changing hands between its XA PREPARE and its end: use a \
                            plain transaction, or compare tokens";
                return Err(ours(ErrorKind::Unsupported, text));
            }
        }
        outcome => outcome?,
    }
    Ok(!answers.rows.is_empty())
}
