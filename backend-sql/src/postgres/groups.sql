-- The statements for locks that groups hold. They also use the parts of statements.sql.
--
-- Each statement locks the locks' rows first, in the order of their names, and decides by what it reads from a row that it
-- has locked: the snapshot of the statement may be older than the lock. A count of the members' rows would be, too; so the
-- members are counted in the lock's row.
--
-- A free row holds no group, whatever its `mode` and `members` say after damage from outside. A group that begins deletes the
-- members that it finds.
--
-- A release grants a lock only to a waiter that wants it exclusively. Waiters for groups are notified, and join.

-- part: group
-- The owner of a lock that a group holds: nobody's id.
'00000000-0000-0000-0000-000000000000'::uuid

-- part: never
-- The end of the lease of a lock that a group holds. The leases that count are those of its members.
timestamptz '9999-12-31 00:00:00+00'

-- part: grouped
owner = {group}, ends_at = {never}, acquired_at = clock_timestamp(), label = ''

-- part: present
-- The members of the group that holds the lock.
CASE WHEN {is_free} THEN 0 ELSE l.members END

-- part: before_one
{live_waiters} WHERE q.name = $1 AND q.owner <> $2 AND q.owner <> l.owner AND q.ticket < {ticket}

-- name: join_one
-- The usual case: one claim, and a lock that has a row. It is planned once, as the batch is not. $1 name, $2 owner, $3 ttl,
-- $4 label, $5 how many tokens, $6 mode.
WITH raised AS (
    UPDATE {locks} l SET {grouped}, token = {next_token} + $5, mode = $6, members = {present} + 1
    WHERE l.name = $1 AND {granting} AND ({is_free} OR l.mode = $6 AND l.owner = {group})
        AND NOT EXISTS (SELECT 1 FROM {members} m WHERE m.name = $1 AND m.owner = $2)
        AND NOT EXISTS (SELECT 1 FROM {before_one} AND q.mode <> $6)
        AND ($6 < 0 OR {present} + (SELECT count(*) FROM {before_one}) < $6)
    RETURNING {granted_token} AS token, l.members
), others AS (
    DELETE FROM {members} m USING raised r WHERE m.name = $1 AND r.members = 1
), made AS (
    INSERT INTO {members} (name, owner, token, ends_at, acquired_at, label, mode)
    SELECT $1, $2, r.token, clock_timestamp() + $3 * interval '1 microsecond', clock_timestamp(), $4, $6 FROM raised r
), gone AS (
    DELETE FROM {waiters} q USING raised WHERE q.owner = $2
)
SELECT raised.token FROM raised

-- part: before
{live_waiters} WHERE q.name = w.name AND q.ticket < w.ticket AND q.owner <> l.owner

