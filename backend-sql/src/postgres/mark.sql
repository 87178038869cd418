-- The mark, which every statement that grants reads if there may be lazy grants: see grace.rs.
--
-- `lazy_since` in {state} is durable before a grant is lazy (lazy.sql). While it is null a crash loses no grant, so nobody needs a mark,
-- and tokens have neither floor nor limit. The subqueries about the mark are in a CASE, so that they are not evaluated then.
--
-- {mark} is UNLOGGED. It is empty after a crash, on a promoted replica and in a restored base backup. A dump and a copy of the
-- database contain it. So it names the files of the tables with the database's number, and the server: a mark that names others
-- is none. It names its own file as well: SET LOGGED, which would keep it over a crash, writes it to another, as SET UNLOGGED does,
-- and nobody makes a mark in a table that is LOGGED.
-- {state} is not: `token_bound` is durable before a token near it is granted. A replica that lacks the last rise of the bound begins
-- above all tokens as well, since none is above the bound before: `token_limit` in the mark is lower than the bound by more than a
-- claim can reserve (2^32), and while locks are in use the bound rises by no more than that. After a pause the clock is above it.
-- Whoever makes a closed mark makes the bound the floor, or what the bound would be of the clock, and raises it by more, a grace period
-- before the first token above the floor.

-- part: files
-- The files of the tables, in the folder of their database.
ARRAY[pg_relation_filepath('{locks}'), pg_relation_filepath('{members}'), pg_relation_filepath('{mark}')]

-- part: is_here
-- Whether the mark is that of these tables on this server. What reads the number of the server costs as much as a grant, so a
-- statement that grants compares the files alone. Each new session looks at the mark first.
k.tables = {files} AND k.server = {server}

-- part: server
(SELECT c.system_identifier FROM pg_control_system() c)

-- part: its_floor
-- The highest token that a grant before the last crash may have, by the row `s` of the state.
CASE WHEN s.lazy_since IS NULL THEN 0 ELSE (SELECT k.token_floor FROM {mark} k) END

-- part: floor
(SELECT {its_floor} FROM {state} s)

-- part: its_limit
-- The highest token that may be granted, by the row `s` of the state. It is null if the server grants nothing now.
CASE WHEN s.lazy_since IS NULL THEN 9223372036854775807
    ELSE (SELECT k.token_limit FROM {mark} k WHERE k.is_open AND k.tables = {files}) END

-- part: limit
(SELECT {its_limit} FROM {state} s)

-- part: is_current
-- Not a record of before a crash: a later holder may have lost its own, so another grant needs a higher token.
l.token > {floor}

-- part: is_current_member
m.token > {floor}

-- part: first_token
greatest({clock} - 1, {floor})

-- part: granted_token
-- The statement fails if the server grants nothing now, or if the token is above the limit.
CASE WHEN l.token <= {limit} THEN l.token ELSE concat('lockwell: no grant ', clock_timestamp())::bigint END

-- part: member_token
-- The same for a claim that is a member already, and asks again.
CASE WHEN m.token <= {limit} THEN m.token ELSE concat('lockwell: no grant ', clock_timestamp())::bigint END

-- part: may_give
({limit} IS NOT NULL)

-- part: may_verify
-- After a crash the record of a holder may be back whose lease had ended, while that of a later holder is lost. Until the mark is
-- open, the later one has made its record again, or has lost the lock. It runs in the session of the user, and is evaluated first,
-- since it is volatile.
CASE WHEN (SELECT CASE WHEN s.lazy_since IS NULL THEN true ELSE EXISTS (SELECT 1 FROM {mark} k WHERE k.is_open
        AND k.tables OPERATOR(pg_catalog.=) ARRAY[pg_catalog.pg_relation_filepath('{locks}'),
            pg_catalog.pg_relation_filepath('{members}'), pg_catalog.pg_relation_filepath('{mark}')]
        AND {verified_server}) END FROM {state} s) THEN true
    ELSE pg_catalog.concat('lockwell: no grant ', pg_catalog.clock_timestamp())::pg_catalog.bool END

-- part: highest
-- No token of a grant that the server has lost is higher. Without a mark, the next one has such a floor.
coalesce((SELECT k.token_floor FROM {mark} k WHERE k.tables = {files}), (SELECT b.token_bound FROM {state} b))

-- part: is_given
-- Whether a release grants the lock of `m` to the waiter `h`. Another is only notified: its claim looks at the mark, or raises the bound.
h.mode = 0 AND h.lease IS NOT NULL AND {may_lead} AND greatest(m.token, {first_token}) + h.tokens <= {limit}

-- part: forced_token
-- A later holder than the one of this record may have lost its own, and must not reclaim the lock.
CASE WHEN {may_give} THEN l.token ELSE greatest(l.token, {highest}) END

