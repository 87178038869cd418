-- The tables on SQLite.

-- name: locks
CREATE TABLE IF NOT EXISTS {locks} (
    name TEXT COLLATE BINARY PRIMARY KEY NOT NULL,
    owner BLOB NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER,
    acquired_at INTEGER NOT NULL,
    label TEXT NOT NULL,
    mode INTEGER NOT NULL DEFAULT 0,
    members INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID

-- name: queue
CREATE TABLE IF NOT EXISTS {queue} (
    ticket INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT COLLATE BINARY NOT NULL,
    owner BLOB NOT NULL UNIQUE,
    client BLOB NOT NULL,
    alive_until INTEGER NOT NULL,
    label TEXT NOT NULL,
    mode INTEGER NOT NULL,
    tokens INTEGER NOT NULL DEFAULT 1,
    lease INTEGER,
    entered_at INTEGER NOT NULL
)

-- name: queue_index
CREATE INDEX IF NOT EXISTS {base}_queue_name ON {queue} (name, ticket)

-- name: tickets
-- Tickets begin with the time, so that those of a file that was removed mean nobody in the one that took its place.
INSERT INTO sqlite_sequence (name, seq) SELECT '{base}_queue', {now}
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{base}_queue')

-- name: members
CREATE TABLE IF NOT EXISTS {members} (
    name TEXT COLLATE BINARY NOT NULL,
    owner BLOB NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    label TEXT NOT NULL,
    mode INTEGER NOT NULL,
    PRIMARY KEY (name, owner)
) WITHOUT ROWID

-- name: state
-- What must be known after a crash of the host, in one row: see bounds.sql. Times are microseconds.
CREATE TABLE IF NOT EXISTS {state} (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    host TEXT NOT NULL,
    raised_at INTEGER NOT NULL,
    opens_at INTEGER NOT NULL,
    token_floor INTEGER NOT NULL,
    token_bound INTEGER NOT NULL,
    longest_ttl INTEGER NOT NULL
)

-- name: records
CREATE TABLE IF NOT EXISTS {records} (
    name TEXT COLLATE BINARY NOT NULL,
    kind TEXT COLLATE BINARY NOT NULL,
    hold BLOB NOT NULL,
    number INTEGER NOT NULL,
    token INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, kind)
)

-- name: check_locks
-- Fails where the table or a column is missing.
SELECT name, owner, token, expires_at, acquired_at, label, mode, members FROM {locks} LIMIT 0

-- name: check_queue
SELECT ticket, name, owner, client, alive_until, label, mode, tokens, lease, entered_at FROM {queue} LIMIT 0

-- name: check_members
SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0

-- name: check_state
SELECT one, boot, host, raised_at, opens_at, token_floor, token_bound, longest_ttl FROM {state} LIMIT 0

-- name: check_records
SELECT name, kind, hold, number, token, value FROM {records} LIMIT 0
