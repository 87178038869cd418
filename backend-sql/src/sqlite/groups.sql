-- Locks that several hold together. All of it runs in transactions that write from their start, so nothing changes between
-- one statement and the next. Each of them is one message to the thread of the connection, which carries it out without waiting
-- for another thread: a process that is stopped meanwhile keeps the file locked.

-- part: group
-- The owner of a lock that a group holds: the id of no claim.
zeroblob(16)

-- part: never
-- The end of the lease of a lock that a group holds. The leases that count are those of its members.
253402300799000000

-- part: present
-- The members of the group that holds the lock ?1. A free row holds none, whatever it says after damage from outside.
coalesce((SELECT CASE WHEN expires_at > {now} THEN members ELSE 0 END FROM {locks} WHERE name = ?1), 0)

-- part: ahead
-- Living waiters before the ticket ?7. A place of the last holder does not count.
q.name = ?1 AND q.ticket < ?7 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)

-- name: join
-- Adds one member to the lock's group, or begins a group. A reader may overtake readers that wait, since they can be granted
-- the lock as well. A permit is granted only if there is one for each waiter before it, too. Nobody overtakes a waiter of another
-- mode. Two modes never hold the lock together: its row has one, and only a row that is free gets another. `changes()` is what the
-- last statement that writes has written. Returns the token of the new member, which leaves its place.
BEGIN IMMEDIATE;
INSERT INTO {locks} AS l (name, owner, token, expires_at, acquired_at, label, mode, members)
SELECT ?1, {group}, {first_token} + ?4 - 1, {never}, {now}, '', ?6, 1 FROM {state} AS s
WHERE {may_grant} AND NOT EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = ?1 AND m.owner = ?2)
    AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE {ahead} AND q.mode <> ?6)
    AND (?6 < 0 OR {present} + (SELECT count(*) FROM {queue} AS q WHERE {ahead}) < ?6)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = max(l.token + ?4, excluded.token),
    expires_at = excluded.expires_at, acquired_at = excluded.acquired_at, label = excluded.label,
    mode = excluded.mode, members = {present} + 1
WHERE l.expires_at IS NULL OR l.expires_at <= {now} OR (l.mode = excluded.mode AND l.owner = excluded.owner);
INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
SELECT ?1, ?2, token, {now} + ?3, {now}, ?8, ?6 FROM {locks} WHERE name = ?1 AND changes() > 0;
SELECT token FROM {members} WHERE name = ?1 AND owner = ?2 AND changes() > 0;
DELETE FROM {queue} WHERE owner = ?2 AND changes() > 0;
COMMIT

-- name: member
-- The token of a claim that is a member already, and asks again after a lost answer.
SELECT token FROM {members} WHERE name = ?1 AND owner = ?2

-- part: is_left
-- Whether another member is left. If the count says no, its row is looked for: somebody may have changed the count.
(members > 1 OR EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = ?1 AND m.owner <> ?2))

-- name: leave_group
-- The last member frees the lock, unless an owner holds it: rows of members that somebody has restored must not free it.
BEGIN IMMEDIATE;
UPDATE {locks} SET members = CASE WHEN {is_left} THEN max(members - 1, 1) ELSE 0 END,
    mode = CASE WHEN {is_left} THEN mode ELSE 0 END,
    expires_at = CASE WHEN {is_left} OR owner <> {group} THEN expires_at END
WHERE name = ?1 AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = ?1 AND m.owner = ?2);
DELETE FROM {members} WHERE name = ?1 AND owner = ?2;
COMMIT

-- name: reap
-- Deletes the members of a group whose leases have ended, and counts the others by their rows.
BEGIN IMMEDIATE;
DELETE FROM {members} WHERE name = ?1 AND expires_at <= {now};
UPDATE {locks} SET members = c.many, mode = CASE WHEN c.many > 0 THEN mode ELSE 0 END,
    expires_at = CASE WHEN c.many > 0 OR owner <> {group} THEN expires_at END
FROM (SELECT count(*) AS many FROM {members} WHERE name = ?1) AS c
WHERE name = ?1 AND members > 0 AND members <> c.many;
COMMIT

-- name: stale_groups
SELECT DISTINCT name FROM {members} WHERE expires_at < {now} - ?1

-- name: downgrade
-- Its place may not have been tidied up yet, and is not the last holder's any more.
BEGIN IMMEDIATE;
INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
SELECT name, owner, token, expires_at, acquired_at, label, ?3 FROM {locks}
WHERE name = ?1 AND owner = ?2 AND expires_at > {now};
UPDATE {locks} SET owner = {group}, expires_at = {never}, mode = ?3, members = 1 WHERE name = ?1 AND changes() > 0;
DELETE FROM {queue} WHERE owner = ?2 AND changes() > 0;
COMMIT

-- name: due_waiters
-- The clients and tickets of all waiters whose turn it is: the first of the queue, all readers at its head, or as many as there
-- are permits.
SELECT q.client, q.ticket FROM (SELECT ticket, client, mode, row_number() OVER line AS place,
        min(mode) OVER line <> max(mode) OVER line AS behind_others FROM {queue}
    WHERE name = ?1 AND alive_until > {now} AND owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)
    WINDOW line AS (ORDER BY ticket)) AS q LEFT JOIN {locks} AS l ON l.name = ?1
WHERE CASE WHEN q.behind_others OR coalesce(l.expires_at > {now} AND (l.mode = 0 OR l.mode <> q.mode), 0) THEN 0
    WHEN q.mode < 0 THEN 1
    WHEN q.mode > 0 THEN coalesce(l.members, 0) + q.place <= q.mode
    ELSE q.place = 1 END