-- part: may_have_lost
-- Whether a crash may have lost the lazy grant `w`. Where there were none, a failover or a restore alone can lose one, and by now others
-- may have been granted the lock, with a lower token if that of `w` was ahead of the clock. Such a lease has ended when lazy grants
-- begin, or is longer than those.
EXISTS (SELECT 1 FROM {state} s WHERE s.lazy_since + s.longest_ttl <= {clock} AND w.ttl <= s.longest_ttl AND w.token <= {highest})

-- name: look_at_state
-- Whether there may be lazy grants, and whether a crash would keep a mark.
SELECT s.lazy_since IS NOT NULL, NOT {is_unlogged} FROM {state} s

-- name: look_at_mark
-- The longest lease that a crash may have lost, and the longest from now on; of the mark, if there is one, its id, the time until it
-- opens, for how long clients have seen it, and whether it is open.
SELECT coalesce(k.lost_ttl, s.longest_ttl), s.longest_ttl, k.id, k.opens_at - {clock}, k.counted, k.is_open
FROM {state} s LEFT JOIN {mark} k ON {is_here} WHERE s.lazy_since IS NOT NULL

-- part: is_unlogged
(SELECT t.relpersistence = 'u' FROM pg_class t WHERE t.oid = '{mark}'::regclass)

-- name: floor_ahead
-- How far the floor of tokens is ahead of the clock.
SELECT k.token_floor - {clock} FROM {mark} k

-- name: begin_lazy
-- From now on a crash may lose grants with leases of up to $1, but none before that time has passed: see lazy.sql. By now none is lost,
-- so the mark is open, and has no floor. All tokens are below the bound, since a replica may lack the first rise of it.
WITH begun AS (
    UPDATE {state} s SET lazy_since = {clock}, longest_ttl = $1, token_bound = greatest(s.token_bound + 1, {clock} + 8589934592,
        (SELECT max(l.token) FROM {locks} l) + 8589934592)
    WHERE s.lazy_since IS NULL AND {durable} AND {is_unlogged}
    RETURNING s.token_bound
)
INSERT INTO {mark} AS k (one, id, opens_at, is_open, counted, tables, server, token_floor, token_limit, lost_ttl)
SELECT 1, gen_random_uuid(), {clock}, true, 0, {files}, {server}, 0, b.token_bound - 4294967296, $1 FROM begun b
{replacing}

-- part: replacing
ON CONFLICT (one) DO UPDATE SET id = excluded.id, opens_at = excluded.opens_at, is_open = excluded.is_open, counted = 0,
    tables = excluded.tables, server = excluded.server, token_floor = excluded.token_floor, token_limit = excluded.token_limit,
    lost_ttl = excluded.lost_ttl

-- name: make_mark
-- Makes the mark $1 unless another than $2 has been made meanwhile. All tokens up to the bound may have been granted, so it is closed for
-- a grace period (see `grace_period` in lockcore). Whoever waited for another that makes a mark sees that the bound is not that of its
-- snapshot any more.
WITH last AS (
    SELECT s.token_bound FROM {state} s WHERE s.token_bound = (SELECT b.token_bound FROM {state} b) AND {durable}
        AND {is_unlogged} AND NOT EXISTS (SELECT 1 FROM {mark} k WHERE {is_here} AND k.id IS DISTINCT FROM $2)
    FOR NO KEY UPDATE OF s
), raised AS (
    UPDATE {state} s SET token_bound = greatest(last.token_bound, {clock} + 8589934592) + 8589934592 FROM last
    RETURNING s.token_bound, s.longest_ttl
)
INSERT INTO {mark} AS k (one, id, opens_at, is_open, counted, tables, server, token_floor, token_limit, lost_ttl)
SELECT 1, $1, {clock} + r.longest_ttl + r.longest_ttl / 50 + 4000, false, 0, {files}, {server}, r.token_bound - 8589934592,
    r.token_bound - 4294967296, r.longest_ttl FROM raised r
{replacing}
WHERE k.tables <> excluded.tables OR k.server <> excluded.server OR k.id = $2

-- name: raise_count
-- For how long clients have seen the mark $1, one after the other: $3, if it is still $2.
UPDATE {mark} k SET counted = $3 WHERE k.id = $1 AND {is_here} AND k.counted = $2

-- name: open_mark
UPDATE {mark} k SET is_open = true WHERE k.id = $1 AND {is_here} AND k.opens_at <= {clock}

-- name: raise_bound
-- Raises the bound so that each of the locks $1 can be granted, unless another has done that. That is about once in an hour of the clock.
UPDATE {state} s SET token_bound = greatest(s.token_bound + 1000000, {clock} + 8589934592,
    (SELECT k.token_floor FROM {mark} k) + 8589934592,
    (SELECT max(l.token) FROM {locks} l WHERE l.name = ANY($1)) + 8589934592)
WHERE {durable} AND s.token_bound = (SELECT k.token_limit + 4294967296 FROM {mark} k)

-- name: copy_bound
-- A separate statement: what it reads is on the disk.
UPDATE {mark} k SET token_limit = s.token_bound - 4294967296 FROM {state} s WHERE {lazy}

