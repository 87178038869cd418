-- What is sent to SQLite.
--
-- "part" is a piece that others use by its name in braces; "name" is a statement. {locks}, {queue} and {members} are the
-- tables; {held} is the table of a lock's holder: {locks}, or {members} for a member of a group. ?1, ?2 and so on are the
-- arguments.
--
-- Times are microseconds since 1970, read from the host's clock inside the statement: all processes on one file share one
-- host. The clock is read after the write lock of the file has been taken, so waiting for it does not age a lease.
--
-- The SQLite of the system may be old (version.rs): no `unixepoch('subsec')`, no `unhex` and no `->>`.

-- part: now
-- SQLite counts milliseconds. A Julian day is exact to 0.04 of one, so rounding finds it.
CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000

-- part: takes
-- A free lock has no `expires_at`; `owner` then names the last holder. A claim takes a lock that is free, or whose lease has
-- ended, if no living waiter is before it in the queue. A place of the last holder does not count: it may not be deleted
-- yet. A claim that holds the lock already, and asks again after a lost answer, keeps the lock and its token, even if others
-- have queued meanwhile.
INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT ?1, ?2, {first_token} + ?4 - 1, {now} + ?3, {now}, ?6 FROM {state} AS s
WHERE {may_grant} AND (NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ?1 AND q.ticket < ?7 AND q.alive_until > {now}
        AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1))
    OR EXISTS (SELECT 1 FROM {locks} WHERE name = ?1 AND owner = ?2))
ON CONFLICT (name) DO UPDATE SET
    token = CASE WHEN {locks}.owner = excluded.owner THEN {locks}.token ELSE max({locks}.token + ?4, excluded.token) END,
    acquired_at = CASE WHEN {locks}.owner = excluded.owner THEN {locks}.acquired_at ELSE excluded.acquired_at END,
    owner = excluded.owner, expires_at = excluded.expires_at, label = excluded.label, mode = 0, members = 0
WHERE {locks}.expires_at IS NULL OR {locks}.expires_at <= {now} OR {locks}.owner = excluded.owner

-- name: take
-- The token is read by a second statement: a row of the first would come before its commit, and wake a thread while the file
-- is locked. `changes()` is what the first has written. If the lease has ended meanwhile, and another claim has the lock, there
-- is no row.
{takes};
SELECT token FROM {locks} WHERE name = ?1 AND owner = ?2 AND changes() > 0

-- name: taken
-- The tokens that the last batch of the connection has got, by the claims' places in it. This and all other triggers, with what
-- belongs to them, are temporary: each connection has its own, and the file has none.
--
-- As a trigger a batch is one statement, which locks the file from its start to its commit, and returns nothing in between: each
-- answer of a connection's thread wakes another thread, and a process that is stopped meanwhile keeps the file locked.
CREATE TEMP TABLE IF NOT EXISTS {base}_taken (place INTEGER PRIMARY KEY, token INTEGER)

-- name: taking
CREATE TEMP VIEW IF NOT EXISTS {base}_taking AS SELECT NULL AS place, NULL AS name, NULL AS owner, NULL AS ttl, NULL AS tokens,
    NULL AS boot, NULL AS label, NULL AS ticket

-- name: take_each
-- The same for each claim of a batch, whose first place is 0.
CREATE TEMP TRIGGER IF NOT EXISTS {base}_take INSTEAD OF INSERT ON {base}_taking BEGIN
DELETE FROM {base}_taken WHERE place >= NEW.place;
{takes};
INSERT INTO {base}_taken SELECT NEW.place, token FROM {locks} WHERE name = NEW.name AND changes() > 0;
END

-- name: take_batch
-- Takes the locks of ?1 for the owners in ?2, of 16 bytes each, in the boot ?3.
INSERT INTO {base}_taking (place, name, owner, ttl, tokens, boot, label, ticket)
SELECT key, json_extract(value, '$[0]'), substr(?2, key * 16 + 1, 16), json_extract(value, '$[1]'),
    json_extract(value, '$[2]'), ?3, json_extract(value, '$[3]'), json_extract(value, '$[4]') FROM json_each(?1);
SELECT place, token FROM {base}_taken

