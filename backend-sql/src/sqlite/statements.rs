//! What is sent to SQLite.
//!
//! Times are microseconds since 1970, read from the host's clock inside the statement: all processes on one file share
//! one host. The clock is read after the write lock has been taken, so waiting for it does not age a lease.

use crate::table::{Sql, Table};

const NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

const LOCKS: &str = "CREATE TABLE IF NOT EXISTS {locks} (
    name TEXT COLLATE BINARY PRIMARY KEY NOT NULL,
    owner BLOB NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER,
    acquired_at INTEGER NOT NULL,
    label TEXT NOT NULL
) WITHOUT ROWID";

const QUEUE: &str = "CREATE TABLE IF NOT EXISTS {queue} (
    ticket INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT COLLATE BINARY NOT NULL,
    owner BLOB NOT NULL UNIQUE,
    client BLOB NOT NULL,
    alive_until INTEGER NOT NULL,
    label TEXT NOT NULL
)";

const QUEUE_INDEX: &str = "CREATE INDEX IF NOT EXISTS {queue}_name ON {queue} (name, ticket)";

/// A free lock has no `expires_at`; `owner` then names the last holder. A lock is taken if it is free or its lease has
/// ended, and nobody who is still there stands before us. The last holder does not count: its place may not have been
/// tidied up yet. A claim that holds the lock already, and asks again after a lost answer, keeps its token.
const TAKE: &str = "INSERT INTO {locks} AS l (name, owner, token, expires_at, acquired_at, label)
SELECT ?1, ?2, {now}, {now} + ?3, {now}, ?4
WHERE NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ?1 AND q.ticket < ?5 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1))
ON CONFLICT (name) DO UPDATE SET
    token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + 1, excluded.token) END,
    acquired_at = CASE WHEN l.owner = excluded.owner THEN l.acquired_at ELSE excluded.acquired_at END,
    owner = excluded.owner, expires_at = excluded.expires_at, label = excluded.label
WHERE l.expires_at IS NULL OR l.expires_at <= {now} OR l.owner = excluded.owner
RETURNING token";

const LEFT: &str = "SELECT expires_at - {now} FROM {locks} WHERE name = ?1";

const RELEASE: &str = "UPDATE {locks} SET expires_at = NULL WHERE name = ?1 AND owner = ?2 RETURNING token";

const NEXT: &str = "SELECT CASE WHEN client = ?2 THEN ticket END FROM {queue}
WHERE name = ?1 AND alive_until > {now}
    AND owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)
ORDER BY ticket LIMIT 1";

const RENEW: &str = "UPDATE {locks} AS l SET expires_at = {now} + w.ttl
FROM (SELECT value ->> 0 AS name, unhex(value ->> 1) AS owner, value ->> 2 AS ttl FROM json_each(?1)) AS w
WHERE l.name = w.name AND l.owner = w.owner AND l.expires_at IS NOT NULL
RETURNING owner";

const ENROLL: &str = "INSERT INTO {queue} (name, owner, client, alive_until, label)
VALUES (?1, ?2, ?3, {now} + ?4, ?5)
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until
RETURNING ticket";

const STAY: &str = "UPDATE {queue} SET alive_until = {now} + ?2
WHERE ticket IN (SELECT value FROM json_each(?1))
RETURNING ticket";

const TIDY: &str = "DELETE FROM {queue} WHERE ticket IN (SELECT value FROM json_each(?1))";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = ?1";

const TURNS: &str = "SELECT (SELECT CASE WHEN q.client = ?2 THEN q.ticket END FROM {queue} AS q
    WHERE q.name = w.value AND q.alive_until > {now} AND q.owner IS NOT l.owner ORDER BY q.ticket LIMIT 1)
FROM json_each(?1) AS w LEFT JOIN {locks} AS l ON l.name = w.value
WHERE l.name IS NULL OR l.expires_at IS NULL OR l.expires_at <= {now}";

const HOLDER: &str = "SELECT token, label, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = ?1 AND expires_at > {now}";

const WAITERS: &str = "SELECT count(*) FROM {queue} AS q WHERE q.name = ?1 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "UPDATE {locks} SET expires_at = NULL, owner = ?2 WHERE name = ?1 AND expires_at > {now}";

/// A row goes only when its token is lower than what a new row would start with.
const PURGE: &str = "DELETE FROM {locks} WHERE coalesce(expires_at, acquired_at) < {now} - ?1
    AND acquired_at < {now} - ?1 AND token < {now}";

const PURGE_QUEUE: &str = "DELETE FROM {queue} WHERE alive_until < {now} - 60000000";

const CHECK_LOCKS: &str = "SELECT name, owner, token, expires_at, acquired_at, label FROM {locks} LIMIT 0";
const CHECK_QUEUE: &str = "SELECT ticket, name, owner, client, alive_until, label FROM {queue} LIMIT 0";

/// The write makes the transaction the only writer of the file until it ends, so nobody can take the lock meanwhile.
const VERIFY: &str = "UPDATE {locks} SET token = token
WHERE name = ?1 AND owner = ?2 AND token = ?3 AND expires_at IS NOT NULL RETURNING 1";

pub(super) struct Statements {
    pub(super) take: Sql,
    pub(super) left: Sql,
    pub(super) release: Sql,
    pub(super) next: Sql,
    pub(super) renew: Sql,
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
    pub(super) create: [Sql; 3],
    ddl: String,
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let sql = |text: &str| Sql::new(table, &text.replace("{now}", NOW));
        Self {
            take: sql(TAKE),
            left: sql(LEFT),
            release: sql(RELEASE),
            next: sql(NEXT),
            renew: sql(RENEW),
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
            create: [sql(LOCKS), sql(QUEUE), sql(QUEUE_INDEX)],
            ddl: [LOCKS, QUEUE, QUEUE_INDEX].map(|text| format!("{};\n", table.fill(text))).concat(),
        }
    }

    pub(super) fn ddl(&self) -> String {
        self.ddl.clone()
    }
}
