//! What is sent to MySQL and MariaDB.
//!
//! Times are microseconds since 1970 by the server's clock. `UTC_TIMESTAMP` and `NOW` are both fixed when a statement
//! starts, and waiting for a row would age a lease; `SYSDATE` goes on. It is in the session's time zone, so only the
//! time that has passed since `NOW` is taken from it, and the start itself from `UTC_TIMESTAMP`. So the result does not
//! depend on the zone, in which an hour comes twice each year, nor on a `SET timestamp`. Every connection is set to UTC
//! as well; a proxy that gives us another session may have lost that.
//!
//! Many claims travel as one JSON parameter, sorted by name: the text of a statement does not depend on their number,
//! so it is prepared once, and two batches lock their rows in the same order.
//!
//! `UPDATE` waits for a row that a transaction has locked before it looks at it, and the shortest wait that MySQL knows
//! is a second, which all other requests on the connection would wait as well. So an update that may meet such a row finds
//! its rows by a derived table with a LIMIT, which is read before and not merged into the update. An update of one table
//! reads it without a lock, and so goes on only with rows that nobody holds. (One of several tables would lock what
//! it reads for sharing, and deadlock when two want to change it.) Where even a row that nobody holds may be locked, it is
//! read with `NOWAIT` or `SKIP LOCKED`.

use super::examine::{ABOUT, NAMES};
use crate::dialect::SEVERAL;
use crate::table::{HeldSql, Sql, Table};

const NOW: &str = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
    + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)))";

/// The JSON parameter as rows. They are a derived table because MySQL refuses `FOR UPDATE` in a statement that names
/// `JSON_TABLE` itself: its rows cannot be locked (error 3569).
const WANT: &str = "(SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (n FOR ORDINALITY,
    name VARCHAR(1024) CHARACTER SET utf8mb4 PATH '$[0]', owner CHAR(32) CHARACTER SET utf8mb4 PATH '$[1]', ttl BIGINT PATH '$[2]', ticket BIGINT PATH '$[3]',
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
    entered_at BIGINT NULL,
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

/// What tables of earlier versions lack, beside the table of members.
const UPGRADE: [&str; 4] = [
    "ALTER TABLE {locks} ADD COLUMN mode BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE {locks} ADD COLUMN members BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE {queue} ADD COLUMN mode BIGINT NOT NULL DEFAULT 0",
    // Earlier versions do not name it.
    "ALTER TABLE {queue} ADD COLUMN entered_at BIGINT NULL",
];

/// Takes a row that is there and free. The token comes back in the answer's "last insert id", so one round trip is
/// enough, on servers without RETURNING, too. A claim that holds the lock already, and asks again after a lost answer,
/// keeps its token and is let past those who have queued meanwhile: its lease begins anew, as does the validity that it counts.
///
/// The token is assigned before the owner and depends on the old one, so it makes no difference whether assignments see
/// what earlier ones left or, with `SIMULTANEOUS_ASSIGNMENT`, the old row.
const TAKE: &str = "UPDATE {locks} SET token = LAST_INSERT_ID(IF(owner = ?, token, GREATEST(token, {now} - 1) + ?)),
    acquired_at = IF(owner = ?, acquired_at, {now}), owner = ?, expires_at = {now} + ?, label = ?
WHERE name = ? AND name = (SELECT f.found FROM {found}) AND (owner = ? OR ((expires_at IS NULL OR expires_at <= {now})
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ? AND q.ticket < ? AND q.alive_until > {now}
        AND q.owner <> {locks}.owner)))";

/// The usual case: the last holder has released it.
const FREE: &str =
    "(SELECT name AS found FROM {locks} WHERE name = ? AND (owner = ? OR expires_at IS NULL) LIMIT 1) AS f";

/// The lease of the last holder has ended. A transaction that has verified it keeps the row: that is an error at once.
const OVERDUE: &str = "(SELECT name AS found FROM {locks}
    WHERE name = ? AND (owner = ? OR expires_at IS NULL OR expires_at <= {now}) LIMIT 1 FOR UPDATE NOWAIT) AS f";

/// Both, for many locks. Rows that somebody has locked are passed over.
const TAKE_MANY: &str =
    "UPDATE (SELECT l.name AS found, UNHEX(w.owner) AS owner, w.ttl, w.ticket, w.label, w.tokens
    FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(w.name)
    WHERE l.owner = UNHEX(w.owner) OR l.expires_at IS NULL OR l.expires_at <= {now}
    LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f
    STRAIGHT_JOIN {locks} FORCE INDEX (PRIMARY) ON {locks}.name = f.found SET
    {locks}.token = IF({locks}.owner = f.owner, {locks}.token, GREATEST({locks}.token, {now} - 1) + f.tokens),
    {locks}.acquired_at = IF({locks}.owner = f.owner, {locks}.acquired_at, {now}),
    {locks}.owner = f.owner, {locks}.expires_at = {now} + f.ttl, {locks}.label = f.label