-- part: state_of_lock
-- The mode of the lock's holder or, if the lock is free, of the first waiter before this claim; the time until the first lease
-- of its holders ends (none is left, if a group holds it whose members have no rows); whether this claim was the last to take
-- the lock exclusively, and the token that it has then; whether the state of the tables allows a grant; for how long it
-- forbids all grants; the place of this claim; and the bound of tokens, which each change of that state raises.
SELECT
    CASE WHEN l.expires_at > {now} THEN l.mode ELSE (SELECT q.mode FROM {queue} AS q WHERE q.name = w.name
        AND q.ticket < {place} AND q.alive_until > {now} AND q.owner IS NOT l.owner ORDER BY q.ticket LIMIT 1) END,
    CASE WHEN l.members > 0 THEN coalesce((SELECT min(m.expires_at) FROM {members} AS m WHERE m.name = l.name) - {now}, 0)
        WHEN l.expires_at > {now} THEN l.expires_at - {now} END,
    CASE WHEN l.owner = ?2 THEN l.token END,
    EXISTS (SELECT 1 FROM {state} AS s WHERE {may_grant}),
    (SELECT s.opens_at - {now} FROM {state} AS s WHERE s.one = 1 AND s.boot = ?5 AND s.opens_at > {now}),
    {place}, (SELECT s.token_bound FROM {state} AS s WHERE s.one = 1)
FROM (SELECT ?1 AS name) AS w LEFT JOIN {locks} AS l ON l.name = w.name

-- name: lock_state
-- {place} is the ticket of the claim: ?6.
{state_of_lock}

-- name: release_unwaited
-- Changes nothing if anybody has a place.
UPDATE {locks} SET expires_at = NULL WHERE name = ?1 AND owner = ?2
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = ?1 AND q.owner <> ?2)

-- part: unwaited
-- The locks of ?1 that still belong to the owners in ?2, of 16 bytes each, and for which nobody waits.
(SELECT value AS name, substr(?2, key * 16 + 1, 16) AS owner FROM json_each(?1)) AS w CROSS JOIN {locks} AS h
    WHERE h.name = w.name AND h.owner = w.owner
        AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = h.name AND q.owner <> h.owner)

-- name: release_many
-- The same for many locks: for all of them, or for none.
UPDATE {locks} AS l SET expires_at = NULL FROM (SELECT h.name FROM {unwaited}) AS w
WHERE l.name = w.name AND json_array_length(?1) = (SELECT count(*) FROM {unwaited})

-- name: handed
-- What the last hand-overs of the connection have made of the locks' rows, whether others had places, and the place of the new
-- owner. No row: it has done nothing.
CREATE TEMP TABLE IF NOT EXISTS {base}_handed (
    place INTEGER PRIMARY KEY, owner BLOB, token INTEGER, ends INTEGER, others INTEGER, client BLOB, ticket INTEGER
)

-- name: handing
CREATE TEMP VIEW IF NOT EXISTS {base}_handing AS
SELECT NULL AS place, NULL AS name, NULL AS owner, NULL AS boot, NULL AS token, NULL AS ends

-- name: hand
-- Frees the lock `name` of the owner `owner` and, in the boot `boot`, grants it to the first waiter, if that wants it exclusively
-- and has said for how long a release may do so. With `token` and `ends` it happens only if the lock still has this token and
-- this end of its lease. Then it deletes the place of the lock's holder.
CREATE TEMP TRIGGER IF NOT EXISTS {base}_hand INSTEAD OF INSERT ON {base}_handing BEGIN
DELETE FROM {base}_handed WHERE place >= NEW.place;
UPDATE {locks} SET (owner, token, expires_at, acquired_at, label) = (
    SELECT coalesce(w.owner, {locks}.owner), coalesce(w.token, {locks}.token), w.lease + {now},
        coalesce(w.since, {locks}.acquired_at), coalesce(w.label, {locks}.label)
    FROM (SELECT 1) LEFT JOIN (
        SELECT q.owner, max({first_token}, {locks}.token + 1) + q.tokens - 1 AS token, q.lease, q.label, {now} AS since,
            s.token_bound
        FROM (SELECT * FROM {queue} WHERE name = NEW.name AND alive_until > {now} AND owner <> NEW.owner
                ORDER BY ticket LIMIT 1) AS q,
            {state} AS s
        WHERE q.mode = 0 AND q.lease IS NOT NULL AND s.one = 1 AND s.boot = NEW.boot AND s.opens_at <= {now}
            AND s.longest_ttl >= q.lease
    ) AS w ON w.token <= w.token_bound)
