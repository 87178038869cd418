//! The errors of MySQL and MariaDB, which use one SQLSTATE for many errors and tell them apart by a number.

use lockwell_core::ErrorKind as Kind;
use sqlx_core::error::DatabaseError;
use sqlx_mysql::MySqlDatabaseError;

use super::{
    CANCELLED, CONFLICT, ENDED, FAILED, FULL, LACKS_A_RIGHT, Meaning, NO_CONNECTION_LEFT, NO_TABLES,
    NOT_KNOWN, OTHER_TABLES, READ_ONLY, REFUSED_STATEMENT, WRONG_LOGIN,
};
use crate::sql::unread::Unread;
use crate::words::ErrorClass as Class;

/// The number of an error of MySQL or MariaDB, or 0.
pub(crate) fn number(error: &dyn DatabaseError) -> u16 {
    let unread = || error.try_downcast_ref::<Unread>().map_or(0, |unread| unread.number);
    error.try_downcast_ref::<MySqlDatabaseError>().map_or_else(unread, MySqlDatabaseError::number)
}

/// Of a number that is not listed, the class of its SQLSTATE counts.
pub(super) fn meaning(number: u16, state: &str, text: &str) -> Meaning {
    match number {
        // Deadlock; a row that changed since it was read; a claim that was asked for twice at the same time; a
        // table that changed; a commit that Group Replication has refused.
        1020 | 1062 | 1213 | 1412 | 1613 | 1614 | 1689 | 3101 => (Class::Again, Kind::Conflict, CONFLICT),
        1615 => (
            Class::Again,
            Kind::Conflict,
            "the server had to prepare a statement anew each time: its table_definition_cache is too small, or somebody \
             changes the tables",
        ),
        // A time limit for statements.
        1969 | 3024 => (Class::Again, Kind::Unreachable, CANCELLED),
        // Lock wait timeout; a row lock that a statement does not wait for.
        1205 | 3572 => (Class::Blocked, Kind::Conflict, CONFLICT),
        // For all or for this user; no thread or memory for another one.
        1040 | 1041 | 1135 | 1203 | 1226 => (Class::Broken, Kind::Unreachable, NO_CONNECTION_LEFT),
        1461 => (Class::Broken, Kind::Unreachable, "the server has reached its max_prepared_stmt_count"),
        1047 => (Class::Broken, Kind::Unreachable, "this node is without the other nodes of its cluster"),
        3032 | 3168 => (Class::Broken, Kind::Unreachable, "the server is in offline mode, or not available"),
        // Shutting down; connection killed or broken; a connection that was silent for `wait_timeout`, which
        // MySQL says before it closes it, and which is then read as the answer to the next request.
        1053 | 1077..=1080 | 1152 | 1154..=1161 | 1184 | 1189 | 1190 | 1317 | 1927 | 4031 => {
            (Class::Broken, Kind::Unreachable, ENDED)
        }
        // The server writes no more: it was demoted, by `read_only`, `super_read_only` or of InnoDB.
        1036 | 1290 | 1792 | 1836 | 1874 => (Class::ReadOnly, Kind::Misconfigured, READ_ONLY),
        // The same, although this user may write there: `{writable}` of the statements was out of range.
        1690 if text.contains("9223372036854775807 + ") => (Class::ReadOnly, Kind::Misconfigured, READ_ONLY),
        1045 | 1698 | 1873 => (Class::Fatal, Kind::Refused, WRONG_LOGIN),
        1129 => (
            Class::Fatal,
            Kind::Refused,
            "the server has blocked this host after many failed connections: FLUSH HOSTS on the server ends that",
        ),
        1130 => (
            Class::Fatal,
            Kind::Refused,
            "the server takes no connections from this host: no account is for it",
        ),
        1820 | 1862 => (
            Class::Fatal,
            Kind::Refused,
            "the password of this account has expired: let an administrator set another one (ALTER USER)",
        ),
        3118 | 3955 | 4150 | 4151 => (
            Class::Fatal,
            Kind::Refused,
            "this account is locked, or blocked after failed logins: ALTER USER ... ACCOUNT UNLOCK ends that",
        ),
        1251 | 1275 | 1524 => (
            Class::Fatal,
            Kind::Refused,
            "this account logs in by a plugin that the server or this client does not have: ALTER USER names another",
        ),
        3159 => (Class::Fatal, Kind::Refused, "the server takes connections with TLS only: sslmode=required"),
        1044 | 1095 | 1142 | 1143 | 1227 | 1370 | 1410 | 1419 => (Class::Fatal, Kind::Refused, LACKS_A_RIGHT),
        1046 | 1049 => (Class::Fatal, Kind::Misconfigured, "there is no such database, or none is named"),
        1109 | 1146 | 1932 => (Class::Fatal, Kind::Misconfigured, NO_TABLES),
        1054 | 1136 | 1264 | 1267 | 1270 | 1271 | 1364 | 1366 | 1406 => {
            (Class::Fatal, Kind::Misconfigured, OTHER_TABLES)
        }
        1665 => (
            Class::Fatal,
            Kind::Misconfigured,
            "the server writes statements into its binary log: set binlog_format to ROW or MIXED",
        ),
        3098 | 4056 => {
            (Class::Fatal, Kind::Misconfigured, "the cluster does not take this table or binlog_format")
        }
        1021 | 1037 | 1038 | 1114 | 1197 | 1206 | 1637 | 1705 | 3015 | 3019 | 3044 => {
            (Class::Fatal, Kind::Misconfigured, FULL)
        }
        1099 | 1100 | 1192 | 1223 | 4145 => (
            Class::Fatal,
            Kind::Misconfigured,
            "somebody keeps the tables from being written, by FLUSH TABLES WITH READ LOCK or a backup",
        ),
        1153 => (Class::Fatal, Kind::Misconfigured, "a request exceeds max_allowed_packet of the server"),
        1115 | 1193 | 1231 | 1235 | 1273 | 1286 | 1295 | 4182 | 1064 | 1128 | 1305 => (
            Class::Fatal,
            Kind::Misconfigured,
            "the server is too old, or lacks something: MariaDB 10.6 or MySQL 8.0.19 with InnoDB is needed",
        ),
        1356 | 1359..=1363 | 1442 | 1449 | 1644 | 1710 | 1711 => {
            (Class::Fatal, Kind::Misconfigured, NOT_KNOWN)
        }
        // Files and storage engines.
        1015..=1017
        | 1024
        | 1026
        | 1030
        | 1033..=1035
        | 1039
        | 1105
        | 1180
        | 1181
        | 1194
        | 1195
        | 1712
        | 1728
        | 1805
        | 1812
        | 1814..=1817
        | 1877
        | 1878
        | 3000
        | 3100 => (Class::Fatal, Kind::Misconfigured, FAILED),
        _ => by_state(state),
    }
}

