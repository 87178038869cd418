//! What the errors of MySQL and MariaDB mean.

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::dialect::error::is_set_read_only;
use crate::words::ErrorClass;

pub(super) fn number(error: &dyn DatabaseError) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}

pub(super) fn class_of(error: &dyn DatabaseError) -> ErrorClass {
    match number(error) {
        // Deadlock; a row that changed since it was read; a claim that was asked for twice at the same time;
        // a statement that has to be prepared anew; a commit that Group Replication has refused.
        1213 | 1020 | 1062 | 1615 | 3101 => ErrorClass::Again,
        // Lock wait timeout; a row lock that a statement does not wait for.
        1205 | 3572 => ErrorClass::Blocked,
        // Too many connections, for all or for this user; shutting down; connection killed; without the other
        // nodes of its cluster; a connection that was silent for `wait_timeout`, which MySQL says before it
        // closes it, and which is then read as the answer to the next request.
        1040 | 1047 | 1053 | 1077 | 1152 | 1158..=1161 | 1203 | 1226 | 1317 | 1927 | 4031 => {
            ErrorClass::Broken
        }
        // The server writes no more: it was demoted, by `read_only`, `super_read_only` or of InnoDB.
        1036 | 1290 | 1792 | 1836 => ErrorClass::ReadOnly,
        1690 if is_set_read_only(error) => ErrorClass::ReadOnly,
        _ => ErrorClass::Fatal,
    }
}
