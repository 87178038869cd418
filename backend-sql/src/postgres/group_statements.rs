//! What is sent to PostgreSQL for locks that several hold together.
//!
//! Each statement locks the locks' rows first, in the order of their names, and decides by what it reads from a row that
//! it has locked: the snapshot of the statement may be older than the lock. A count of the members' rows would be, too;
//! so the members are counted in the lock's row.

use super::statements::fill;
use crate::table::{Sql, Table};

/// The owner of a lock that a group holds: nobody's id.
const GROUP: &str = "'00000000-0000-0000-0000-000000000000'::uuid";
/// The end of the lease of a lock that a group holds. The leases that count are those of its members.
const NEVER: &str = "timestamptz '9999-12-31 00:00:00+00'";

/// The usual case: one claim, and a lock that has a row. It is planned once, as the batch is not.
const JOIN_ONE: &str = "WITH raised AS (
    UPDATE {locks} l SET owner = {group}, token = greatest(l.token, {floor} - 1) + $6, expires_at = {never},
        acquired_at = clock_timestamp(), label = '', mode = $7, members = l.members + 1
    WHERE l.name = $1 AND {patience} AND {durable}
        AND (l.expires_at IS NULL OR l.expires_at <= clock_timestamp() OR (l.mode = $7 AND l.owner = {group}))
        AND NOT EXISTS (SELECT 1 FROM {members} m WHERE m.name = $1 AND m.owner = $2)
        AND CASE WHEN $7 < 0 THEN NOT EXISTS (SELECT 1 FROM {queue} q WHERE {ahead_of_one} AND q.mode >= 0)
            ELSE l.members + (SELECT count(*) FROM {queue} q WHERE {ahead_of_one}) < $7 END
    RETURNING l.token
), made AS (
    INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
    SELECT $1, $2, r.token, clock_timestamp() + $3 * interval '1 microsecond', clock_timestamp(), $4, $7 FROM raised r
), left_queue AS (
    DELETE FROM {queue} q USING raised WHERE q.owner = $2
)
SELECT raised.token FROM raised";

const AHEAD_OF_ONE: &str =
    "q.name = $1 AND q.ticket < $5 AND q.alive_until > clock_timestamp() AND q.owner <> l.owner";

/// Lets claims of one mode in, or makes them the first of a group. Readers pass over readers
/// who wait, since those can come in as well. Everyone who stands ahead of a permit is given one before.
///
/// A claim that is a member already, and asks again after a lost answer, keeps its token. If the first request is still
/// under way, the key of the members refuses the second row, and the statement is repeated.
const JOIN: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, ticket, tokens, n) WHERE {durable}
), taken AS (
    SELECT w.n, m.token FROM want w JOIN {members} m ON m.name = w.name AND m.owner = w.owner
), line AS (
    SELECT w.*, row_number() OVER (PARTITION BY w.name ORDER BY w.ticket, w.n) AS place
    FROM want w WHERE NOT EXISTS (SELECT 1 FROM taken WHERE taken.n = w.n)
), open AS (
    SELECT l.name, l.owner, l.mode, l.members FROM {locks} l
    WHERE l.name = ANY($1) AND {patience}
        AND (l.expires_at IS NULL OR l.expires_at <= clock_timestamp() OR l.owner = {group})
    ORDER BY l.name FOR NO KEY UPDATE OF l
), seat AS (
    SELECT w.*, sum(w.tokens) OVER (PARTITION BY w.name ORDER BY w.place) AS upto
    FROM line w JOIN open l USING (name)
    WHERE l.mode IN (0, $7) AND CASE WHEN $7 < 0
        THEN NOT EXISTS (SELECT 1 FROM {queue} q WHERE {ahead} AND q.mode >= 0)
        ELSE l.members + w.place + (SELECT count(*) FROM {queue} q WHERE {ahead} AND q.owner <> ALL ($2)) <= $7 END
), raised AS (
    UPDATE {locks} l SET owner = {group}, token = greatest(l.token, {floor} - 1) + s.tokens, expires_at = {never},
        acquired_at = clock_timestamp(), label = '', mode = $7, members = l.members + s.many
    FROM (SELECT name, sum(tokens)::bigint AS tokens, count(*) AS many FROM seat GROUP BY name) s
    WHERE l.name = s.name
    RETURNING l.name, l.token - s.tokens AS base
), made AS (
    INSERT INTO {members} AS m (name, owner, token, expires_at, acquired_at, label, mode)
    SELECT s.name, s.owner, r.base + s.upto, clock_timestamp() + s.ttl * interval '1 microsecond',
        clock_timestamp(), s.label, $7
    FROM seat s JOIN raised r USING (name)
    RETURNING m.owner, m.token
), left_queue AS (
    DELETE FROM {queue} q USING made WHERE q.owner = made.owner
)
SELECT l.name IS NULL, taken.token, made.token, {standing}
FROM want w LEFT JOIN taken USING (n) LEFT JOIN made ON made.owner = w.owner LEFT JOIN {locks} l ON l.name = w.name
ORDER BY w.n";

const AHEAD: &str = "q.name = w.name AND q.ticket < w.ticket AND q.alive_until > clock_timestamp()
            AND q.owner <> l.owner";

/// Rows for locks that were never used.
const MAKE: &str = "INSERT INTO {locks} (name, owner, token, acquired_at, label)
SELECT name, {group}, 0, clock_timestamp(), '' FROM unnest($1::text[]) AS name WHERE {lazy} ORDER BY name
ON CONFLICT DO NOTHING";

