//! What is sent to MySQL and MariaDB.
//!
//! Times are microseconds since 1970, by `SYSDATE(6)` of the server on a connection whose time zone is UTC: `NOW()` is
//! fixed when the statement starts, and waiting for a row would age a lease.
//!
//! Many claims travel as one JSON parameter, sorted by name: the text of a statement does not depend on their number,
//! so it is prepared once, and two batches lock their rows in the same order.

use crate::table::{Sql, Table};

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";

/// The JSON parameter as rows.
const WANT: &str = "JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY, name VARCHAR(1024) PATH '$[0]',
    owner CHAR(32) PATH '$[1]', ttl BIGINT PATH '$[2]', ticket BIGINT PATH '$[3]',
    label VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]')) AS w";

const LOCKS: &str = "CREATE TABLE IF NOT EXISTS {locks} (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    owner BINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    expires_at BIGINT NULL,
    acquired_at BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL
) ENGINE = InnoDB";

const QUEUE: &str = "CREATE TABLE IF NOT EXISTS {queue} (
    ticket BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARBINARY(512) NOT NULL,
    owner BINARY(16) NOT NULL UNIQUE,
    client BINARY(16) NOT NULL,
    alive_until BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    KEY by_name (name, ticket)
) ENGINE = InnoDB";

/// What happens to a row that is there. The assignments are made from left to right, each on what the earlier ones
/// left: so `owner` changes after all that depends on the old one, and then tells whether the lock was taken. A claim
/// that holds the lock already, and asks again after a lost answer, keeps its token.
const TAKEN: &str = "ON DUPLICATE KEY UPDATE
    token = IF({locks}.owner <> VALUES(owner) AND {free}, GREATEST({locks}.token + 1, VALUES(token)), {locks}.token),
    acquired_at = IF({locks}.owner <> VALUES(owner) AND {free}, VALUES(acquired_at), {locks}.acquired_at),
    label = IF({free}, VALUES(label), {locks}.label),
    owner = IF({free}, VALUES(owner), {locks}.owner),
    expires_at = IF({locks}.owner = VALUES(owner), VALUES(expires_at), {locks}.expires_at)";

const FREE: &str = "({locks}.expires_at IS NULL OR {locks}.expires_at <= VALUES(acquired_at))";

/// The usual case: the row is there and free. The token comes back in the answer's "last insert id", so one round trip is
/// enough on servers without RETURNING, too. Assignments are made from left to right: the token before the owner.
const TAKE_ROW: &str = "UPDATE {locks} SET
    token = LAST_INSERT_ID(IF(owner = ?, token, GREATEST(token + 1, {now}))),
    acquired_at = IF(owner = ?, acquired_at, {now}),
    owner = ?, expires_at = {now} + ?, label = ?
WHERE name = ? AND (owner = ? OR ((expires_at IS NULL OR expires_at <= {now})
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ? AND q.ticket < ? AND q.alive_until > {now}
        AND q.owner <> {locks}.owner)))";

/// A lock that is held is refused by a read without a lock, so refusals wait for no row.
const TAKE: &str = "INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT ?, ?, {now}, {now} + ?, {now}, ? FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = ? AND l.owner <> ? AND l.expires_at > {now})
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ? AND q.ticket < ? AND q.alive_until > {now}
        AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?)))
{taken}";

const TAKE_MANY: &str = "INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT UNHEX(w.name), UNHEX(w.owner), {now}, {now} + w.ttl, {now}, w.label FROM {want}
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = UNHEX(w.name) AND l.owner <> UNHEX(w.owner)
        AND l.expires_at > {now})
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = UNHEX(w.name) AND q.ticket < w.ticket
        AND q.alive_until > {now}
        AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = UNHEX(w.name))))
ORDER BY w.name
{taken}";

/// How each lock stands after that: whether it is ours, its token, and the time left.
const STANDING: &str = "SELECT COALESCE(l.owner = UNHEX(w.owner) AND l.expires_at IS NOT NULL, 0),
    l.token, l.expires_at - {now}
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name) ORDER BY w.n";

const RELEASE: &str = "UPDATE {locks} SET expires_at = NULL WHERE name = ? AND owner = ?";

const RELEASE_MANY: &str = "UPDATE {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
SET l.expires_at = NULL";

/// Which claims have given their locks up, by this release or by an earlier one whose answer was lost.
const RELEASED: &str = "SELECT COALESCE(l.owner = UNHEX(w.owner) AND l.expires_at IS NULL, 0)
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name) ORDER BY w.n";

const RENEW: &str = "UPDATE {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
SET l.expires_at = {now} + w.ttl WHERE l.expires_at IS NOT NULL";

/// Which of the held rows are not locked by somebody's transaction.
const UNLOCKED: &str = "SELECT l.owner FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
WHERE l.expires_at IS NOT NULL FOR UPDATE SKIP LOCKED";

