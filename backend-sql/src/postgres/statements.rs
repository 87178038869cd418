//! What is sent to PostgreSQL.
//!
//! All times are the server's, by `clock_timestamp()`: `now()` stands still within a transaction, and a statement that
//! waited for a row would see an old time. The single form of a statement serves the usual case, one claim, and touches
//! one row once. The batch form serves many claims, and passes over rows that a transaction has locked.

use super::look::{ABOUT, NAMES};
use crate::dialect::SEVERAL;
use crate::table::{HeldSql, Sql, Table};

const FLOOR: &str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";

/// Whether the row may be taken by somebody else: it is free or its lease has ended, and nobody who is still there
/// stands before the ticket. The last holder does not count: its place may not have been tidied up yet.
const FREE: &str = "(l.expires_at IS NULL OR l.expires_at <= clock_timestamp())
    AND NOT EXISTS (SELECT 1 FROM {queue} q WHERE q.name = l.name AND q.ticket < {ticket}
        AND q.alive_until > clock_timestamp() AND q.owner <> l.owner)";

/// A lock timeout for this one statement: it needs no session state, so it works behind a pooler. A transaction that
/// has verified the lock holds the row, and nobody else must wait for that.
const PATIENCE: &str = "set_config('lock_timeout', '50ms', true) IS NOT NULL";

/// For what grants or extends a lease: its commit waits for the disk, whatever the role, the database or the server's file
/// say, since a lease that a crash of the server forgets is granted again. Any other value than `off` stays: an administrator
/// may ask for more, that a replica has it too, or knows why a replica need not have it.
const DURABLE: &str = "CASE current_setting('synchronous_commit') WHEN 'off'
        THEN set_config('synchronous_commit', 'on', true) IS NOT NULL ELSE true END";

/// For what needs no such wait. A release that a crash forgets lasts until its lease ends. Each statement is a transaction,
/// so this concerns no other; and whatever is durable makes all that was committed before it durable.
const LAZY: &str = "set_config('synchronous_commit', 'off', true) IS NOT NULL";

/// The ticket of a waiter of this process; one of another process is sent a notification there, and the answer is null.
const TELL: &str = "WHEN q.client = {client} THEN q.ticket
        WHEN pg_notify('lockwell_' || replace(q.client::text, '-', ''), q.ticket::text)::text IS NULL THEN NULL";

/// The head of the queue is told. One that does not want the lock alone may not be the only one whose turn it is, and
/// one that does need not be told while a group holds the lock.
const NEXT: &str = "(SELECT CASE WHEN q.mode <> 0 THEN {several} WHEN l.mode <> 0 THEN NULL
        {tell} END
    FROM {queue} q WHERE q.name = l.name AND q.alive_until > clock_timestamp() AND q.owner <> l.owner
    ORDER BY q.ticket LIMIT 1)";

/// Of claims that were refused: how the lock is held or, if it is free, how the first one ahead asks for it; and when the
/// first lease of its holders ends.
const STANDING: &str = "CASE WHEN coalesce(taken.token, made.token) IS NOT NULL THEN NULL
        WHEN l.expires_at > clock_timestamp() THEN l.mode
        ELSE (SELECT q.mode FROM {queue} q WHERE q.name = w.name AND q.ticket < w.ticket
            AND q.alive_until > clock_timestamp() AND q.owner IS DISTINCT FROM l.owner
            ORDER BY q.ticket LIMIT 1) END,
    (extract(epoch from CASE WHEN coalesce(taken.token, made.token) IS NOT NULL THEN NULL
        WHEN l.members > 0 THEN (SELECT min(m.expires_at) FROM {members} m WHERE m.name = l.name)
        WHEN l.expires_at > clock_timestamp() THEN l.expires_at END - clock_timestamp()) * 1000000)::bigint";

const LOCKS: &str = "CREATE TABLE IF NOT EXISTS {locks} (
    name text COLLATE \"C\" PRIMARY KEY,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    expires_at timestamptz,
    acquired_at timestamptz NOT NULL,
    label text NOT NULL,
    mode bigint NOT NULL DEFAULT 0,
    members bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50)";

/// It need not survive a crash: waiters whose places are gone enter again with their next signs of life.
const QUEUE: &str = "CREATE UNLOGGED TABLE IF NOT EXISTS {queue} (
    ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE \"C\" NOT NULL,
    owner uuid NOT NULL UNIQUE,
    client uuid NOT NULL,
    alive_until timestamptz NOT NULL,
    label text NOT NULL,
    mode bigint NOT NULL DEFAULT 0
)";

const QUEUE_INDEX: &str = "CREATE INDEX IF NOT EXISTS {base}_queue_name ON {queue} (name, ticket)";

