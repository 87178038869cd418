//! What is sent to SQLite.
//!
//! Times are microseconds since 1970, read from the host's clock inside the statement: all processes on one file share
//! one host. The clock is read after the write lock has been taken, so waiting for it does not age a lease.

use super::examine::NAMES;
use super::write::{Commits, Write};
use crate::dialect::SEVERAL;
use crate::table::{HeldSql, Sql, Table};

const NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

const LOCKS: &str = "CREATE TABLE IF NOT EXISTS {locks} (
    name TEXT COLLATE BINARY PRIMARY KEY NOT NULL,
    owner BLOB NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER,
    acquired_at INTEGER NOT NULL,
    label TEXT NOT NULL,
    mode INTEGER NOT NULL DEFAULT 0,
    members INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID";

const QUEUE: &str = "CREATE TABLE IF NOT EXISTS {queue} (
    ticket INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT COLLATE BINARY NOT NULL,
    owner BLOB NOT NULL UNIQUE,
    client BLOB NOT NULL,
    alive_until INTEGER NOT NULL,
    label TEXT NOT NULL,
    mode INTEGER NOT NULL DEFAULT 0,
    entered_at INTEGER
)";

const QUEUE_INDEX: &str = "CREATE INDEX IF NOT EXISTS {base}_queue_name ON {queue} (name, ticket)";

/// Tickets begin with the time, so that those of a file that was removed mean nobody in the one that took its place.
const TICKETS: &str = "INSERT INTO sqlite_sequence (name, seq) SELECT '{base}_queue', {now}
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{base}_queue')";

const MEMBERS: &str = "CREATE TABLE IF NOT EXISTS {members} (
    name TEXT COLLATE BINARY NOT NULL,
    owner BLOB NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    label TEXT NOT NULL,
    mode INTEGER NOT NULL,
    PRIMARY KEY (name, owner)
) WITHOUT ROWID";

/// What tables of earlier versions lack, beside the table of members.
const UPGRADE: [&str; 4] = [
    "ALTER TABLE {locks} ADD COLUMN mode INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE {locks} ADD COLUMN members INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE {queue} ADD COLUMN mode INTEGER NOT NULL DEFAULT 0",
    // Earlier versions do not name it.
    "ALTER TABLE {queue} ADD COLUMN entered_at INTEGER",
];

/// A free lock has no `expires_at`; `owner` then names the last holder. A lock is taken if it is free or its lease has
/// ended, and nobody who is still there stands before us. The last holder does not count: its place may not have been
/// tidied up yet. A claim that holds the lock already, and asks again after a lost answer, keeps its token and its lock,
/// whoever has queued meanwhile.
const TAKE: &str = "INSERT INTO {locks} AS l (name, owner, token, expires_at, acquired_at, label)
SELECT ?1, ?2, {now} + ?6 - 1, {now} + ?3, {now}, ?4
WHERE NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ?1 AND q.ticket < ?5 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1))
    OR EXISTS (SELECT 1 FROM {locks} WHERE name = ?1 AND owner = ?2)
ON CONFLICT (name) DO UPDATE SET
    token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + ?6, excluded.token) END,
    acquired_at = CASE WHEN l.owner = excluded.owner THEN l.acquired_at ELSE excluded.acquired_at END,
    owner = excluded.owner, expires_at = excluded.expires_at, label = excluded.label
WHERE l.expires_at IS NULL OR l.expires_at <= {now} OR l.owner = excluded.owner
RETURNING token";

/// How the lock is held or, if it is free, how the first one ahead asks for it; when the first lease of its holders
/// ends; and whether this claim was the last to take it alone.
const LOCK_STATE: &str = "SELECT
    CASE WHEN l.expires_at > {now} THEN l.mode ELSE (SELECT q.mode FROM {queue} AS q WHERE q.name = w.name
        AND q.ticket < ?2 AND q.alive_until > {now} AND q.owner IS NOT l.owner ORDER BY q.ticket LIMIT 1) END,
    CASE WHEN l.members > 0 THEN (SELECT min(m.expires_at) FROM {members} AS m WHERE m.name = l.name) - {now}
        WHEN l.expires_at > {now} THEN l.expires_at - {now} END,
    coalesce(l.owner = ?3, 0)
FROM (SELECT ?1 AS name) AS w LEFT JOIN {locks} AS l ON l.name = w.name";

const RELEASE: &str = "UPDATE {locks} SET expires_at = NULL WHERE name = ?1 AND owner = ?2";

/// The head of the queue, if it waits in this process. A head that does not want the lock alone may not be the only one
/// whose turn it is, and one that does need not be told while a group holds the lock.
const NEXT: &str = "SELECT CASE WHEN q.mode <> 0 THEN {several}
    WHEN coalesce(l.mode, 0) = 0 AND q.client = ?2 THEN q.ticket END
FROM {queue} AS q LEFT JOIN {locks} AS l ON l.name = q.name
WHERE q.name = ?1 AND q.alive_until > {now} AND q.owner IS NOT l.owner ORDER BY q.ticket LIMIT 1";

const RENEW: &str = "UPDATE {held} AS l SET expires_at = {now} + w.ttl
FROM (SELECT value ->> 0 AS name, unhex(value ->> 1) AS owner, value ->> 2 AS ttl FROM json_each(?1)) AS w
WHERE l.name = w.name AND l.owner = w.owner AND l.expires_at IS NOT NULL
RETURNING owner";

const ENQUEUE: &str = "INSERT INTO {queue} (name, owner, client, alive_until, label, mode, entered_at)
VALUES (?1, ?2, ?3, {now} + ?4, ?5, ?6, {now})
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until
RETURNING ticket";