-- name: join
-- Adds claims of one mode to a group, or makes them the first members. A reader may overtake readers that wait, since those
-- can join as well. A claim for a permit counts those ahead of it as if they had permits. Nobody overtakes a waiter of another
-- mode. Two modes never hold the lock together: its row has one, and only a row that is free gets another.
--
-- A claim that is already a member, and asks again after a lost answer, keeps its token. A record of before a crash, after which a
-- later holder may have lost its own, ends first. If the first request is still
-- under way, the key of the members refuses the second row, and the statement is repeated. $1 to $5 arrays, $6 mode.
WITH want AS (
    SELECT w.*, coalesce(o.ticket, 9223372036854775807) AS ticket
    FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, tokens, n) LEFT JOIN {waiters} o ON o.owner = w.owner WHERE {granting}
), taken AS (
    SELECT w.n, {member_token} AS token FROM want w JOIN {members} m ON m.name = w.name AND m.owner = w.owner
    WHERE {is_current_member}
), line AS (
    SELECT w.*, row_number() OVER (PARTITION BY w.name ORDER BY w.ticket, w.n) AS place
    FROM want w WHERE NOT EXISTS (SELECT 1 FROM {members} m WHERE m.name = w.name AND m.owner = w.owner)
), open AS (
    SELECT l.name, l.owner, CASE WHEN {is_free} THEN 0 ELSE l.mode END AS mode, {present} AS members FROM {locks} l
    WHERE l.name = ANY($1) AND ({is_free} OR l.owner = {group})
    ORDER BY l.name FOR NO KEY UPDATE OF l
), admitted AS (
    SELECT w.*, sum(w.tokens) OVER (PARTITION BY w.name ORDER BY w.place) AS upto
    FROM line w JOIN open l USING (name)
    WHERE l.mode IN (0, $6) AND NOT EXISTS (SELECT 1 FROM {before} AND q.mode <> $6)
        AND ($6 < 0 OR l.members + w.place + (SELECT count(*) FROM {before} AND q.owner <> ALL ($2)) <= $6)
), raised AS (
    UPDATE {locks} l SET {grouped}, token = {next_token} + s.tokens, mode = $6, members = {present} + s.many
    FROM (SELECT name, sum(tokens)::bigint AS tokens, count(*) AS many FROM admitted GROUP BY name) s
    WHERE l.name = s.name
    RETURNING l.name, {granted_token} - s.tokens AS base, l.members = s.many AS begins
), others AS (
    DELETE FROM {members} m USING raised r WHERE m.name = r.name AND r.begins
), made AS (
    INSERT INTO {members} AS m (name, owner, token, ends_at, acquired_at, label, mode)
    SELECT s.name, s.owner, r.base + s.upto, clock_timestamp() + s.ttl * interval '1 microsecond',
        clock_timestamp(), s.label, $6
    FROM admitted s JOIN raised r USING (name)
    RETURNING m.owner, m.token
), gone AS (
    DELETE FROM {waiters} q USING made WHERE q.owner = made.owner
)
SELECT l.name IS NULL, taken.token, made.token,
    CASE WHEN NOT {is_free} THEN l.mode ELSE (SELECT q.mode FROM {before} ORDER BY q.ticket LIMIT 1) END, {left}
FROM want w LEFT JOIN taken USING (n) LEFT JOIN made ON made.owner = w.owner LEFT JOIN {locks} l ON l.name = w.name
ORDER BY w.n

-- name: make
-- Rows for locks that were never used. $1 names.
INSERT INTO {locks} (name, owner, token, acquired_at, label)
SELECT name, {group}, 0, clock_timestamp(), '' FROM unnest($1::text[]) AS name WHERE {lazy} ORDER BY name
ON CONFLICT DO NOTHING

-- part: mine
SELECT l.name, l.members, {is_same} AS same FROM {locks} l

-- part: fewer
-- How many have left each lock.
fewer AS (
    SELECT mine.name, mine.same, count(*) AS many FROM gone JOIN mine USING (name) GROUP BY mine.name, mine.same
)

-- part: shrunk
-- Subtracts the members that have left from the count. The last one leaves the lock free, unless an owner holds it: rows
-- of members that somebody has restored must not free it, nor clear the mark of its owner.
shrunk AS (
    UPDATE {locks} l SET members = greatest(l.members - f.many, 0), mode = CASE WHEN l.members > f.many THEN l.mode ELSE 0 END,
        ends_at = CASE WHEN l.members > f.many OR l.owner <> {group} THEN l.ends_at END,
        waited = l.waited AND (NOT f.same OR l.owner <> {group} OR EXISTS (
            SELECT 1 FROM {live_waiters} WHERE q.name = l.name AND q.owner <> l.owner))
    FROM fewer f WHERE l.name = f.name
    RETURNING l.name, CASE WHEN l.waited THEN coalesce({next}, {unseen}) END AS next
)

-- name: leave_group
-- Removes claims from their groups. $1 names, $2 owners, $3 client.
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS w(name, owner, n)
), mine AS (
    {mine} WHERE l.name IN (SELECT m.name FROM {members} m JOIN want w ON m.name = w.name AND m.owner = w.owner) AND {lazy}
    ORDER BY l.name FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM {members} m USING want w, mine WHERE m.name = w.name AND m.owner = w.owner AND mine.name = m.name
    RETURNING w.n, m.name
), {fewer}, {shrunk}
SELECT gone.n, shrunk.next FROM gone JOIN shrunk USING (name)

