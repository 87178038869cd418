//! What is sent to MySQL and MariaDB.
//!
//! Times are microseconds since 1970, by `SYSDATE(6)` of the server on a connection whose time zone is UTC: `NOW()` is
//! fixed when the statement starts, and waiting for a row would age a lease.
//!
//! Many claims travel as one JSON parameter, sorted by name: the text of a statement does not depend on their number,
//! so it is prepared once, and two batches lock their rows in the same order.

use crate::dialect::SEVERAL;
use crate::table::{HeldSql, Sql, Table};

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";

/// The JSON parameter as rows. They are a derived table because MySQL refuses `FOR UPDATE` in a statement that names
/// `JSON_TABLE` itself: its rows cannot be locked (error 3569).
const WANT: &str = "(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY, name VARCHAR(1024) PATH '$[0]',
    owner CHAR(32) PATH '$[1]', ttl BIGINT PATH '$[2]', ticket BIGINT PATH '$[3]',
    label VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', tokens BIGINT PATH '$[5]', mode BIGINT PATH '$[6]',
    token BIGINT PATH '$[7]')) AS j) AS w";

const LOCKS: &str = "CREATE TABLE IF NOT EXISTS {locks} (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    owner BINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    expires_at BIGINT NULL,
    acquired_at BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    mode BIGINT NOT NULL DEFAULT 0,
    members BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB";

const QUEUE: &str = "CREATE TABLE IF NOT EXISTS {queue} (
    ticket BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARBINARY(512) NOT NULL,
    owner BINARY(16) NOT NULL UNIQUE,
    client BINARY(16) NOT NULL,
    alive_until BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    mode BIGINT NOT NULL DEFAULT 0,
    KEY by_name (name, ticket)
) ENGINE = InnoDB";

const MEMBERS: &str = "CREATE TABLE IF NOT EXISTS {members} (
    name VARBINARY(512) NOT NULL,
    owner BINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    acquired_at BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    mode BIGINT NOT NULL,
    PRIMARY KEY (name, owner)
) ENGINE = InnoDB";

/// What tables of version 0.1 lack, beside the table of members.
const UPGRADE: [&str; 3] = [
    "ALTER TABLE {locks} ADD COLUMN mode BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE {locks} ADD COLUMN members BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE {queue} ADD COLUMN mode BIGINT NOT NULL DEFAULT 0",
];

/// What happens to a row that is there. The assignments are made from left to right, each on what the earlier ones
/// left: so `owner` changes after all that depends on the old one, and then tells whether the lock was taken. A claim
/// that holds the lock already, and asks again after a lost answer, keeps its token.
const TAKEN: &str = "ON DUPLICATE KEY UPDATE
    token = IF({locks}.owner <> VALUES(owner) AND {free},
        GREATEST({locks}.token + {tokens}, VALUES(token)), {locks}.token),
    acquired_at = IF({locks}.owner <> VALUES(owner) AND {free}, VALUES(acquired_at), {locks}.acquired_at),
    label = IF({free}, VALUES(label), {locks}.label),
    owner = IF({free}, VALUES(owner), {locks}.owner),
    expires_at = IF({locks}.owner = VALUES(owner), VALUES(expires_at), {locks}.expires_at)";

const FREE: &str = "({locks}.expires_at IS NULL OR {locks}.expires_at <= VALUES(acquired_at))";

/// The usual case: the row is there and free. The token comes back in the answer's "last insert id", so one round trip is
/// enough on servers without RETURNING, too. Assignments are made from left to right: the token before the owner.
const TAKE_ROW: &str = "UPDATE {locks} SET
    token = LAST_INSERT_ID(IF(owner = ?, token, GREATEST(token, {now} - 1) + ?)),
    acquired_at = IF(owner = ?, acquired_at, {now}),
    owner = ?, expires_at = {now} + ?, label = ?
WHERE name = ? AND (owner = ? OR ((expires_at IS NULL OR expires_at <= {now})
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ? AND q.ticket < ? AND q.alive_until > {now}
        AND q.owner <> {locks}.owner)))";

/// A lock that is held is refused by a read without a lock, so refusals wait for no row. A claim that holds the lock
/// already, and asks again after a lost answer, is let past those who have queued meanwhile: its lease begins anew, as its
/// belief does.
const TAKE: &str = "INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT ?, ?, {now} + ? - 1, {now} + ?, {now}, ? FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = ? AND l.owner <> ? AND l.expires_at > {now})
    AND (NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ? AND q.ticket < ? AND q.alive_until > {now}
            AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?)))
        OR EXISTS (SELECT 1 FROM {locks} AS h WHERE h.name = ? AND h.owner = ?))
{taken}";