WHERE name = NEW.name AND owner = NEW.owner AND (NEW.token IS NULL OR (token = NEW.token AND expires_at = NEW.ends));
INSERT INTO {base}_handed
SELECT NEW.place, l.owner, l.token, l.expires_at,
    EXISTS (SELECT 1 FROM {queue} AS q WHERE q.name = NEW.name AND q.owner <> NEW.owner), p.client, p.ticket
FROM {locks} AS l LEFT JOIN {queue} AS p ON p.owner = l.owner WHERE l.name = NEW.name AND changes() > 0;
DELETE FROM {queue} WHERE owner = (SELECT owner FROM {locks} WHERE name = NEW.name);
END

-- name: hand_over
-- Hands the locks ?1 over for the owners in ?2.
INSERT INTO {base}_handing (place, name, owner, boot, token, ends)
SELECT key, value, substr(?2, key * 16 + 1, 16), ?3, ?4, ?5 FROM json_each(?1);
SELECT place, owner, token, ends, others, client, ticket FROM {base}_handed

-- name: next
-- The first waiter: its mode, its client and its ticket. If it is a reader or asks for a permit, others may have their turn
-- with it. If it wants the lock exclusively, it has no turn while a group holds the lock.
SELECT q.mode, q.client, q.ticket
FROM {queue} AS q LEFT JOIN {locks} AS l ON l.name = q.name
WHERE q.name = ?1 AND q.alive_until > {now} AND q.owner IS NOT l.owner
    AND (q.mode <> 0 OR coalesce(l.mode, 0) = 0) ORDER BY q.ticket LIMIT 1

-- name: renew
-- ?1 has names and leases, ?2 the owners.
UPDATE {held} AS l SET expires_at = {now} + w.ttl
FROM (SELECT json_extract(value, '$[0]') AS name, substr(?2, key * 16 + 1, 16) AS owner, json_extract(value, '$[1]') AS ttl
    FROM json_each(?1)) AS w
WHERE l.name = w.name AND l.owner = w.owner AND l.expires_at IS NOT NULL

-- name: renewed
-- The owners among those that have renewed their leases, and have not lost them.
SELECT l.owner FROM json_each(?1) AS w CROSS JOIN {held} AS l
WHERE l.name = json_extract(w.value, '$[0]') AND l.owner = substr(?2, w.key * 16 + 1, 16) AND l.expires_at IS NOT NULL

-- name: enqueue
-- Then the state of the lock is read, so that no release comes in between unnoticed. {place} is the new ticket; none is
-- left if a release has granted the lock to the claim already. The first statement returns no row: a row would come before
-- its commit, and wake a thread while the file is locked.
INSERT INTO {queue} (name, owner, client, alive_until, label, mode, tokens, lease, entered_at)
VALUES (?1, ?2, ?6, {now} + ?7, ?8, ?9, ?4, ?10, {now})
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until, lease = excluded.lease;
{state_of_lock}

-- name: keep_place
UPDATE {queue} SET alive_until = {now} + ?2
WHERE ticket IN (SELECT value FROM json_each(?1))
RETURNING ticket

-- name: forget_place
DELETE FROM {queue} WHERE ticket IN (SELECT value FROM json_each(?1))

-- name: leave
DELETE FROM {queue} WHERE owner = ?1

-- name: turns
-- The first waiters of locks that are free, or held by a group that is not full.
SELECT w.key, (SELECT CASE WHEN q.mode <> 0 THEN {several}
        WHEN coalesce(l.mode, 0) = 0 AND q.client = ?2 THEN q.ticket END FROM {queue} AS q
    WHERE q.name = w.value AND q.alive_until > {now} AND q.owner IS NOT l.owner ORDER BY q.ticket LIMIT 1)
FROM json_each(?1) AS w LEFT JOIN {locks} AS l ON l.name = w.value
WHERE l.name IS NULL OR l.expires_at IS NULL OR l.expires_at <= {now} OR l.mode < 0 OR l.members < l.mode

-- name: holders
SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = ?1 AND expires_at > {now} AND members = 0
UNION ALL SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {members}
WHERE name = ?1 AND expires_at > {now} ORDER BY token

