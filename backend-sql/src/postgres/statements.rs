//! What is sent to PostgreSQL.
//!
//! All times are the server's, by `clock_timestamp()`: `now()` stands still within a transaction, and a statement that
//! waited for a row would see an old time. The single form of a statement serves the usual case, one claim, and touches
//! one row once. The batch form serves many claims, and passes over rows that a transaction has locked.

use crate::table::{Sql, Table};

const FLOOR: &str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";

/// Whether the row may be taken by somebody else: it is free or its lease has ended, and nobody who is still there
/// stands before the ticket. The last holder does not count: its place may not have been tidied up yet.
const FREE: &str = "(l.expires_at IS NULL OR l.expires_at <= clock_timestamp())
    AND NOT EXISTS (SELECT 1 FROM {queue} q WHERE q.name = l.name AND q.ticket < {ticket}
        AND q.alive_until > clock_timestamp() AND q.owner <> l.owner)";

/// A lock timeout for this one statement: it needs no session state, so it works behind a pooler. A transaction that
/// has verified the lock holds the row, and nobody else must wait for that.
const PATIENCE: &str = "set_config('lock_timeout', '50ms', true) IS NOT NULL";

/// The next waiter: its ticket if it waits in this process; otherwise a notification is sent to the process where it
/// waits, and the answer is null.
const NEXT: &str = "(SELECT CASE WHEN q.client = {client} THEN q.ticket
        WHEN pg_notify('lockwell_' || replace(q.client::text, '-', ''), q.ticket::text)::text IS NULL THEN NULL END
    FROM {queue} q WHERE q.name = l.name AND q.alive_until > clock_timestamp() AND q.owner <> l.owner
    ORDER BY q.ticket LIMIT 1)";

const LOCKS: &str = "CREATE TABLE IF NOT EXISTS {locks} (
    name text COLLATE \"C\" PRIMARY KEY,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    expires_at timestamptz,
    acquired_at timestamptz NOT NULL,
    label text NOT NULL
) WITH (fillfactor = 50)";

const QUEUE: &str = "CREATE TABLE IF NOT EXISTS {queue} (
    ticket bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE \"C\" NOT NULL,
    owner uuid NOT NULL UNIQUE,
    client uuid NOT NULL,
    alive_until timestamptz NOT NULL,
    label text NOT NULL
)";

const QUEUE_INDEX: &str = "CREATE INDEX IF NOT EXISTS {base}_queue_name ON {queue} (name, ticket)";

/// A claim that holds the lock already, and asks again after a lost answer, keeps its token.
const TAKE: &str = "UPDATE {locks} l SET
    token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + 1, {floor}) END,
    acquired_at = CASE WHEN l.owner = $2 THEN l.acquired_at ELSE clock_timestamp() END,
    owner = $2, expires_at = clock_timestamp() + $3 * interval '1 microsecond', label = $4
WHERE l.name = $1 AND {patience} AND (l.owner = $2 OR {free})
RETURNING l.token";

const TAKE_MANY: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, ticket, n)
), open AS (
    SELECT w.n FROM {locks} l JOIN want w ON w.name = l.name
    WHERE l.owner = w.owner OR {free}
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE {locks} l SET
        token = CASE WHEN l.owner = w.owner THEN l.token ELSE greatest(l.token + 1, {floor}) END,
        acquired_at = CASE WHEN l.owner = w.owner THEN l.acquired_at ELSE clock_timestamp() END,
        owner = w.owner, expires_at = clock_timestamp() + w.ttl * interval '1 microsecond', label = w.label
    FROM want w JOIN open USING (n) WHERE l.name = w.name
    RETURNING w.n, l.token
), made AS (
    INSERT INTO {locks} AS l (name, owner, token, expires_at, acquired_at, label)
    SELECT w.name, w.owner, {floor}, clock_timestamp() + w.ttl * interval '1 microsecond', clock_timestamp(), w.label
    FROM want w WHERE NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.name = w.name)
        AND NOT EXISTS (SELECT 1 FROM {queue} q WHERE q.name = w.name AND q.ticket < w.ticket
            AND q.alive_until > clock_timestamp())
    ORDER BY w.name
    ON CONFLICT (name) DO NOTHING
    RETURNING l.name, l.token
)
SELECT coalesce(taken.token, made.token),
    (extract(epoch from l.expires_at - clock_timestamp()) * 1000000)::bigint
FROM want w LEFT JOIN taken USING (n) LEFT JOIN made ON made.name = w.name LEFT JOIN {locks} l ON l.name = w.name
ORDER BY w.n";

const RELEASE: &str = "UPDATE {locks} l SET expires_at = NULL
WHERE l.name = $1 AND l.owner = $2 AND {patience}
RETURNING {next}";

const RELEASE_MANY: &str = "WITH mine AS (
    SELECT l.name, w.n FROM {locks} l
        JOIN unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS w(name, owner, n)
        ON w.name = l.name AND w.owner = l.owner
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE {locks} l SET expires_at = NULL FROM mine WHERE l.name = mine.name
RETURNING mine.n, {next}";