-- name: leave_group_one
-- The usual case, of one claim.
WITH mine AS (
    {mine} WHERE l.name = $1 AND {lazy} AND EXISTS (SELECT 1 FROM {members} m WHERE m.name = $1 AND m.owner = $2)
    FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM {members} m USING mine WHERE m.name = mine.name AND m.owner = $2 RETURNING m.name
), {fewer}, {shrunk}
SELECT shrunk.next FROM shrunk

-- name: reap
-- Removes members whose leases have ended. A member whose row is locked by a transaction stays: the transaction has verified
-- its hold. Nor is one removed while the server may have forgotten its renewal. If nobody has joined or left since the snapshot, the
-- rows are counted, so that a count that somebody has damaged is right again. The last column is as in `renew`. $1 names, $2 client.
WITH mine AS (
    {mine} WHERE l.name = ANY($1) AND l.members > 0 AND {lazy} AND {may_give} ORDER BY l.name FOR NO KEY UPDATE OF l
), dead AS (
    SELECT m.name, m.owner FROM {members} m JOIN mine USING (name) WHERE m.ends_at <= clock_timestamp()
    ORDER BY m.name, m.owner FOR UPDATE OF m SKIP LOCKED
), gone AS (
    DELETE FROM {members} m USING dead d WHERE m.name = d.name AND m.owner = d.owner RETURNING m.name
), fewer AS (
    SELECT c.name, c.same, c.many FROM (SELECT mine.name, mine.same, (SELECT count(*) FROM gone WHERE gone.name = mine.name)
        + CASE WHEN mine.same THEN mine.members - (SELECT count(*) FROM {members} m WHERE m.name = mine.name) ELSE 0 END AS many
        FROM mine) AS c WHERE c.many <> 0
), {shrunk}
SELECT shrunk.name, shrunk.next, {may_give} FROM (VALUES (1)) AS one LEFT JOIN shrunk ON true

-- name: stale_groups
SELECT DISTINCT name FROM {members} WHERE ends_at < clock_timestamp() - $1 * interval '1 microsecond'

-- name: downgrade
-- Members of a group before, whose records a crash has left, go. The claim may have been granted the lock twice, and the row is that of
-- the other grant. $1 name, $2 owner, $3 mode, $4 token.
WITH mine AS (
    SELECT l.name, l.token, l.ends_at, l.acquired_at, l.label FROM {locks} l
    WHERE l.name = $1 AND l.owner = $2 AND l.token = $4 AND l.ends_at > clock_timestamp() AND {durable}
    FOR NO KEY UPDATE OF l
), inserted AS (
    INSERT INTO {members} (name, owner, token, ends_at, acquired_at, label, mode)
    SELECT name, $2, token, ends_at, acquired_at, label, $3 FROM mine
), others AS (
    DELETE FROM {members} m USING mine WHERE m.name = mine.name AND m.owner <> $2
), gone AS (
    DELETE FROM {waiters} q USING mine WHERE q.owner = $2
)
UPDATE {locks} l SET owner = {group}, ends_at = {never}, mode = $3, members = 1 FROM mine WHERE l.name = mine.name
RETURNING 1::bigint

-- name: member
-- Whether the downgrade is done already. $1 name, $2 owner, $3 token.
SELECT token FROM {members} WHERE name = $1 AND owner = $2 AND token = $3

-- name: due_waiters
-- Notifies all waiters whose turn it is: the head of the queue, all readers at its head, or as many as there are permits, up to
-- the first that asks for another mode. $1 name,
-- $2 client.
WITH line AS (
    SELECT q.ticket, q.client, q.number, q.mode, row_number() OVER line AS place,
        min(q.mode) OVER line <> max(q.mode) OVER line AS behind_others
    FROM {live_waiters} WHERE q.name = $1 AND q.owner IS DISTINCT FROM (SELECT owner FROM {locks} WHERE name = $1)
    WINDOW line AS (ORDER BY q.ticket)
)
SELECT CASE {notify} END FROM line q LEFT JOIN {locks} l ON l.name = $1
WHERE {lazy} AND CASE WHEN q.behind_others OR l.ends_at > clock_timestamp() AND (l.mode = 0 OR l.mode <> q.mode) THEN false
    WHEN q.mode < 0 THEN true
    WHEN q.mode > 0 THEN coalesce(l.members, 0) + q.place <= q.mode
    ELSE q.place = 1 END