-- name: first_waiters
-- The first ?2 who wait, how long they have waited, and how many there are in all.
SELECT q.label, q.mode, {now} - q.entered_at, count(*) OVER ()
    FROM {queue} AS q WHERE q.name = ?1 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)
ORDER BY q.ticket LIMIT ?2

-- name: names
-- All locks that are held. The row of a lock that a group holds has a lease without an end.
SELECT name FROM {locks} WHERE expires_at > {now} ORDER BY name

-- part: may_free
-- The row of a lock that is held, for a forced release. ?2 is the highest token of those who may be freed: those who came after
-- they were seen are not.
l.name = ?1 AND l.expires_at > {now} AND (l.token <= ?2 OR (l.members > 0
    AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = ?1 AND m.token <= ?2)))

-- part: found
-- Its token, and the number of its holders.
SELECT l.token, CASE WHEN l.mode = 0 THEN 1
    ELSE (SELECT count(*) FROM {members} AS m WHERE m.name = ?1 AND m.expires_at > {now}) END
FROM {locks} AS l WHERE {may_free}

-- name: held
{found}

-- name: force
-- The owner changes, too, so that the former holder does not take this release for its own. Returns what was there.
BEGIN IMMEDIATE;
{found};
UPDATE {locks} AS l SET expires_at = NULL, owner = ?3, mode = 0, members = 0 WHERE {may_free};
DELETE FROM {members} WHERE name = ?1 AND changes() > 0;
COMMIT

-- name: portion
-- The last name of a portion.
SELECT max(name) FROM (SELECT name FROM {locks} WHERE name > ?1 ORDER BY name LIMIT ?2)

-- name: purge
-- A row is deleted only when its token is lower than the first token of a new row would be. The names are those of one
-- portion: an index by time would cost each acquire and each release more than the purge saves.
DELETE FROM {locks} WHERE name > ?2 AND name <= ?3
    AND coalesce(expires_at, acquired_at) < {now} - ?1 AND acquired_at < {now} - ?1 AND token < {now}

-- name: count_clients
-- How many clients there are, and whether a waiter has been dead for ?1.
SELECT count(DISTINCT client), coalesce(min(alive_until) < {now} - ?1, 0) FROM {queue}

-- name: forget_dead
-- Deletes ?1 places of waiters that have been dead for ?2.
DELETE FROM {queue} WHERE ticket IN (SELECT ticket FROM {queue} WHERE alive_until < {now} - ?2 LIMIT ?1)

-- name: verify
-- The write makes the transaction the only writer of the file until it ends, so nobody can take the lock meanwhile.
UPDATE {held} SET token = token
WHERE name = ?1 AND owner = ?2 AND token = ?3 AND expires_at IS NOT NULL RETURNING 1 AS one

-- name: write_record
-- Writes a record for the present holder, whose lease may have ended: the file has one writer at a time. A late copy changes
-- nothing. The answer is the last write. ?1 name, ?2 owner, ?3 kind, ?4 hold, ?5 number, ?6 token, ?7 value, ?8 the token in the
-- lock's row: a late copy of the acquire may have got the lock for the same owner again, after a forced release.
INSERT INTO {records} (name, kind, hold, number, token, value) SELECT ?1, ?3, ?4, ?5, ?6, ?7 FROM {locks}
WHERE name = ?1 AND owner = ?2 AND token = ?8 AND expires_at IS NOT NULL AND mode = 0 AND members = 0
ON CONFLICT (name, kind) DO UPDATE SET hold = excluded.hold, token = excluded.token,
    number = CASE WHEN hold = excluded.hold THEN max(number, excluded.number) ELSE excluded.number END,
    value = CASE WHEN hold = excluded.hold AND number >= excluded.number THEN value ELSE excluded.value END
RETURNING hold, number

-- name: read_record
SELECT value, token, hold FROM {records} WHERE name = ?1 AND kind = ?2

-- name: recorded
SELECT name FROM {records} WHERE kind = ?1 AND length(value) > 0 ORDER BY name

-- name: purge_records
-- A late copy of a write is refused when its hold has ended.
DELETE FROM {records} WHERE length(value) = 0
    AND NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = {records}.name AND l.expires_at IS NOT NULL)