/// Takes claims out of their groups.
const PART: &str = "WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS w(name, owner, n)
), l AS (
    SELECT l.name FROM {locks} l
    WHERE l.name IN (SELECT m.name FROM {members} m JOIN want w ON m.name = w.name AND m.owner = w.owner)
        AND {patience} AND {lazy}
    ORDER BY l.name FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM {members} m USING want w, l WHERE m.name = w.name AND m.owner = w.owner AND l.name = m.name
    RETURNING w.n, m.name
), {shrunk}
SELECT gone.n, shrunk.next FROM gone JOIN shrunk USING (name)";

/// The usual case, of one claim.
const PART_ONE: &str = "WITH l AS (
    SELECT l.name FROM {locks} l WHERE l.name = $1 AND {patience} AND {lazy}
        AND EXISTS (SELECT 1 FROM {members} m WHERE m.name = $1 AND m.owner = $2)
    FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM {members} m USING l WHERE m.name = l.name AND m.owner = $2 RETURNING m.name
), {shrunk}
SELECT shrunk.next FROM shrunk";

/// A dead member whose row a transaction has locked stays in: it has verified its hold there.
const REAP: &str = "WITH l AS (
    SELECT l.name FROM {locks} l WHERE l.name = ANY($1) AND l.members > 0 AND {patience} AND {lazy}
    ORDER BY l.name FOR NO KEY UPDATE OF l
), dead AS (
    SELECT m.name, m.owner FROM {members} m JOIN l USING (name) WHERE m.expires_at <= clock_timestamp()
    ORDER BY m.name, m.owner FOR UPDATE OF m SKIP LOCKED
), gone AS (
    DELETE FROM {members} m USING dead d WHERE m.name = d.name AND m.owner = d.owner RETURNING m.name
), {shrunk}
SELECT shrunk.name, shrunk.next FROM shrunk";

/// Those who have left are taken out of the count. The last one leaves the lock free, unless an earlier version of
/// lockwell, which knows nothing of groups, has been told to free it and has given it to somebody else.
const SHRUNK: &str = "shrunk AS (
    UPDATE {locks} l SET members = l.members - g.many, mode = CASE WHEN l.members > g.many THEN l.mode ELSE 0 END,
        expires_at = CASE WHEN l.members > g.many OR l.owner <> {group} THEN l.expires_at END
    FROM (SELECT name, count(*) AS many FROM gone GROUP BY name) g WHERE l.name = g.name
    RETURNING l.name, {next} AS next
)";

const DESERTED: &str = "SELECT DISTINCT name FROM {members} WHERE expires_at < clock_timestamp() - $1 * interval '1 microsecond'";

const DOWNGRADE: &str = "WITH mine AS (
    SELECT l.name, l.token, l.expires_at, l.acquired_at, l.label FROM {locks} l
    WHERE l.name = $1 AND l.owner = $2 AND l.expires_at > clock_timestamp() AND {patience} AND {durable}
    FOR NO KEY UPDATE OF l
), seated AS (
    INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
    SELECT name, $2, token, expires_at, acquired_at, label, $3 FROM mine
), left_queue AS (
    DELETE FROM {queue} q USING mine WHERE q.owner = $2
)
UPDATE {locks} l SET owner = {group}, expires_at = {never}, mode = $3, members = 1 FROM mine WHERE l.name = mine.name
RETURNING 1::bigint";

const MEMBER: &str = "SELECT token FROM {members} WHERE name = $1 AND owner = $2";

/// Tells all whose turn it is: the head of the queue, all readers at its head, or as many as there are permits.
const CALL: &str = "WITH line AS (
    SELECT q.ticket, q.client, q.mode, row_number() OVER line AS place, bool_or(q.mode >= 0) OVER line AS behind_others
    FROM {queue} q WHERE q.name = $1 AND q.alive_until > clock_timestamp()
        AND q.owner IS DISTINCT FROM (SELECT owner FROM {locks} WHERE name = $1)
    WINDOW line AS (ORDER BY q.ticket)
)
SELECT CASE {tell} END FROM line q LEFT JOIN {locks} l ON l.name = $1
WHERE CASE WHEN l.expires_at > clock_timestamp() AND (l.mode = 0 OR l.mode <> q.mode) THEN false
    WHEN q.mode < 0 THEN NOT q.behind_others
    WHEN q.mode > 0 THEN coalesce(l.members, 0) + q.place <= q.mode
    ELSE q.place = 1 END";

pub(super) struct GroupStatements {
    pub(super) join_one: Sql,
    pub(super) join: Sql,
    pub(super) make: Sql,
    pub(super) part_one: Sql,
    pub(super) part: Sql,
    pub(super) reap: Sql,
    pub(super) deserted: Sql,
    pub(super) downgrade: Sql,
    pub(super) member: Sql,
    pub(super) call: Sql,
}

impl GroupStatements {
    pub(super) fn new(table: &Table) -> Self {
        let frees = |text: &str, client: &str| {
            let text = text
                .replace("{ahead}", AHEAD)
                .replace("{ahead_of_one}", AHEAD_OF_ONE)
                .replace("{shrunk}", SHRUNK);
            Sql::new(table, &fill(&text.replace("{group}", GROUP).replace("{never}", NEVER), client))
        };
        let sql = |text: &str| frees(text, "");
        Self {
            join_one: sql(JOIN_ONE),
            join: sql(JOIN),
            make: sql(MAKE),
            part_one: frees(PART_ONE, "$3"),
            part: frees(PART, "$3"),
            reap: frees(REAP, "$2"),
            deserted: sql(DESERTED),
            downgrade: sql(DOWNGRADE),
            member: sql(MEMBER),
            call: frees(CALL, "$2"),
        }
    }
}