-- name: reclaim
-- Makes the records of exclusive holders again whose grants the server has lost. A record with a lower token is that of a holder
-- before; the tokens of grants after the crash are above the floor, so this never takes a lock from a later holder. The
-- members of a group before go. It waits for no row: the answer has each claim whose lock is not another's, and whether its record
-- was made. $1 names, $2 owners, $3 ttls, $4 labels, $5 tokens.
WITH want AS (
    SELECT DISTINCT ON (w.name) w.* FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
        AS w(name, owner, ttl, label, token) WHERE {granting} AND {may_have_lost} ORDER BY w.name, w.token DESC
), open AS (
    SELECT w.* FROM {locks} l JOIN want w ON w.name = l.name WHERE l.token < w.token
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE {locks} l SET owner = w.owner, token = w.token, ends_at = clock_timestamp() + w.ttl * interval '1 microsecond',
        acquired_at = clock_timestamp(), label = w.label, mode = 0, members = 0, waited = true
    FROM open w WHERE l.name = w.name
    RETURNING l.name, l.owner
), old AS (
    SELECT m.name, m.owner FROM {members} m JOIN taken t ON t.name = m.name FOR UPDATE OF m SKIP LOCKED
), gone AS (
    DELETE FROM {members} m USING old o WHERE m.name = o.name AND m.owner = o.owner
), made AS (
    INSERT INTO {locks} AS l (name, owner, token, ends_at, acquired_at, label, waited)
    SELECT w.name, w.owner, w.token, clock_timestamp() + w.ttl * interval '1 microsecond', clock_timestamp(), w.label, true
    FROM want w WHERE NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.name = w.name) ORDER BY w.name
    ON CONFLICT (name) DO NOTHING
    RETURNING l.owner
)
SELECT w.owner, w.owner IN (SELECT owner FROM taken UNION ALL SELECT owner FROM made) FROM want w
WHERE NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.name = w.name AND l.token >= w.token)

-- name: force_unknown
-- A forced release of a lock that has no holder here, although there may be one whose grant was lost, and who must not reclaim it.
-- $1 name, $2 owner.
INSERT INTO {locks} AS l (name, owner, token, acquired_at, label)
SELECT $1, $2, {highest}, clock_timestamp(), '' WHERE {durable} AND NOT {may_give}
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = greatest(l.token, excluded.token)
    WHERE l.ends_at IS NULL OR l.ends_at <= clock_timestamp()

-- part: state_table
CREATE TABLE IF NOT EXISTS {state} (
    one integer PRIMARY KEY CHECK (one = 1),
    longest_ttl bigint,
    lazy_since bigint,
    token_bound bigint NOT NULL
)

-- part: mark_table
CREATE UNLOGGED TABLE IF NOT EXISTS {mark} (
    one integer PRIMARY KEY CHECK (one = 1),
    id uuid NOT NULL,
    opens_at bigint NOT NULL,
    is_open boolean NOT NULL,
    counted bigint NOT NULL,
    tables text[] NOT NULL,
    server bigint NOT NULL,
    token_floor bigint NOT NULL,
    token_limit bigint NOT NULL,
    lost_ttl bigint NOT NULL
) WITH (fillfactor = 50)

-- name: first_tables
-- The tables that a crash must not lose, and that of the mark, where one is missing: not beside the locks of an earlier release.
DO $$ BEGIN
    PERFORM {durable};
    IF to_regclass('{locks}') IS NULL
        OR to_regclass('{state}') IS NOT NULL AND (to_regclass('{members}') IS NULL OR to_regclass('{mark}') IS NULL) THEN
        {locks_table};
        {members_table};
        {state_table};
        {mark_table};
        {first_row};
    END IF;
END $$

-- part: first_row
-- Also where all tables were emptied, or come from a dump without rows, and not where a crash has emptied them.
INSERT INTO {state} (one, token_bound) SELECT 1, 0 WHERE {durable} AND NOT EXISTS (SELECT 1 FROM {locks})
    AND (SELECT c.relpersistence = 'p' FROM pg_class c WHERE c.oid = '{state}'::regclass) ON CONFLICT (one) DO NOTHING

-- name: first_state
{first_row}

-- name: lacks_rights
-- Whether this user may lock, but may not do what others need of it when the bound of tokens is near, or after a crash.
SELECT has_table_privilege('{locks}', 'INSERT') AND has_table_privilege('{locks}', 'UPDATE')
    AND NOT (has_table_privilege('{state}', 'UPDATE') AND has_table_privilege('{mark}', 'INSERT')
        AND has_table_privilege('{mark}', 'UPDATE') AND {knows_server})

-- name: check_state
SELECT one, longest_ttl, lazy_since, token_bound FROM {state} LIMIT 0

-- name: check_mark
SELECT one, id, opens_at, is_open, counted, tables, server, token_floor, token_limit, lost_ttl FROM {mark} LIMIT 0