const TAKE_MANY: &str = "INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT UNHEX(w.name), UNHEX(w.owner), {now} + w.tokens - 1, {now} + w.ttl, {now}, w.label FROM {want}
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = UNHEX(w.name) AND l.owner <> UNHEX(w.owner)
        AND l.expires_at > {now})
    AND (NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = UNHEX(w.name) AND q.ticket < w.ticket
            AND q.alive_until > {now}
            AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = UNHEX(w.name))))
        OR EXISTS (SELECT 1 FROM {locks} AS h WHERE h.name = UNHEX(w.name) AND h.owner = UNHEX(w.owner)))
ORDER BY w.name
{taken}";

/// How each lock stands after that: the token if the claim holds it; how it is held or, if it is free, how the first one
/// ahead asks for it; and when the first lease of its holders ends.
const STANDING: &str = "SELECT
    IF(w.mode <> 0, (SELECT m.token FROM {members} AS m WHERE m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner)),
        IF(l.owner = UNHEX(w.owner) AND l.expires_at IS NOT NULL, l.token, NULL)),
    IF(l.expires_at > {now}, l.mode, (SELECT q.mode FROM {queue} AS q WHERE q.name = UNHEX(w.name)
        AND q.ticket < w.ticket AND q.alive_until > {now} AND NOT (q.owner <=> l.owner) ORDER BY q.ticket LIMIT 1)),
    IF(l.members > 0, (SELECT MIN(m.expires_at) FROM {members} AS m WHERE m.name = l.name),
        IF(l.expires_at > {now}, l.expires_at, NULL)) - {now}
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name) ORDER BY w.n";

const RELEASE: &str = "UPDATE {locks} SET expires_at = NULL WHERE name = ? AND owner = ?";

const RELEASE_MANY: &str = "UPDATE {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
SET l.expires_at = NULL";

/// Which claims have given their locks up, by this release or by an earlier one whose answer was lost.
const RELEASED: &str = "SELECT COALESCE(l.owner = UNHEX(w.owner) AND l.expires_at IS NULL, 0)
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name) ORDER BY w.n";

const RENEW: &str = "UPDATE {want} STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
SET l.expires_at = {now} + w.ttl WHERE l.expires_at IS NOT NULL";

/// Which of the held rows are not locked by somebody's transaction.
const UNLOCKED: &str = "SELECT l.owner FROM {want} STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
WHERE l.expires_at IS NOT NULL FOR UPDATE SKIP LOCKED";

/// The head of the queue, if it waits in this process. A head that does not want the lock alone may not be the only one
/// whose turn it is, and one that does need not be told while a group holds the lock.
const NEXT: &str =
    "SELECT IF(q.mode <> 0, {several}, IF(COALESCE(l.mode, 0) = 0 AND q.client = ?, q.ticket, NULL))
FROM {queue} AS q LEFT JOIN {locks} AS l ON l.name = q.name
WHERE q.name = ? AND q.alive_until > {now} AND NOT (q.owner <=> l.owner)
ORDER BY q.ticket LIMIT 1";

/// Asked again after a lost answer, a claim finds its old place.
const ENROLL: &str =
    "INSERT INTO {queue} (name, owner, client, alive_until, label, mode) VALUES (?, ?, ?, {now} + ?, ?, ?)
ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until), ticket = LAST_INSERT_ID(ticket)";

const STAY: &str = "UPDATE {queue} SET alive_until = {now} + ? WHERE ticket = ?";

const TIDY: &str = "DELETE FROM {queue} WHERE ticket = ?";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = ?";

/// The heads of the queues of locks that are free, or held by a group that is not full.
const TURNS: &str = "SELECT CAST(w.n AS SIGNED), (SELECT IF(q.mode <> 0, {several},
        IF(COALESCE(l.mode, 0) = 0 AND q.client = ?, q.ticket, NULL)) FROM {queue} AS q
    WHERE q.name = UNHEX(w.name) AND q.alive_until > {now} AND NOT (q.owner <=> l.owner) ORDER BY q.ticket LIMIT 1)
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name)
WHERE l.name IS NULL OR l.expires_at IS NULL OR l.expires_at <= {now} OR l.mode < 0 OR l.members < l.mode";

