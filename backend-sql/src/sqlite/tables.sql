-- The tables, and what tables of earlier versions lack, beside the table of members.

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
    mode INTEGER NOT NULL DEFAULT 0,
    entered_at INTEGER
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

-- name: add_mode
ALTER TABLE {locks} ADD COLUMN mode INTEGER NOT NULL DEFAULT 0

-- name: add_members
ALTER TABLE {locks} ADD COLUMN members INTEGER NOT NULL DEFAULT 0

-- name: add_queue_mode
ALTER TABLE {queue} ADD COLUMN mode INTEGER NOT NULL DEFAULT 0

-- name: add_entered_at
-- Earlier versions do not name it.
ALTER TABLE {queue} ADD COLUMN entered_at INTEGER

-- name: check_locks
-- Fails where the table is missing or of an older form.
SELECT name, owner, token, expires_at, acquired_at, label, mode, members FROM {locks} LIMIT 0

-- name: check_queue
SELECT ticket, name, owner, client, alive_until, label, mode, entered_at FROM {queue} LIMIT 0

-- name: check_members
SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0
