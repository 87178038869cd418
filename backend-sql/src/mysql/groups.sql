-- What is sent to MySQL and MariaDB for locks that several hold together. The parts are those of statements.sql.
--
-- Each transaction locks the locks' rows first, in the order of their names, and decides by what it reads from a row that
-- it has locked. So the members are counted in the lock's row.
--
-- A release grants only to one who wants the lock alone. Readers, and those who want permits, are told that they may come in.

-- part: group
-- The owner of a lock that a group holds: nobody's id.
x'00000000000000000000000000000000'

-- part: never
-- The end of the lease of a lock that a group holds. The leases that count are those of its members.
253402300799000000

-- part: present
-- The members of the group that holds the lock. A free row holds none, whatever it says after damage from outside.
IF(expires_at IS NULL OR expires_at <= {now}, 0, members)

-- part: joining
-- Lets a claim in, or makes it the first of a group. The token comes back as the "last insert id". What is found without
-- a lock is looked at again once the row is locked. Assignments are made from left to right: the count comes first. $1 name,
-- $2 owner, $3 how many tokens, $4 mode, $5 ttl, $6 label.
UPDATE {locks} SET members = {present} + 1, token = LAST_INSERT_ID(GREATEST(token, {now} - 1) + $3),
    owner = {group}, expires_at = {never}, acquired_at = {now}, label = '', mode = $4

-- part: joined
-- Makes the row of a claim that was let in, which leaves its place by that.
SET @lw_joined = ROW_COUNT(), @lw_token = LAST_INSERT_ID();
INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
    SELECT $1, $2, @lw_token, {now} + $5, {now}, $6, $4 FROM DUAL WHERE @lw_joined > 0;
DELETE q FROM {waiters} AS q FORCE INDEX (PRIMARY) WHERE q.owner = $2 AND @lw_joined > 0

-- part: ahead
q.name = $1 AND q.ticket < {ticket} AND q.owner <> $2 AND q.owner <> {locks}.owner

-- part: may_join
-- Readers pass over readers who wait, since those can come in as well. Everyone who stands ahead of a permit is given
-- one before. Nobody passes over one who waits in another mode. Two modes never hold the lock together: its row has one, and
-- only a row that is free gets another. A claim that is a member already, and asks again after a lost answer, is not let in twice.
name = $1 AND (expires_at IS NULL OR expires_at <= {now} OR (mode = $4 AND owner = {group}))
    AND NOT EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = $1 AND m.owner = $2)
    AND NOT EXISTS (SELECT 1 FROM {live_waiters} WHERE {ahead} AND q.mode <> $4)
    AND ($4 < 0 OR {present} + (SELECT COUNT(*) FROM {live_waiters} WHERE {ahead}) < $4)

-- name: join
-- A lock that was released, or is held by a group. Its row is never locked for long, so it is waited for.
{joining}
WHERE name = (SELECT f.found FROM (SELECT name AS found FROM {locks}
    WHERE name = $1 AND (expires_at IS NULL OR owner = {group}) LIMIT 1) AS f) AND {may_join};
{joined}

-- name: join_overdue
-- One whose lease has ended, too. A transaction that has verified it keeps the row: that is an error at once.
{joining}
WHERE name = (SELECT f.found FROM (SELECT name AS found FROM {locks}
    WHERE name = $1 AND (expires_at IS NULL OR owner = {group} OR expires_at <= {now}) LIMIT 1 FOR UPDATE NOWAIT) AS f)
    AND {may_join};
{joined}

-- name: may_join_one
-- The same without a lock, for locks that were refused of late.
SELECT 1 FROM {locks} WHERE {may_join}

-- name: make
-- A row for a lock that was never used. One that is there is not touched, and so not waited for.
INSERT IGNORE INTO {locks} (name, owner, token, acquired_at, label)
SELECT $1, {group}, 0, {now} + {writable}, '' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = $1)