const HOLDERS: &str = "SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = ? AND expires_at > {now} AND members = 0
UNION ALL SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {members}
WHERE name = ? AND expires_at > {now} ORDER BY token";

const WAITERS: &str = "SELECT COUNT(*) FROM {queue} AS q WHERE q.name = ? AND q.alive_until > {now}
    AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?))";

/// The row of a lock that is held, for a change of it.
const HELD: &str = "SELECT mode FROM {locks} WHERE name = ? AND expires_at > {now} FOR UPDATE";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "UPDATE {locks} SET expires_at = NULL, owner = ?, mode = 0, members = 0 WHERE name = ?";

const ALIVE: &str = "SELECT COUNT(*) FROM {members} WHERE name = ? AND expires_at > {now}";

const FORCE_MEMBERS: &str = "DELETE FROM {members} WHERE name = ?";

/// A row goes only when its token is lower than what a new row would start with.
const PURGE: &str = "DELETE FROM {locks} WHERE COALESCE(expires_at, acquired_at) < {now} - ?
    AND acquired_at < {now} - ? AND token < {now}";

const PURGE_QUEUE: &str = "DELETE FROM {queue} WHERE alive_until < {now} - 60000000";

const CHECK: [&str; 3] = [
    "SELECT name, owner, token, expires_at, acquired_at, label, mode, members FROM {locks} LIMIT 0",
    "SELECT ticket, name, owner, client, alive_until, label, mode FROM {queue} LIMIT 0",
    "SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0",
];

/// A takeover updates the lock's row or deletes the member's, so it waits for the end of the transaction.
const VERIFY: &str = "SELECT 1 FROM {held} WHERE name = ? AND owner = ? AND token = ?
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
    pub(super) renew: HeldSql,
    pub(super) unlocked: HeldSql,
    pub(super) next: Sql,
    pub(super) enroll: Sql,
    pub(super) stay: Sql,
    pub(super) tidy: Sql,
    pub(super) leave: Sql,
    pub(super) turns: Sql,
    pub(super) holders: Sql,
    pub(super) waiters: Sql,
    pub(super) held: Sql,
    pub(super) force: Sql,
    pub(super) alive: Sql,
    pub(super) force_members: Sql,
    pub(super) purge: Sql,
    pub(super) purge_queue: Sql,
    pub(super) verify: HeldSql,
    pub(super) check: [Sql; 3],
    pub(super) create: [Sql; 3],
    pub(super) upgrade: [Sql; 3],
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let sql = |text: &str| Sql::new(table, &fill(text));
        let held = |text: &str| HeldSql::new(table, &fill(text));
        // One claim is bound parameter by parameter, many are rows of the JSON parameter.
        let take = |text: &str, tokens: &str| Sql::new(table, &fill(text).replace("{tokens}", tokens));
        Self {
            take_row: sql(TAKE_ROW),
            take: take(TAKE, "?"),
            take_returning: take(&format!("{TAKE} RETURNING owner, token"), "?"),
            take_many: take(TAKE_MANY, "w.tokens"),
            standing: sql(STANDING),
            release: sql(RELEASE),
            release_many: sql(RELEASE_MANY),
            released: sql(RELEASED),
            renew: held(RENEW),
            unlocked: held(UNLOCKED),
            next: sql(NEXT),
            enroll: sql(ENROLL),
            stay: sql(STAY),
            tidy: sql(TIDY),
            leave: sql(LEAVE),
            turns: sql(TURNS),
            holders: sql(HOLDERS),
            waiters: sql(WAITERS),
            held: sql(HELD),
            force: sql(FORCE),
            alive: sql(ALIVE),
            force_members: sql(FORCE_MEMBERS),
            purge: sql(PURGE),
            purge_queue: sql(PURGE_QUEUE),
            verify: held(VERIFY),
            check: CHECK.map(sql),
            create: [LOCKS, QUEUE, MEMBERS].map(sql),
            upgrade: UPGRADE.map(sql),
        }
    }
}

/// Puts the parts into a statement.
pub(super) fn fill(text: &str) -> String {
    text.replace("{taken}", TAKEN)
        .replace("{free}", FREE)
        .replace("{want}", WANT)
        .replace("{now}", NOW)
        .replace("{several}", &SEVERAL.to_string())
}
