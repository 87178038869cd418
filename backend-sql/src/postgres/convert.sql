-- How tables are converted from one durability to the other while nobody holds a lock: see convert.rs.

-- name: lock_disk
-- Whoever uses the tables ends first, also a transaction that has verified a lock.
SELECT {durable};
LOCK TABLE {locks}, {members} IN ACCESS EXCLUSIVE MODE

-- name: lock_grace
-- The commit makes all grants durable that were committed before.
SELECT {durable};
LOCK TABLE {locks}, {members}, {state}, {mark} IN ACCESS EXCLUSIVE MODE

-- name: held_on_disk
-- The row of a lock that a group holds has a lease without an end.
SELECT count(DISTINCT h.name) FROM (
    SELECT l.name FROM {locks} l WHERE l.members = 0 AND l.expires_at > clock_timestamp()
    UNION ALL SELECT m.name FROM {members} m WHERE m.expires_at > clock_timestamp()) AS h

-- name: held_with_grace
SELECT count(DISTINCT h.name) FROM (
    SELECT l.name FROM {locks} l WHERE l.members = 0 AND l.ends_at > clock_timestamp()
    UNION ALL SELECT m.name FROM {members} m WHERE m.ends_at > clock_timestamp()) AS h

-- name: is_settled
-- Whether the server grants locks, and how far the floor of tokens is ahead of the clock.
SELECT EXISTS (SELECT 1 FROM {mark} k WHERE k.is_open AND {is_here}),
    coalesce((SELECT k.token_floor - {clock} FROM {mark} k), 0)

-- name: to_grace
-- Whoever owns and may use the table of locks owns and may use the new ones.
ALTER TABLE {locks} RENAME COLUMN expires_at TO ends_at;
ALTER TABLE {members} RENAME COLUMN expires_at TO ends_at;
{state_tables};
INSERT INTO {state} SELECT 1, current_setting('lockwell.longest_ttl')::bigint, greatest({clock},
    (SELECT max(l.token) FROM {locks} l), (SELECT max(m.token) FROM {members} m)) + 8589934592;
{first_mark};
DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role, a.privilege_type AS kind
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a WHERE c.oid = '{locks}'::regclass
            AND a.grantee <> c.relowner AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE')
    LOOP
        EXECUTE concat('GRANT ', one.kind, ' ON {state}, {mark} TO ', one.role);
    END LOOP;
    FOR one IN SELECT c.relowner::regrole::text AS role FROM pg_class c WHERE c.oid = '{locks}'::regclass
    LOOP
        EXECUTE concat('ALTER TABLE {state} OWNER TO ', one.role);
        EXECUTE concat('ALTER TABLE {mark} OWNER TO ', one.role);
    END LOOP;
END $$

-- name: to_disk
ALTER TABLE {locks} RENAME COLUMN ends_at TO expires_at;
ALTER TABLE {members} RENAME COLUMN ends_at TO expires_at;
DROP TABLE {state}, {mark}

-- name: to_another_longest
UPDATE {state} SET longest_ttl = current_setting('lockwell.longest_ttl')::bigint;
UPDATE {mark} SET longest_ttl = current_setting('lockwell.longest_ttl')::bigint