const NEXT: &str = "SELECT IF(q.client = ?, q.ticket, NULL) FROM {queue} AS q
WHERE q.name = ? AND q.alive_until > {now}
    AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?))
ORDER BY q.ticket LIMIT 1";

/// Asked again after a lost answer, a claim finds its old place.
const ENROLL: &str =
    "INSERT INTO {queue} (name, owner, client, alive_until, label) VALUES (?, ?, ?, {now} + ?, ?)
ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until), ticket = LAST_INSERT_ID(ticket)";

const STAY: &str = "UPDATE {queue} SET alive_until = {now} + ? WHERE ticket = ?";

const TIDY: &str = "DELETE FROM {queue} WHERE ticket = ?";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = ?";

const TURNS: &str = "SELECT (SELECT IF(q.client = ?, q.ticket, NULL) FROM {queue} AS q
    WHERE q.name = UNHEX(w.name) AND q.alive_until > {now} AND NOT (q.owner <=> l.owner) ORDER BY q.ticket LIMIT 1)
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name)
WHERE l.name IS NULL OR l.expires_at IS NULL OR l.expires_at <= {now}";

const HOLDER: &str = "SELECT token, label, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = ? AND expires_at > {now}";

const WAITERS: &str = "SELECT COUNT(*) FROM {queue} AS q WHERE q.name = ? AND q.alive_until > {now}
    AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?))";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "UPDATE {locks} SET expires_at = NULL, owner = ? WHERE name = ? AND expires_at > {now}";

/// A row goes only when its token is lower than what a new row would start with.
const PURGE: &str = "DELETE FROM {locks} WHERE COALESCE(expires_at, acquired_at) < {now} - ?
    AND acquired_at < {now} - ? AND token < {now}";

const PURGE_QUEUE: &str = "DELETE FROM {queue} WHERE alive_until < {now} - 60000000";

const CHECK_LOCKS: &str = "SELECT name, owner, token, expires_at, acquired_at, label FROM {locks} LIMIT 0";
const CHECK_QUEUE: &str = "SELECT ticket, name, owner, client, alive_until, label FROM {queue} LIMIT 0";

/// A takeover updates the row, so it waits for the end of the transaction.
const VERIFY: &str = "SELECT 1 FROM {locks} WHERE name = ? AND owner = ? AND token = ?
    AND expires_at IS NOT NULL LOCK IN SHARE MODE";

pub(super) struct Statements {
    pub(super) take_row: Sql,
    pub(super) take: Sql,
    pub(super) take_returning: Sql,
    pub(super) take_many: Sql,
    pub(super) standing: Sql,
    pub(super) release: Sql,
    pub(super) release_many: Sql,
    pub(super) released: Sql,
    pub(super) renew: Sql,
    pub(super) unlocked: Sql,
    pub(super) next: Sql,
    pub(super) enroll: Sql,
    pub(super) stay: Sql,
    pub(super) tidy: Sql,
    pub(super) leave: Sql,
    pub(super) turns: Sql,
    pub(super) holder: Sql,
    pub(super) waiters: Sql,
    pub(super) force: Sql,
    pub(super) purge: Sql,
    pub(super) purge_queue: Sql,
    pub(super) verify: Sql,
    pub(super) check: [Sql; 2],
    pub(super) create: [Sql; 2],
    ddl: String,
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let fill = |text: &str| {
            let text = text.replace("{taken}", TAKEN).replace("{free}", FREE);
            text.replace("{want}", WANT).replace("{now}", NOW)
        };
        let sql = |text: &str| Sql::new(table, &fill(text));
        Self {
            take_row: sql(TAKE_ROW),
            take: sql(TAKE),
            take_returning: sql(&format!("{TAKE} RETURNING owner, token")),
            take_many: sql(TAKE_MANY),
            standing: sql(STANDING),
            release: sql(RELEASE),
            release_many: sql(RELEASE_MANY),
            released: sql(RELEASED),
            renew: sql(RENEW),
            unlocked: sql(UNLOCKED),
            next: sql(NEXT),
            enroll: sql(ENROLL),
            stay: sql(STAY),
            tidy: sql(TIDY),
            leave: sql(LEAVE),
            turns: sql(TURNS),
            holder: sql(HOLDER),
            waiters: sql(WAITERS),
            force: sql(FORCE),
            purge: sql(PURGE),
            purge_queue: sql(PURGE_QUEUE),
            verify: sql(VERIFY),
            check: [sql(CHECK_LOCKS), sql(CHECK_QUEUE)],
            create: [sql(LOCKS), sql(QUEUE)],
            ddl: [LOCKS, QUEUE].map(|text| format!("{};\n", table.fill(text))).concat(),
        }
    }

    pub(super) fn ddl(&self) -> String {
        self.ddl.clone()
    }
}