WHERE {locks}.owner = f.owner OR (({locks}.expires_at IS NULL OR {locks}.expires_at <= {now})
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = f.found AND q.ticket < f.ticket
        AND q.alive_until > {now} AND q.owner <> {locks}.owner))";

/// The first use of a lock. Two who come at the same time are told so by an error, and ask again.
const TAKE_NEW: &str = "INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT ?, ?, LAST_INSERT_ID({now} + ? - 1), {now} + ?, {now}, ? FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = ?)
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ? AND q.ticket < ? AND q.alive_until > {now})";

const TAKE_NEW_MANY: &str = "INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT UNHEX(w.name), UNHEX(w.owner), {now} + w.tokens - 1, {now} + w.ttl, {now}, w.label FROM {want}
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = UNHEX(w.name))
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = UNHEX(w.name) AND q.ticket < w.ticket
        AND q.alive_until > {now})
ORDER BY w.name";

/// How each lock stands after that: the token if the claim holds it; how it is held or, if it is free, how the first one
/// ahead asks for it; when the first lease of its holders ends; and whether there is a row.
const LOCK_STATE: &str = "SELECT
    IF(w.mode <> 0, (SELECT m.token FROM {members} AS m WHERE m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner)),
        IF(l.owner = UNHEX(w.owner) AND l.expires_at IS NOT NULL, l.token, NULL)),
    IF(l.expires_at > {now}, l.mode, (SELECT q.mode FROM {queue} AS q WHERE q.name = UNHEX(w.name)
        AND q.ticket < w.ticket AND q.alive_until > {now} AND NOT (q.owner <=> l.owner) ORDER BY q.ticket LIMIT 1)),
    IF(l.members > 0, (SELECT MIN(m.expires_at) FROM {members} AS m WHERE m.name = l.name),
        IF(l.expires_at > {now}, l.expires_at, NULL)) - {now},
    CAST(l.name IS NOT NULL AS SIGNED)
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name) ORDER BY w.n";

/// Only a row that is ours is locked: a claim that was refused gives up as well, and must not wait for a transaction
/// that has verified another's hold. The "last insert id" of the answer is the place of the first waiter, or 0: only if there
/// is one is more to be asked. The detour by `NULLIF` is NULL, and nothing that an optimizer leaves out.
const RELEASE: &str =
    "UPDATE {locks} SET expires_at = NULLIF(0 * LAST_INSERT_ID(COALESCE((SELECT MIN(q.ticket)
    FROM {queue} AS q WHERE q.name = ? AND q.alive_until > {now} AND q.owner <> {locks}.owner), 0)), 0)
WHERE name = ? AND owner = ? AND name = (SELECT f.found
    FROM (SELECT name AS found FROM {locks} WHERE name = ? AND owner = ? LIMIT 1) AS f)";

/// Which of the locks are those of their claims.
const OWNED: &str = "SELECT l.owner FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)";

const RELEASE_MANY: &str = "UPDATE {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
SET l.expires_at = NULL";

/// Which claims have given their locks up, by this release or by an earlier one whose answer was lost.
const RELEASED: &str = "SELECT COALESCE(l.owner = UNHEX(w.owner) AND l.expires_at IS NULL, 0)
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name) ORDER BY w.n";

/// Rows that a transaction has verified are passed over, and must not hold up the others. How many were found tells
/// whether there are such rows.
const RENEW: &str = "UPDATE (SELECT l.name, l.owner, w.ttl FROM {want}
    STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
    WHERE l.expires_at IS NOT NULL LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f
    STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY) ON l.name = f.name AND l.owner = f.owner
SET l.expires_at = {now} + f.ttl";

/// Which of the held rows are not locked by somebody's transaction.
const UNLOCKED: &str = "SELECT l.owner FROM {want} STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
WHERE l.expires_at IS NOT NULL FOR UPDATE SKIP LOCKED";

/// What of a head is to be said: its ticket, if it waits in this process, and else its client, if that can be woken. A head
/// that does not want the lock alone may not be the only one whose turn it is, and one that does need not be told while a
/// group holds the lock.
const HEAD: &str = "IF(q.mode <> 0, {several}, IF(COALESCE(l.mode, 0) = 0 AND q.client = ?, q.ticket, NULL)),
    IF(q.mode = 0 AND COALESCE(l.mode, 0) = 0 AND q.client <> ? AND {parked} IS NOT NULL, q.client, NULL)";