const MEMBERS: &str = "CREATE TABLE IF NOT EXISTS {members} (
    name text COLLATE \"C\" NOT NULL,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    acquired_at timestamptz NOT NULL,
    label text NOT NULL,
    mode bigint NOT NULL,
    PRIMARY KEY (name, owner)
) WITH (fillfactor = 50)";

/// Makes an older queue as it is now. The table is rewritten, which takes as long as there are waiters. Processes of the version
/// before go on meanwhile and afterwards: they see the same columns.
///
/// The numbers of the tickets are logged all the same, though they would follow the table: after a crash they must not
/// begin again, or old tickets would stand for new waiters. What a server lost that crashed, and its replica never had, can
/// still be given again, so a place is known by its owner, and the ticket is no more than its rank.
const UNLOG: &str = "DO $$ DECLARE numbers regclass := pg_get_serial_sequence('{queue}', 'ticket'); BEGIN
    IF (SELECT relpersistence FROM pg_class WHERE oid = '{queue}'::regclass) = 'p' THEN
        ALTER TABLE {queue} SET UNLOGGED;
    END IF;
    IF (SELECT relpersistence FROM pg_class WHERE oid = numbers) = 'u' THEN
        EXECUTE 'ALTER SEQUENCE ' || numbers || ' SET LOGGED';
    END IF;
END $$";

/// Whether the queue is not yet so.
const IS_LOGGED: &str =
    "SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid = '{queue}'::regclass AND relpersistence = 'p'
    OR oid = pg_get_serial_sequence('{queue}', 'ticket')::regclass AND relpersistence = 'u')";

/// What tables of version 0.1 lack, beside the table of members.
const UPGRADE: [&str; 2] = [
    "ALTER TABLE {locks} ADD COLUMN IF NOT EXISTS mode bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS members bigint NOT NULL DEFAULT 0",
    "ALTER TABLE {queue} ADD COLUMN IF NOT EXISTS mode bigint NOT NULL DEFAULT 0",
];

/// A claim that holds the lock already, and asks again after a lost answer, keeps its token.
const TAKE: &str = "UPDATE {locks} l SET
    token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token, {floor} - 1) + $6 END,
    acquired_at = CASE WHEN l.owner = $2 THEN l.acquired_at ELSE clock_timestamp() END,
    owner = $2, expires_at = clock_timestamp() + $3 * interval '1 microsecond', label = $4
WHERE l.name = $1 AND {patience} AND {durable} AND (l.owner = $2 OR {free})
RETURNING l.token";

/// The same for a claim that stands in the queue: it gives its place up.
const TAKE_QUEUED: &str = "WITH taken AS ({take}), left_queue AS (
    DELETE FROM {queue} q USING taken WHERE q.owner = $2
) SELECT token FROM taken";

const TAKE_MANY: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, ticket, tokens, n) WHERE {durable}
), open AS (
    SELECT w.n FROM {locks} l JOIN want w ON w.name = l.name
    WHERE l.owner = w.owner OR {free}
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE {locks} l SET
        token = CASE WHEN l.owner = w.owner THEN l.token ELSE greatest(l.token, {floor} - 1) + w.tokens END,
        acquired_at = CASE WHEN l.owner = w.owner THEN l.acquired_at ELSE clock_timestamp() END,
        owner = w.owner, expires_at = clock_timestamp() + w.ttl * interval '1 microsecond', label = w.label
    FROM want w JOIN open USING (n) WHERE l.name = w.name
    RETURNING w.n, l.token
), made AS (
    INSERT INTO {locks} AS l (name, owner, token, expires_at, acquired_at, label)
    SELECT w.name, w.owner, {floor} + w.tokens - 1, clock_timestamp() + w.ttl * interval '1 microsecond',
        clock_timestamp(), w.label
    FROM want w WHERE NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.name = w.name)
        AND NOT EXISTS (SELECT 1 FROM {queue} q WHERE q.name = w.name AND q.ticket < w.ticket
            AND q.alive_until > clock_timestamp())
    ORDER BY w.name
    ON CONFLICT (name) DO NOTHING
    RETURNING l.name, l.owner, l.token
), left_queue AS (
    DELETE FROM {queue} q USING want w LEFT JOIN taken USING (n) LEFT JOIN made ON made.owner = w.owner
    WHERE q.owner = w.owner AND coalesce(taken.token, made.token) IS NOT NULL
)
SELECT coalesce(taken.token, made.token), {standing}
FROM want w LEFT JOIN taken USING (n) LEFT JOIN made ON made.name = w.name LEFT JOIN {locks} l ON l.name = w.name
ORDER BY w.n";

const RELEASE: &str = "UPDATE {locks} l SET expires_at = NULL
WHERE l.name = $1 AND l.owner = $2 AND {patience} AND {lazy}
RETURNING {next}";