-- part: is_left
EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = $1)

-- part: shrinking
-- So many have left. The last one leaves the lock free, unless an owner holds it: rows of members that somebody has
-- restored must not free it. Assignments are made from left to right: the count comes last.
SET @lw_gone = ROW_COUNT();
UPDATE {locks} SET mode = IF({is_left}, mode, 0),
    expires_at = IF({is_left} OR owner <> {group}, expires_at, NULL),
    members = IF({is_left}, GREATEST(members - @lw_gone, 1), 0) WHERE name = $1 AND @lw_locked > 0

-- name: leave_group
-- Removes a claim from its group. Only the row of a lock that it is a member of is locked: a claim that was refused is released
-- as well, and must not wait for a transaction that has verified another's hold. Its own row is locked at once, or it is an
-- error. $1 name, $2 owner.
SELECT COUNT(*) INTO @lw_locked FROM (SELECT name FROM {members} WHERE name = $1 AND owner = $2 LIMIT 1) AS f
    STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = f.name FOR UPDATE;
DELETE m FROM (SELECT name, owner FROM {members} WHERE name = $1 AND owner = $2 AND @lw_locked > 0 LIMIT 1
    FOR UPDATE NOWAIT) AS f STRAIGHT_JOIN {members} AS m FORCE INDEX (PRIMARY) ON m.name = f.name AND m.owner = f.owner;
{shrinking}

-- name: reap
-- Removes the dead of a group, but those whose rows somebody else has locked: a transaction that has, has verified a hold there.
-- Frees the lock, too, if its members have no rows: somebody has changed them from outside. $1 name.
SELECT COUNT(*) INTO @lw_locked FROM {locks} WHERE name = $1 AND members > 0 FOR UPDATE;
DELETE m FROM (SELECT name, owner FROM {members} WHERE name = $1 AND expires_at <= {now} AND @lw_locked > 0 LIMIT 1000000
    FOR UPDATE SKIP LOCKED) AS f STRAIGHT_JOIN {members} AS m FORCE INDEX (PRIMARY) ON m.name = f.name AND m.owner = f.owner;
{shrinking}

-- name: stale_groups
SELECT DISTINCT name FROM {members} WHERE expires_at < {now} - $1

-- name: downgrade
-- Makes the one holder the first of a group, and returns whether the claim is a member then: it may have been before. The row
-- of a grant by a release is not needed any more. $1 name, $2 owner, $3 mode.
{begin};
SELECT COUNT(*) INTO @lw_locked FROM {locks} WHERE name = $1 AND owner = $2 AND expires_at > {now} FOR UPDATE;
INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
    SELECT name, owner, token, expires_at, acquired_at, label, $3 FROM {locks} WHERE name = $1 AND @lw_locked > 0;
UPDATE {locks} SET owner = {group}, expires_at = {never}, mode = $3, members = 1 WHERE name = $1 AND @lw_locked > 0;
DELETE q FROM {waiters} AS q FORCE INDEX (PRIMARY) WHERE q.owner = $2 AND @lw_locked > 0;
{commit};
SELECT CAST(EXISTS (SELECT 1 FROM {members} WHERE name = $1 AND owner = $2) AS SIGNED)

-- name: due_waiters
-- All whose turn it is, and their clients: the head of the queue, all readers at its head, or as many as there are
-- permits. $1 name, $2 client.
SELECT q.number, q.client FROM (SELECT q.number, q.client, q.mode, ROW_NUMBER() OVER (ORDER BY q.ticket) AS place,
        MIN(q.mode) OVER (ORDER BY q.ticket) <> MAX(q.mode) OVER (ORDER BY q.ticket) AS behind_others FROM {live_waiters}
    WHERE q.name = $1 AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = $1))
    ) AS q LEFT JOIN {locks} AS l ON l.name = $1
WHERE (q.client = $2 OR {parked} IS NOT NULL) AND {turn}
