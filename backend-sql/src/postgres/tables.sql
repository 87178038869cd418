-- The tables on PostgreSQL.

-- part: locks_table
-- Releases before the mark was read by all have other names for `ends_at` here, or for `tables` and `lost_ttl` in the mark, and so
-- grant nothing.
CREATE TABLE IF NOT EXISTS {locks} (
    name text COLLATE "C" PRIMARY KEY,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    ends_at timestamptz,
    acquired_at timestamptz NOT NULL,
    label text NOT NULL,
    mode bigint NOT NULL DEFAULT 0,
    members bigint NOT NULL DEFAULT 0,
    waited boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50)

-- part: members_table
CREATE TABLE IF NOT EXISTS {members} (
    name text COLLATE "C" NOT NULL,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    ends_at timestamptz NOT NULL,
    acquired_at timestamptz NOT NULL,
    label text NOT NULL,
    mode bigint NOT NULL,
    PRIMARY KEY (name, owner)
) WITH (fillfactor = 50)

-- name: waiters
-- It need not survive a crash: waiters whose places are gone enter again with their next poll. `number` is the number that the
-- client has given to the place; `lease` is the lease of a grant by a release, and null where a release only notifies.
CREATE UNLOGGED TABLE IF NOT EXISTS {waiters} (
    ticket bigint GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    owner uuid NOT NULL UNIQUE,
    client uuid NOT NULL,
    number bigint NOT NULL,
    label text NOT NULL,
    mode bigint NOT NULL,
    tokens bigint NOT NULL,
    lease bigint,
    entered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, ticket)
);
-- A sequence that is UNLOGGED, as that of such a table is since version 15, cannot be used on a promoted replica.
DO $$ DECLARE numbers regclass := pg_get_serial_sequence('{waiters}', 'ticket'); BEGIN
    IF (SELECT relpersistence FROM pg_class WHERE oid = numbers) = 'u' THEN
        EXECUTE 'ALTER SEQUENCE ' || numbers || ' SET LOGGED';
    END IF;
END $$

-- name: clients
CREATE UNLOGGED TABLE IF NOT EXISTS {clients} (
    client uuid PRIMARY KEY,
    alive_until timestamptz NOT NULL,
    sign bigint NOT NULL
) WITH (fillfactor = 50)

-- name: records
CREATE TABLE IF NOT EXISTS {records} (
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    hold uuid NOT NULL,
    number bigint NOT NULL,
    token bigint NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (name, kind)
)

-- name: check_locks
SELECT name, owner, token, ends_at, acquired_at, label, mode, members, waited FROM {locks} LIMIT 0

-- name: check_members
SELECT name, owner, token, ends_at, acquired_at, label, mode FROM {members} LIMIT 0

-- name: check_waiters
SELECT ticket, name, owner, client, number, label, mode, tokens, lease, entered_at FROM {waiters} LIMIT 0

-- name: check_clients
SELECT client, alive_until, sign FROM {clients} LIMIT 0

-- name: forgets
-- Whether a crash of the server would empty a table that must be kept, and whether there can be records.
SELECT EXISTS (SELECT 1 FROM pg_class WHERE oid IN ('{locks}'::regclass, '{members}'::regclass, '{state}'::regclass)
        AND relpersistence <> 'p'), coalesce((SELECT bool_and(has_table_privilege(to_regclass('{records}'), r))
        FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS r), false)