/// A row that was passed over, though its lock is held by the claim, is locked by a transaction.
const RELEASE_MANY: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS w(name, owner, n)
), mine AS (
    SELECT l.name, w.n FROM {locks} l JOIN want w ON w.name = l.name AND w.owner = l.owner WHERE {lazy}
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), done AS (
    UPDATE {locks} l SET expires_at = NULL FROM mine WHERE l.name = mine.name
    RETURNING mine.n, {next} AS next
)
SELECT done.n IS NOT NULL, coalesce(l.expires_at IS NOT NULL, false), done.next
FROM want w LEFT JOIN done USING (n) LEFT JOIN {locks} l ON l.name = w.name AND l.owner = w.owner ORDER BY w.n";

const RENEW: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS w(name, owner, ttl, n)
    WHERE {durable}
), mine AS (
    SELECT w.n FROM {held} l JOIN want w ON w.name = l.name AND w.owner = l.owner
    WHERE l.expires_at IS NOT NULL ORDER BY l.name, l.owner FOR NO KEY UPDATE OF l SKIP LOCKED
), done AS (
    UPDATE {held} l SET expires_at = clock_timestamp() + w.ttl * interval '1 microsecond'
    FROM want w JOIN mine USING (n) WHERE l.name = w.name AND l.owner = w.owner
    RETURNING w.n
)
SELECT done.n IS NOT NULL, l.expires_at IS NOT NULL
FROM want w LEFT JOIN done USING (n) LEFT JOIN {held} l ON l.name = w.name AND l.owner = w.owner ORDER BY w.n";

/// With the queue UNLOGGED, only one place in 32 is in the log: when the next numbers of tickets are reserved.
const ENROLL: &str = "INSERT INTO {queue} AS q (name, owner, client, alive_until, label, mode)
SELECT $1, $2, $3, clock_timestamp() + $4 * interval '1 microsecond', $5, $6 WHERE {durable}
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until
RETURNING q.ticket";

const STAY: &str = "UPDATE {queue} q SET alive_until = clock_timestamp() + $3 * interval '1 microsecond'
FROM unnest($1::bigint[], $2::uuid[]) AS w(ticket, owner)
WHERE q.owner = w.owner AND q.ticket = w.ticket AND {lazy} RETURNING q.owner";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = $1 AND {lazy}";

/// Finds the next waiter, and notifies it where it is in another process.
const CALL_NEXT: &str = "SELECT {next} FROM {locks} l WHERE l.name = $1";

/// The heads of the queues of locks that are free, or held by a group that is not full.
const TURNS: &str = "SELECT l.name, CASE WHEN t.mode <> 0 THEN {several}
    WHEN l.mode = 0 AND t.client = $2 THEN t.ticket END
FROM {locks} l CROSS JOIN LATERAL (
    SELECT q.ticket, q.client, q.mode FROM {queue} q WHERE q.name = l.name AND q.alive_until > clock_timestamp()
        AND q.owner <> l.owner ORDER BY q.ticket LIMIT 1) t
WHERE l.name = ANY($1)
    AND (l.expires_at IS NULL OR l.expires_at <= clock_timestamp() OR l.mode < 0 OR l.members < l.mode)";

const ANNOUNCE: &str = "SELECT pg_notify($1, $2)";

const HOLDERS: &str = "SELECT token, label, mode,
    (extract(epoch from expires_at - clock_timestamp()) * 1000000)::bigint,
    (extract(epoch from clock_timestamp() - acquired_at) * 1000000)::bigint
FROM (SELECT token, label, mode, expires_at, acquired_at FROM {locks} WHERE name = $1 AND members = 0
    UNION ALL SELECT token, label, mode, expires_at, acquired_at FROM {members} WHERE name = $1) AS h
WHERE expires_at > clock_timestamp() ORDER BY token";

const WAITERS: &str = "SELECT count(*) FROM {queue} q WHERE q.name = $1 AND q.alive_until > clock_timestamp()
    AND q.owner IS DISTINCT FROM (SELECT owner FROM {locks} WHERE name = $1)";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "WITH held AS (
    SELECT l.name, l.mode FROM {locks} l WHERE l.name = $1 AND l.expires_at > clock_timestamp() AND {patience}
    FOR NO KEY UPDATE OF l
)
UPDATE {locks} l SET expires_at = NULL, owner = $2, mode = 0, members = 0 FROM held WHERE l.name = held.name
RETURNING held.mode";

/// A statement of its own: it sees all members who came in before the lock's row was locked.
const FORCE_MEMBERS: &str = "DELETE FROM {members} WHERE name = $1 RETURNING expires_at > clock_timestamp()";

/// A row goes only when its token is lower than what a new row would start with.
const PURGE: &str = "DELETE FROM {locks} l WHERE coalesce(expires_at, acquired_at)
        < clock_timestamp() - $1 * interval '1 microsecond'
    AND acquired_at < clock_timestamp() - $1 * interval '1 microsecond' AND token < {floor} AND {patience} AND {lazy}";