const KEEP_PLACE: &str = "UPDATE {queue} SET alive_until = {now} + ?2
WHERE ticket IN (SELECT value FROM json_each(?1))
RETURNING ticket";

const FORGET_PLACE: &str = "DELETE FROM {queue} WHERE ticket IN (SELECT value FROM json_each(?1))";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = ?1";

/// The heads of the queues of locks that are free, or held by a group that is not full.
const TURNS: &str = "SELECT w.key, (SELECT CASE WHEN q.mode <> 0 THEN {several}
        WHEN coalesce(l.mode, 0) = 0 AND q.client = ?2 THEN q.ticket END FROM {queue} AS q
    WHERE q.name = w.value AND q.alive_until > {now} AND q.owner IS NOT l.owner ORDER BY q.ticket LIMIT 1)
FROM json_each(?1) AS w LEFT JOIN {locks} AS l ON l.name = w.value
WHERE l.name IS NULL OR l.expires_at IS NULL OR l.expires_at <= {now} OR l.mode < 0 OR l.members < l.mode";

const HOLDERS: &str = "SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = ?1 AND expires_at > {now} AND members = 0
UNION ALL SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {members}
WHERE name = ?1 AND expires_at > {now} ORDER BY token";

/// How many wait, and how long the first of them has waited.
const WAITERS: &str =
    "SELECT count(*), CASE WHEN count(*) = count(q.entered_at) THEN {now} - min(q.entered_at) END
    FROM {queue} AS q WHERE q.name = ?1 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)";

const HELD: &str = "SELECT mode FROM {locks} WHERE name = ?1 AND expires_at > {now}";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "UPDATE {locks} SET expires_at = NULL, owner = ?2, mode = 0, members = 0 WHERE name = ?1";

const FORCE_MEMBERS: &str = "DELETE FROM {members} WHERE name = ?1 RETURNING expires_at > {now}";

/// The last name of a portion.
const PORTION: &str =
    "SELECT max(name) FROM (SELECT name FROM {locks} WHERE name > ?1 ORDER BY name LIMIT ?2)";

/// A row goes only when its token is lower than what a new row would start with. The names are those of one portion: an
/// index by time would cost each acquire and each release more than the purge saves.
const PURGE: &str = "DELETE FROM {locks} WHERE name > ?2 AND name <= ?3
    AND coalesce(expires_at, acquired_at) < {now} - ?1 AND acquired_at < {now} - ?1 AND token < {now}";

const PURGE_QUEUE: &str = "DELETE FROM {queue}
WHERE ticket IN (SELECT ticket FROM {queue} WHERE alive_until < {now} - 60000000 LIMIT ?1)";

const CHECK: [&str; 3] = [
    "SELECT name, owner, token, expires_at, acquired_at, label, mode, members FROM {locks} LIMIT 0",
    "SELECT ticket, name, owner, client, alive_until, label, mode, entered_at FROM {queue} LIMIT 0",
    "SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0",
];

/// The write makes the transaction the only writer of the file until it ends, so nobody can take the lock meanwhile.
const VERIFY: &str = "UPDATE {held} SET token = token
WHERE name = ?1 AND owner = ?2 AND token = ?3 AND expires_at IS NOT NULL RETURNING 1";

pub(super) struct Statements {
    pub(super) take: Write,
    pub(super) lock_state: Sql,
    pub(super) release: Write,
    pub(super) next: Sql,
    pub(super) renew: Write,
    pub(super) renew_members: Write,
    pub(super) enqueue: Write,
    pub(super) keep_place: Write,
    pub(super) forget_place: Write,
    pub(super) leave: Write,
    pub(super) turns: Sql,
    pub(super) holders: Sql,
    pub(super) waiters: Sql,
    pub(super) names: Sql,
    pub(super) held: Sql,
    pub(super) force: Sql,
    pub(super) force_members: Sql,
    pub(super) portion: Sql,
    pub(super) purge: Write,
    pub(super) purge_queue: Write,
    pub(super) verify: HeldSql,
    pub(super) check: [Sql; 3],
    pub(super) create: [Sql; 5],
    pub(super) upgrade: [Sql; 4],
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let sql = |text: &str| Sql::new(table, &fill(text));
        let synced = |text: &str| Write::new(sql, Commits::Synced, text);
        let written = |text: &str| Write::new(sql, Commits::Written, text);
        let held = |text: &str| HeldSql::new(table, &fill(text));
        Self {
            take: synced(TAKE),
            lock_state: sql(LOCK_STATE),
            release: written(RELEASE),
            next: sql(NEXT),
            renew: synced(&RENEW.replace("{held}", "{locks}")),
            renew_members: synced(&RENEW.replace("{held}", "{members}")),
            enqueue: written(ENQUEUE),
            keep_place: written(KEEP_PLACE),
            forget_place: written(FORGET_PLACE),
            leave: written(LEAVE),
            turns: sql(TURNS),
            holders: sql(HOLDERS),
            waiters: sql(WAITERS),
            names: sql(NAMES),
            held: sql(HELD),
            force: sql(FORCE),
            force_members: sql(FORCE_MEMBERS),
            portion: sql(PORTION),
            purge: written(PURGE),
            purge_queue: written(PURGE_QUEUE),
            verify: held(VERIFY),
            check: CHECK.map(sql),
            create: [LOCKS, QUEUE, QUEUE_INDEX, TICKETS, MEMBERS].map(sql),
            upgrade: UPGRADE.map(sql),
        }
    }
}

/// Puts the clock and the marks into a statement.
pub(super) fn fill(text: &str) -> String {
    text.replace("{now}", NOW).replace("{several}", &SEVERAL.to_string())
}