/// The parked connection of a waiter's client, see `push.rs`.
const PARKED: &str = "IS_USED_LOCK(CONCAT('lockwell_', LOWER(HEX(q.client))))";

/// The head of the queue.
const NEXT: &str = "SELECT {head} FROM {queue} AS q LEFT JOIN {locks} AS l ON l.name = q.name
WHERE q.name = ? AND q.alive_until > {now} AND NOT (q.owner <=> l.owner)
ORDER BY q.ticket LIMIT 1";

/// Asked again after a lost answer, a claim finds its old place.
const ENQUEUE: &str = "INSERT INTO {queue} (name, owner, client, alive_until, label, mode, entered_at)
VALUES (?, ?, ?, {now} + ?, ?, ?, {now})
ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until), ticket = LAST_INSERT_ID(ticket)";

const KEEP_PLACE: &str = "UPDATE {queue} SET alive_until = {now} + ? WHERE ticket = ?";

const FORGET_PLACE: &str = "DELETE FROM {queue} WHERE ticket = ?";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = ?";

/// The heads of the queues of locks that are free, or held by a group that is not full.
const TURNS: &str = "SELECT CAST(w.n AS SIGNED), {head}
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name)
JOIN {queue} AS q ON q.ticket = (SELECT MIN(h.ticket) FROM {queue} AS h
    WHERE h.name = UNHEX(w.name) AND h.alive_until > {now} AND NOT (h.owner <=> l.owner))
WHERE l.name IS NULL OR l.expires_at IS NULL OR l.expires_at <= {now} OR l.mode < 0 OR l.members < l.mode";

/// Whose turn it is among the waiters of a client. An answer of `t` and tickets, leaving out those that are listed; or, if
/// there are none, of `s` and what came of the wait; or `p` if this is not the connection that has the client's name.
const DUE: &str =
    "SELECT IF(IS_USED_LOCK(?) <=> CONNECTION_ID(), COALESCE(CONCAT('t', (SELECT GROUP_CONCAT(q.ticket)
    FROM (SELECT ticket, name, client, mode, ROW_NUMBER() OVER (PARTITION BY name ORDER BY ticket) AS place,
            MAX(mode >= 0) OVER (PARTITION BY name ORDER BY ticket) AS behind_others FROM {queue} AS x
        WHERE x.alive_until > {now}
            AND NOT EXISTS (SELECT 1 FROM {locks} AS h WHERE h.name = x.name AND h.owner = x.owner)
        ) AS q LEFT JOIN {locks} AS l ON l.name = q.name
    WHERE q.client = ? AND {turn} AND NOT FIND_IN_SET(q.ticket, ?))), CONCAT('s', {wait})), 'p')";

/// 0 if nobody has interrupted it, else 1.
const ASLEEP: &str = "SLEEP(?)";

/// The same for a name that another connection holds, and 2 if nobody does.
const BLOCKED: &str = "COALESCE(2 * GET_LOCK(?, ?), 1)";

/// Whether it is the turn of a waiter: the first, a reader behind none but readers, or one for whom there is a permit.
pub(super) const TURN: &str = "CASE WHEN l.expires_at > {now} AND (l.mode = 0 OR l.mode <> q.mode) THEN 0
    WHEN q.mode < 0 THEN NOT q.behind_others
    WHEN q.mode > 0 THEN IF(l.expires_at > {now}, l.members, 0) + q.place <= q.mode
    ELSE q.place = 1 END";

const HOLDERS: &str = "SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = ? AND expires_at > {now} AND members = 0
UNION ALL SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {members}
WHERE name = ? AND expires_at > {now} ORDER BY token";

/// How many wait, and how long the first of them has waited.
const WAITERS: &str = "SELECT COUNT(*), IF(COUNT(*) = COUNT(q.entered_at), {now} - MIN(q.entered_at), NULL)
    FROM {queue} AS q WHERE q.name = ? AND q.alive_until > {now}
    AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?))";

/// The row of a lock that is held, for a change of it.
const HELD: &str = "SELECT mode FROM {locks} WHERE name = ? AND expires_at > {now} FOR UPDATE";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "UPDATE {locks} SET expires_at = NULL, owner = ?, mode = 0, members = 0 WHERE name = ?";

const ALIVE: &str = "SELECT COUNT(*) FROM {members} WHERE name = ? AND expires_at > {now}";

const FORCE_MEMBERS: &str = "DELETE FROM {members} WHERE name = ?";