fn by_state(state: &str) -> Meaning {
    match state.get(..2).unwrap_or_default() {
        "08" => (Class::Broken, Kind::Unreachable, ENDED),
        "28" => (Class::Fatal, Kind::Refused, WRONG_LOGIN),
        "40" => (Class::Again, Kind::Conflict, CONFLICT),
        "42" => (Class::Fatal, Kind::Misconfigured, NOT_KNOWN),
        "53" => (Class::Fatal, Kind::Misconfigured, FULL),
        _ => (Class::Fatal, Kind::Internal, REFUSED_STATEMENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_that_a_server_may_give_is_known() {
        use Class::{Again, Blocked, Broken, Fatal, ReadOnly};
        let table: [(Class, Kind, &[u16]); 8] = [
            (Again, Kind::Conflict, &[1020, 1062, 1213, 1412, 1613, 1614, 1615, 1689, 3101]),
            (Again, Kind::Unreachable, &[1969, 3024]),
            (Blocked, Kind::Conflict, &[1205, 3572]),
            (
                Broken,
                Kind::Unreachable,
                &[
                    1040, 1041, 1047, 1053, 1077, 1078, 1079, 1080, 1135, 1152, 1154, 1155, 1156, 1157, 1158,
                    1159, 1160, 1161, 1184, 1189, 1190, 1203, 1226, 1317, 1461, 1927, 3032, 3168, 4031,
                ],
            ),
            (ReadOnly, Kind::Misconfigured, &[1036, 1290, 1792, 1836, 1874]),
            (
                Fatal,
                Kind::Refused,
                &[
                    1044, 1045, 1095, 1129, 1130, 1142, 1143, 1227, 1251, 1275, 1370, 1410, 1419, 1524, 1698,
                    1820, 1862, 1873, 3118, 3159, 3955, 4150, 4151,
                ],
            ),
            (
                Fatal,
                Kind::Misconfigured,
                &[
                    1015, 1016, 1017, 1021, 1024, 1026, 1030, 1033, 1034, 1035, 1037, 1038, 1039, 1046, 1049,
                    1054, 1064, 1099, 1100, 1105, 1109, 1114, 1115, 1128, 1136, 1146, 1153, 1180, 1181, 1192,
                    1193, 1194, 1195, 1197, 1206, 1223, 1231, 1235, 1264, 1267, 1270, 1271, 1273, 1286, 1295,
                    1305, 1356, 1359, 1360, 1361, 1362, 1363, 1364, 1366, 1406, 1442, 1449, 1637, 1644, 1665,
                    1705, 1710, 1711, 1712, 1728, 1805, 1812, 1814, 1815, 1816, 1817, 1877, 1878, 1932, 3000,
                    3015, 3019, 3044, 3098, 3100, 4056, 4145, 4182,
                ],
            ),
            (Fatal, Kind::Internal, &[1690, 9999]),
        ];
        for (class, kind, numbers) in table {
            for &number in numbers {
                let (found, named, text) = meaning(number, "HY000", "some text");
                assert_eq!((found, named), (class, kind), "{number}");
                assert_eq!(text == REFUSED_STATEMENT, kind == Kind::Internal, "{number}");
            }
        }
        // By SQLSTATE alone.
        for (state, class, kind) in [
            ("08004", Broken, Kind::Unreachable),
            ("28000", Fatal, Kind::Refused),
            ("40001", Again, Kind::Conflict),
            ("42000", Fatal, Kind::Misconfigured),
            ("", Fatal, Kind::Internal),
        ] {
            let (found, named, _) = meaning(9999, state, "some text");
            assert_eq!((found, named), (class, kind), "{state}");
        }
        let set = meaning(1690, "22003", "BIGINT value is out of range in '9223372036854775807 + 1'");
        assert_eq!(set.0, ReadOnly);
    }
}