const RENEW: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS w(name, owner, ttl, n)
), mine AS (
    SELECT w.n FROM {locks} l JOIN want w ON w.name = l.name AND w.owner = l.owner
    WHERE l.expires_at IS NOT NULL ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), done AS (
    UPDATE {locks} l SET expires_at = clock_timestamp() + w.ttl * interval '1 microsecond'
    FROM want w JOIN mine USING (n) WHERE l.name = w.name
    RETURNING w.n
)
SELECT done.n IS NOT NULL, coalesce(l.owner = w.owner AND l.expires_at IS NOT NULL, false)
FROM want w LEFT JOIN done USING (n) LEFT JOIN {locks} l ON l.name = w.name ORDER BY w.n";

const ENROLL: &str = "INSERT INTO {queue} AS q (name, owner, client, alive_until, label)
VALUES ($1, $2, $3, clock_timestamp() + $4 * interval '1 microsecond', $5)
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until
RETURNING q.ticket";

const STAY: &str = "UPDATE {queue} SET alive_until = clock_timestamp() + $2 * interval '1 microsecond'
WHERE ticket = ANY($1) RETURNING ticket";

const TIDY: &str = "DELETE FROM {queue} WHERE ticket = ANY($1)";

const LEAVE: &str = "DELETE FROM {queue} WHERE owner = $1";

/// Finds the next waiter, and notifies it where it is in another process.
const CALL_NEXT: &str = "SELECT {next} FROM {locks} l WHERE l.name = $1";

const TURNS: &str = "SELECT t.ticket FROM {locks} l CROSS JOIN LATERAL (
    SELECT q.ticket, q.client FROM {queue} q WHERE q.name = l.name AND q.alive_until > clock_timestamp()
        AND q.owner <> l.owner ORDER BY q.ticket LIMIT 1) t
WHERE l.name = ANY($1) AND t.client = $2 AND (l.expires_at IS NULL OR l.expires_at <= clock_timestamp())";

const HOLDER: &str = "SELECT token, label,
    (extract(epoch from expires_at - clock_timestamp()) * 1000000)::bigint,
    (extract(epoch from clock_timestamp() - acquired_at) * 1000000)::bigint
FROM {locks} WHERE name = $1 AND expires_at > clock_timestamp()";

const WAITERS: &str = "SELECT count(*) FROM {queue} q WHERE q.name = $1 AND q.alive_until > clock_timestamp()
    AND q.owner IS DISTINCT FROM (SELECT owner FROM {locks} WHERE name = $1)";

/// The owner changes, too: the old one must not take the release for its own.
const FORCE: &str = "UPDATE {locks} l SET expires_at = NULL, owner = $2
WHERE l.name = $1 AND l.expires_at > clock_timestamp() AND {patience} RETURNING 1::bigint";

/// A row goes only when its token is lower than what a new row would start with.
const PURGE: &str = "DELETE FROM {locks} l WHERE coalesce(expires_at, acquired_at)
        < clock_timestamp() - $1 * interval '1 microsecond'
    AND acquired_at < clock_timestamp() - $1 * interval '1 microsecond' AND token < {floor} AND {patience}";

const PURGE_QUEUE: &str = "DELETE FROM {queue} WHERE alive_until < clock_timestamp() - interval '1 minute'";

const CHECK_LOCKS: &str = "SELECT name, owner, token, expires_at, acquired_at, label FROM {locks} LIMIT 0";
const CHECK_QUEUE: &str = "SELECT ticket, name, owner, client, alive_until, label FROM {queue} LIMIT 0";

/// A takeover updates the row, so it waits for the end of the transaction. Not `FOR KEY SHARE`: that lets it pass.
const VERIFY: &str = "SELECT 1 FROM {locks} WHERE name = $1 AND owner = $2 AND token = $3
    AND expires_at IS NOT NULL FOR SHARE";

pub(super) struct Statements {
    pub(super) take: Sql,
    pub(super) take_many: Sql,
    pub(super) release: Sql,
    pub(super) release_many: Sql,
    pub(super) renew: Sql,
    pub(super) enroll: Sql,
    pub(super) stay: Sql,
    pub(super) tidy: Sql,
    pub(super) leave: Sql,
    pub(super) call_next: Sql,
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
        // `ticket` and `client` stand for the parameters that hold them in the statement.
        let fill = |text: &str, ticket: &str, client: &str| {
            let text = text.replace("{free}", FREE).replace("{next}", NEXT).replace("{patience}", PATIENCE);
            let text = text.replace("{floor}", FLOOR).replace("{ticket}", ticket).replace("{client}", client);
            Sql::new(table, &text)
        };
        let sql = |text: &str| fill(text, "", "");
        Self {
            take: fill(TAKE, "$5", ""),
            take_many: fill(TAKE_MANY, "w.ticket", ""),
            release: fill(RELEASE, "", "$3"),
            release_many: fill(RELEASE_MANY, "", "$3"),
            renew: sql(RENEW),
            enroll: sql(ENROLL),
            stay: sql(STAY),
            tidy: sql(TIDY),
            leave: sql(LEAVE),
            call_next: fill(CALL_NEXT, "", "$2"),
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