const PURGE_QUEUE: &str =
    "DELETE FROM {queue} WHERE alive_until < clock_timestamp() - interval '1 minute' AND {lazy}";

const CHECK: [&str; 3] = [
    "SELECT name, owner, token, expires_at, acquired_at, label, mode, members FROM {locks} LIMIT 0",
    "SELECT ticket, name, owner, client, alive_until, label, mode FROM {queue} LIMIT 0",
    "SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0",
];

/// Whether a crash of the server would empty a table that must be kept.
const FORGETS: &str = "SELECT EXISTS (SELECT 1 FROM pg_class
    WHERE oid IN ('{locks}'::regclass, '{members}'::regclass) AND relpersistence <> 'p')";

/// A takeover updates the lock's row or deletes the member's, so it waits for the end of the transaction. Not `FOR KEY
/// SHARE`: that lets the former pass.
/// It runs in the user's session, whose search path may name operators of its own.
const VERIFY: &str =
    "SELECT 1 FROM {held} WHERE name OPERATOR(pg_catalog.=) $1 AND owner OPERATOR(pg_catalog.=) $2
    AND token OPERATOR(pg_catalog.=) $3 AND expires_at IS NOT NULL FOR SHARE";

pub(super) struct Statements {
    pub(super) take: Sql,
    pub(super) take_queued: Sql,
    pub(super) take_many: Sql,
    pub(super) release: Sql,
    pub(super) release_many: Sql,
    pub(super) renew: HeldSql,
    pub(super) enroll: Sql,
    pub(super) stay: Sql,
    pub(super) leave: Sql,
    pub(super) call_next: Sql,
    pub(super) turns: Sql,
    pub(super) announce: Sql,
    pub(super) holders: Sql,
    pub(super) waiters: Sql,
    pub(super) names: Sql,
    pub(super) about: Sql,
    pub(super) force: Sql,
    pub(super) force_members: Sql,
    pub(super) purge: Sql,
    pub(super) purge_queue: Sql,
    pub(super) verify: HeldSql,
    pub(super) check: [Sql; 3],
    pub(super) forgets: Sql,
    pub(super) is_logged: Sql,
    pub(super) unlog: Sql,
    pub(super) create: [Sql; 4],
    pub(super) upgrade: [Sql; 2],
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let asks = |text: &str, ticket: &str| Sql::new(table, &fill(text, "").replace("{ticket}", ticket));
        let frees = |text: &str, client: &str| Sql::new(table, &fill(text, client));
        let sql = |text: &str| Sql::new(table, &fill(text, ""));
        let held = |text: &str| HeldSql::new(table, &fill(text, ""));
        Self {
            take: asks(TAKE, "$5"),
            take_queued: asks(&TAKE_QUEUED.replace("{take}", TAKE), "$5"),
            take_many: asks(TAKE_MANY, "w.ticket"),
            release: frees(RELEASE, "$3"),
            release_many: frees(RELEASE_MANY, "$3"),
            renew: held(RENEW),
            enroll: sql(ENROLL),
            stay: sql(STAY),
            leave: sql(LEAVE),
            call_next: frees(CALL_NEXT, "$2"),
            turns: sql(TURNS),
            announce: sql(ANNOUNCE),
            holders: sql(HOLDERS),
            waiters: sql(WAITERS),
            names: sql(NAMES),
            about: sql(ABOUT),
            force: sql(FORCE),
            force_members: sql(FORCE_MEMBERS),
            purge: sql(PURGE),
            purge_queue: sql(PURGE_QUEUE),
            verify: held(VERIFY),
            check: CHECK.map(sql),
            forgets: sql(FORGETS),
            is_logged: sql(IS_LOGGED),
            unlog: sql(UNLOG),
            create: [LOCKS, QUEUE, QUEUE_INDEX, MEMBERS].map(sql),
            upgrade: UPGRADE.map(sql),
        }
    }
}

impl Statements {
    /// The statements that create the tables, for a person.
    pub(super) fn ddl(&self) -> String {
        Sql::script(&self.create) + &Sql::script(std::slice::from_ref(&self.unlog))
    }
}

/// Puts the parts into a statement. `client` is the parameter that has the name of this process.
pub(super) fn fill(text: &str, client: &str) -> String {
    text.replace("{standing}", STANDING)
        .replace("{free}", FREE)
        .replace("{next}", NEXT)
        .replace("{tell}", TELL)
        .replace("{patience}", PATIENCE)
        .replace("{durable}", DURABLE)
        .replace("{lazy}", LAZY)
        .replace("{floor}", FLOOR)
        .replace("{several}", &SEVERAL.to_string())
        .replace("{client}", client)
}