/// The last name of a portion of the purge.
const PORTION: &str =
    "SELECT MAX(p.name) FROM (SELECT name FROM {locks} WHERE name > ? ORDER BY name LIMIT ?) AS p";

/// A row goes only when its token is lower than what a new row would start with. One that is in use is passed over.
const PURGE: &str = "DELETE l FROM (SELECT name FROM {locks} FORCE INDEX (PRIMARY) WHERE name > ? AND name <= ?
    AND COALESCE(expires_at, acquired_at) < {now} - ? AND acquired_at < {now} - ? AND token < {now}
    LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = f.name";

const PURGE_QUEUE: [&str; 1] = ["DELETE FROM {queue} WHERE alive_until < {now} - 60000000"];

const CHECK: [&str; 3] = [
    "SELECT name, owner, token, expires_at, acquired_at, label, mode, members FROM {locks} LIMIT 0",
    "SELECT ticket, name, owner, client, alive_until, label, mode, entered_at FROM {queue} LIMIT 0",
    "SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0",
];

/// A takeover updates the lock's row or deletes the member's, so it waits for the end of the transaction.
const VERIFY: &str = "SELECT 1 FROM {held} WHERE name = ? AND owner = ? AND token = ?
    AND expires_at IS NOT NULL LOCK IN SHARE MODE";

pub(super) struct Statements {
    pub(super) take_free: Sql,
    pub(super) take_overdue: Sql,
    pub(super) take_many: Sql,
    pub(super) take_new: Sql,
    pub(super) take_new_many: Sql,
    pub(super) lock_state: Sql,
    pub(super) release: Sql,
    pub(super) owned: Sql,
    pub(super) release_many: Sql,
    pub(super) released: Sql,
    pub(super) renew: HeldSql,
    pub(super) unlocked: HeldSql,
    pub(super) next: Sql,
    pub(super) enqueue: Sql,
    pub(super) keep_place: Sql,
    pub(super) forget_place: Sql,
    pub(super) leave: Sql,
    pub(super) turns: Sql,
    pub(super) due: Sql,
    pub(super) due_blocked: Sql,
    pub(super) holders: Sql,
    pub(super) waiters: Sql,
    pub(super) names: Sql,
    pub(super) about: Sql,
    pub(super) held: Sql,
    pub(super) force: Sql,
    pub(super) alive: Sql,
    pub(super) force_members: Sql,
    pub(super) portion: Sql,
    pub(super) purge: Sql,
    pub(super) purge_queue: [Sql; 1],
    pub(super) verify: HeldSql,
    pub(super) check: [Sql; 3],
    pub(super) create: [Sql; 3],
    pub(super) upgrade: [Sql; 4],
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let sql = |text: &str| Sql::new(table, &fill(text));
        let held = |text: &str| HeldSql::new(table, &fill(text));
        let take = |found: &str| sql(&TAKE.replace("{found}", found));
        Self {
            take_free: take(FREE),
            take_overdue: take(OVERDUE),
            take_many: sql(TAKE_MANY),
            take_new: sql(TAKE_NEW),
            take_new_many: sql(TAKE_NEW_MANY),
            lock_state: sql(LOCK_STATE),
            release: sql(RELEASE),
            owned: sql(OWNED),
            release_many: sql(RELEASE_MANY),
            released: sql(RELEASED),
            renew: held(RENEW),
            unlocked: held(UNLOCKED),
            next: sql(NEXT),
            enqueue: sql(ENQUEUE),
            keep_place: sql(KEEP_PLACE),
            forget_place: sql(FORGET_PLACE),
            leave: sql(LEAVE),
            turns: sql(TURNS),
            due: sql(&DUE.replace("{wait}", ASLEEP)),
            due_blocked: sql(&DUE.replace("{wait}", BLOCKED)),
            holders: sql(HOLDERS),
            waiters: sql(WAITERS),
            names: sql(NAMES),
            about: sql(ABOUT),
            held: sql(HELD),
            force: sql(FORCE),
            alive: sql(ALIVE),
            force_members: sql(FORCE_MEMBERS),
            portion: sql(PORTION),
            purge: sql(PURGE),
            purge_queue: PURGE_QUEUE.map(sql),
            verify: held(VERIFY),
            check: CHECK.map(sql),
            create: [LOCKS, QUEUE, MEMBERS].map(sql),
            upgrade: UPGRADE.map(sql),
        }
    }
}

/// Puts the parts into a statement.
pub(super) fn fill(text: &str) -> String {
    text.replace("{want}", WANT)
        .replace("{head}", HEAD)
        .replace("{parked}", PARKED)
        .replace("{turn}", TURN)
        .replace("{now}", NOW)
        .replace("{several}", &SEVERAL.to_string())
}
