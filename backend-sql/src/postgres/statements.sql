-- What is sent to PostgreSQL.
--
-- A "part" is used by other statements, by its name in braces; a "name" is a statement. {locks}, {members}, {waiters} and
-- {clients} are the tables. Times are in microseconds of the server's clock: by clock_timestamp(), since now() does not
-- change within a transaction, and a statement that waited for a row would read an old time.
--
-- A statement that changes the holder of a lock locks the lock's row first, so what it reads from that row is
-- current. What it reads from other rows is as old as its snapshot. Hence the mark, `waited` in the row:
-- * A release that finds no mark looks no further. So `claim` and `enter` set the mark and store the place in
--   one transaction. If the mark is set, `enter_marked` stores the place alone. The claim relies on it only if
--   `look`, a later statement, finds that another claim holds the lock alone and the mark is still set. Neither
--   of the two locks the row.
-- * The mark is cleared only by a statement that sees no other waiter that is alive, if the row has the version of its snapshot
--   ({is_same}) and was free ({was_free}) or a group's. A place that the snapshot lacks was committed later,
--   and its look came later still: it has found no mark, or no other that holds the lock alone.
--   `may_clear` is that condition, or that there is no mark: then the row has one only for a waiter that is seen.
-- * A release of a marked lock that sees no waiter keeps the mark. `hand_on` follows, and its snapshot is
--   later than the release: it has each place whose look has found the lock held.
-- * A place counts while its client is alive, by any of the client's heartbeats. One that does not count does
--   not keep the mark; if its client gives a heartbeat again, `poll_waiters` says that it must be taken anew.
--
-- Each statement is a transaction. One that grants or extends a lease commits as disk.sql or lazy.sql say ({granting}). Any other waits
-- for no disk ({lazy}): if a crash loses a release, the lock stays held until its lease ends. A commit that waits for the disk also
-- makes all commits before it durable.
-- Transactions that notify commit one after the other: each keeps a lock of the whole server from before its commit waits for the
-- disk until its end. So a statement that may be durable notifies nobody. It leaves the notifications in a setting of the session
-- (`lockwell.notes`, a line each), and `send_notes` sends them in a lazy transaction that follows in the same message.
-- The queue is UNLOGGED. After a crash, or on a promoted replica, it is empty, and no grant of a release names a sign of
-- life that this server has not seen: waiters enter again with their next poll. `waited` may be wrong then. If it is set, the
-- next statement reads the queue and clears it; if it is not, the next waiter sets it.

-- part: clock
(extract(epoch from clock_timestamp()) * 1000000)::bigint

-- part: durable
-- Only `off` is changed. Any other value is the administrator's choice, for example to wait for a replica.
CASE current_setting('synchronous_commit') WHEN 'off'
    THEN set_config('synchronous_commit', 'on', true) IS NOT NULL ELSE true END

-- part: lazy
set_config('synchronous_commit', 'off', true) IS NOT NULL

-- part: is_free
(l.ends_at IS NULL OR l.ends_at <= clock_timestamp())

-- part: is_same
l.ctid = (SELECT s.ctid FROM {locks} s WHERE s.name = l.name)

-- part: was_free
-- Whether the row has the version of the snapshot, and its lease had ended by then. A lease that ends only
-- afterwards does not count: a look in between may have found the lock held.
{is_same} AND (l.ends_at IS NULL OR l.ends_at <= statement_timestamp())

-- part: live_waiters
-- The waiters whose clients are alive. One heartbeat of a client counts for all its places.
{waiters} q JOIN {clients} c ON c.client = q.client AND c.alive_until > clock_timestamp()

-- part: ticket
-- The place of $2. A claim without a place comes after all others.
coalesce((SELECT o.ticket FROM {waiters} o WHERE o.owner = $2), 9223372036854775807)

-- part: next_token
greatest(l.token, {first_token})

-- part: left
-- The time until the first lease of the holders ends. A group whose members have no rows, after damage from outside, has ended.
(extract(epoch from CASE WHEN l.members > 0
    THEN coalesce((SELECT min(m.ends_at) FROM {members} m WHERE m.name = l.name), clock_timestamp())
    WHEN l.ends_at > clock_timestamp() THEN l.ends_at END - clock_timestamp()) * 1000000)::bigint

-- part: taking
-- A claim that holds the lock already, and asks again after a lost answer, keeps its token. What a free row says about a group
-- is a leftover, and goes.
token = CASE WHEN l.owner = $2 AND {is_current} THEN l.token ELSE {next_token} + $5 END,
acquired_at = CASE WHEN l.owner = $2 AND {is_current} THEN l.acquired_at ELSE clock_timestamp() END,
owner = $2, ends_at = clock_timestamp() + $3 * interval '1 microsecond', label = $4, mode = 0, members = 0

-- part: taking_row
-- The same for the claim of a row `w`.
token = CASE WHEN l.owner = w.owner AND {is_current} THEN l.token ELSE {next_token} + w.tokens END,
acquired_at = CASE WHEN l.owner = w.owner AND {is_current} THEN l.acquired_at ELSE clock_timestamp() END,
owner = w.owner, ends_at = clock_timestamp() + w.ttl * interval '1 microsecond', label = w.label, mode = 0, members = 0

-- name: take
-- Takes a lock that is free and for which nobody may be waiting, and does nothing in any other case: each part of a statement costs
-- time, also one that is not carried out. `stand` and `take_many` are for the other cases. $1 name, $2 owner, $3 ttl, $4 label,
-- $5 how many tokens.
UPDATE {locks} l SET token = greatest(l.token, {clock} - 1, {its_floor}) + $5, acquired_at = clock_timestamp(), owner = $2,
    ends_at = clock_timestamp() + $3 * interval '1 microsecond', label = $4, mode = 0, members = 0
FROM {state} s WHERE l.name = $1 AND l.owner <> $2 AND {is_free} AND NOT l.waited AND {its_granting}
RETURNING CASE WHEN l.token <= {its_limit} THEN l.token ELSE concat('lockwell: no grant ', clock_timestamp())::bigint END

-- name: stand
-- How a lock stands for the claim $2: the mode in which another holds it, the time left of the lease, and whether it is free and
-- only waiters are ahead. $1 name.
SELECT CASE WHEN l.owner <> $2 AND NOT {is_free} THEN l.mode END, {left}, l.owner <> $2 AND {is_free} AND l.waited
FROM {locks} l WHERE l.name = $1

-- name: take_new
-- The same for a lock that has no row.
INSERT INTO {locks} AS l (name, owner, token, ends_at, acquired_at, label)
SELECT $1, $2, {first_token} + $5, clock_timestamp() + $3 * interval '1 microsecond', clock_timestamp(), $4 WHERE {granting}
ON CONFLICT (name) DO NOTHING
RETURNING {granted_token}

-- name: take_many
-- The same for several locks, as arrays. It skips rows that a transaction has locked.
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, tokens, n) WHERE {granting}
), open AS (
    SELECT w.n FROM {locks} l JOIN want w ON w.name = l.name
    WHERE l.owner = w.owner OR {is_free} AND NOT l.waited
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE {locks} l SET {taking_row}
    FROM want w JOIN open USING (n) WHERE l.name = w.name
    RETURNING w.n, {granted_token} AS token
), made AS (
    INSERT INTO {locks} AS l (name, owner, token, ends_at, acquired_at, label)
    SELECT w.name, w.owner, {first_token} + w.tokens, clock_timestamp() + w.ttl * interval '1 microsecond',
        clock_timestamp(), w.label
    FROM want w WHERE NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.name = w.name) ORDER BY w.name
    ON CONFLICT (name) DO NOTHING
    RETURNING l.owner, {granted_token} AS token
)
SELECT coalesce(taken.token, made.token), CASE WHEN NOT {is_free} THEN l.mode END, {left},
    coalesce({is_free} AND l.waited, false)
FROM want w LEFT JOIN taken USING (n) LEFT JOIN made ON made.owner = w.owner LEFT JOIN {locks} l ON l.name = w.name
ORDER BY w.n

-- part: placing
-- A place. It counts only with a heartbeat of its client (`signing`).
INSERT INTO {waiters} AS q (name, owner, client, number, label, mode, tokens, lease)

-- part: placed_already
ON CONFLICT (owner) DO UPDATE SET client = excluded.client, number = excluded.number, lease = excluded.lease

-- part: signing
INSERT INTO {clients} AS c (client, alive_until, sign)

-- part: signed_already
ON CONFLICT (client) DO UPDATE SET alive_until = excluded.alive_until, sign = greatest(c.sign, excluded.sign)

-- name: claim
-- Takes a lock that is free if no waiter is ahead of $2, or takes a place. A claim that finds the lock its own or free while it
-- takes the place must ask again: `mine` has read an older version of the row. `placed` reads from `mark`, so a claim to which
-- a release grants the lock at this moment gets no second place. $1 to $5 as above, $6 client, $7 number (null: no
-- place), $8 how long a heartbeat lasts, $9 its number, $10 provisional lease (null: a release only notifies).
WITH mine AS (
    SELECT l.name, {was_free} AS may_clear FROM {locks} l
    WHERE l.name = $1 AND (l.owner = $2 OR {is_free} AND NOT EXISTS (
        SELECT 1 FROM {live_waiters} WHERE q.name = $1 AND q.owner <> $2 AND q.ticket < {ticket}))
    FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM {waiters} q USING mine WHERE q.owner = $2
), taken AS (
    UPDATE {locks} l SET {taking}, waited = CASE WHEN l.owner = $2 THEN l.waited
        ELSE NOT m.may_clear OR EXISTS (SELECT 1 FROM {live_waiters} WHERE q.name = $1 AND q.owner <> $2) END
    FROM mine m WHERE l.name = m.name
    RETURNING {granted_token} AS token
), mark AS (
    UPDATE {locks} l SET waited = true
    WHERE l.name = $1 AND $7::bigint IS NOT NULL AND NOT EXISTS (SELECT 1 FROM taken)
    RETURNING l.owner = $2 AS is_mine, {is_free} AS is_free
), placed AS (
    {placing} SELECT $1, $2, $6, $7, $4, 0, $5, $10 FROM mark WHERE NOT mark.is_mine {placed_already}
), sign AS (
    {signing} SELECT $6, clock_timestamp() + $8 * interval '1 microsecond', $9 FROM mark {signed_already}
)
SELECT taken.token, CASE WHEN NOT {is_free} THEN l.mode
        ELSE (SELECT q.mode FROM {live_waiters} WHERE q.name = $1 AND q.owner <> $2 AND q.ticket < {ticket}
            ORDER BY q.ticket LIMIT 1) END,
    {left}, l.name IS NULL, coalesce(mark.is_mine OR mark.is_free, false), {clock},
    CASE WHEN taken.token IS NULL THEN {lazy} ELSE {granting} END
FROM (VALUES (1)) AS one LEFT JOIN taken ON true LEFT JOIN mark ON true LEFT JOIN {locks} l ON l.name = $1

-- part: held_marked
-- Whether another than $2 holds the lock $1 alone, and its row is marked.
l.name = $1 AND l.owner <> $2 AND l.waited AND l.mode = 0 AND l.members = 0 AND l.ends_at > clock_timestamp()

-- name: enter_marked
-- Takes a place in the queue of a lock that is held and marked, without locking its row. Otherwise nothing:
-- a late copy of it must leave no place for a claim that holds the lock, or that may find it free. (A copy
-- that the grant overtakes can; `claim` or the release deletes that place.) Nothing either if the last
-- heartbeat of the client does not last for $8 more: the claim is a heartbeat then. $1 name, $2 owner,
-- $3 client, $4 number, $5 label, $6 how many tokens, $7 provisional lease.
{placing} SELECT $1, $2, $3, $4, $5, 0, $6, $7 WHERE {lazy} AND EXISTS (SELECT 1 FROM {locks} l WHERE {held_marked})
    AND EXISTS (SELECT 1 FROM {clients} c WHERE c.client = $3 AND c.alive_until > clock_timestamp() + $8 * interval '1 microsecond')
{placed_already}

-- name: look
-- The time left of the lease, if the lock is so now, and the last heartbeat of the client lasts for $4 more.
-- It is sent when the place of `enter_marked` is committed. $1 name, $2 owner, $3 client.
SELECT greatest(1, (extract(epoch from l.ends_at - clock_timestamp()) * 1000000)::bigint) FROM {locks} l
WHERE {held_marked} AND EXISTS (SELECT 1 FROM {clients} c WHERE c.client = $3
    AND c.alive_until > clock_timestamp() + $4 * interval '1 microsecond')

-- name: enter
-- Takes places, for claims in any mode. A claim that is a member already, and asks again after a lost answer, gets none:
-- nothing would delete it. $1 names, $2 owners, $3 labels, $4 how many tokens, $5 modes, $6 numbers,
-- $7 provisional leases, $8 client, $9 how long a heartbeat lasts, $10 its number.
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        WITH ORDINALITY AS w(name, owner, label, tokens, mode, number, lease, n) WHERE {lazy}
), open AS (
    SELECT l.name FROM {locks} l WHERE l.name = ANY($1) ORDER BY l.name FOR NO KEY UPDATE OF l
), mark AS (
    UPDATE {locks} l SET waited = true FROM open WHERE l.name = open.name
    RETURNING l.name, l.owner, {is_free} AS is_free
), placed AS (
    {placing} SELECT w.name, w.owner, $8, w.number, w.label, w.mode, w.tokens, w.lease
    FROM want w JOIN mark USING (name) WHERE w.owner <> mark.owner
        AND NOT EXISTS (SELECT 1 FROM {members} m WHERE m.name = w.name AND m.owner = w.owner)
    ORDER BY w.n {placed_already}
), sign AS (
    {signing} VALUES ($8, clock_timestamp() + $9 * interval '1 microsecond', $10) {signed_already}
)
SELECT CASE WHEN NOT {is_free} THEN l.mode END, {left}, mark.name IS NULL,
    coalesce(mark.owner = w.owner OR mark.is_free, false), {clock}
FROM want w LEFT JOIN mark USING (name) LEFT JOIN {locks} l ON l.name = w.name ORDER BY w.n

-- name: take_placed
-- Takes locks for several claims with places, each where it is free and no waiter is ahead. A claim that is refused keeps its
-- place: whoever holds the lock now took it after the place was committed, so its release sees the place. $1 to $5 are as
-- for `take_many`.
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, tokens, n) WHERE {granting}
), mine AS (
    SELECT w.*, {was_free} AS may_clear FROM {locks} l JOIN want w ON w.name = l.name
    WHERE l.owner = w.owner OR {is_free} AND NOT EXISTS (
        SELECT 1 FROM {live_waiters} WHERE q.name = w.name AND q.owner <> w.owner
            AND q.ticket < coalesce((SELECT o.ticket FROM {waiters} o WHERE o.owner = w.owner), 9223372036854775807))
    ORDER BY l.name FOR NO KEY UPDATE OF l
), gone AS (
    DELETE FROM {waiters} q USING mine m WHERE q.owner = m.owner
), taken AS (
    UPDATE {locks} l SET {taking_row}, waited = CASE WHEN l.owner = w.owner THEN l.waited
        ELSE NOT w.may_clear OR EXISTS (SELECT 1 FROM {live_waiters} WHERE q.name = w.name AND q.owner <> w.owner) END
    FROM mine w WHERE l.name = w.name
    RETURNING w.n, {granted_token} AS token
)
SELECT taken.token, CASE WHEN NOT {is_free} THEN l.mode END, {left}
FROM want w LEFT JOIN taken USING (n) LEFT JOIN {locks} l ON l.name = w.name ORDER BY w.n

-- name: poll_waiters
-- Gives a heartbeat, and returns which waiters of the client should ask. First those that must take a place: they have none, or
-- the lock's row does not say that somebody waits, so no release would see it. Then those whose lock is
-- free. Waiters for groups ask whenever a group holds the lock. Last the time until the next lease ends, which is not hidden by a
-- lease that has ended and stays. $1 numbers, $2 owners, $3 client, $4 how long a sign lasts, $5 its number.
WITH sign AS (
    {signing} VALUES ($3, clock_timestamp() + $4 * interval '1 microsecond', $5) {signed_already}
), own AS (
    SELECT w.number, q.name, q.ticket, q.mode, q.name IS NULL OR coalesce(NOT l.waited, false) AS enters
        FROM unnest($1::bigint[], $2::uuid[]) AS w(number, owner)
        LEFT JOIN {waiters} q ON q.owner = w.owner AND q.client = $3 LEFT JOIN {locks} l ON l.name = q.name
)
SELECT {clock}, ARRAY(SELECT own.number FROM own WHERE own.enters),
    ARRAY(SELECT own.number FROM own LEFT JOIN {locks} l USING (name) WHERE NOT own.enters AND CASE
        WHEN l.token IS NULL THEN true
        WHEN own.mode <> 0 THEN l.mode <> 0 OR {is_free}
        WHEN l.members > 0 THEN {left} <= 0
        ELSE {is_free} AND NOT EXISTS (SELECT 1 FROM {live_waiters} WHERE q.name = own.name AND q.ticket < own.ticket) END),
    (SELECT coalesce(min(e.micros) FILTER (WHERE e.micros > 0), min(e.micros))
        FROM (SELECT {left} AS micros FROM {locks} l WHERE l.name IN (SELECT own.name FROM own)) e)

-- name: release
-- Frees a lock for which nobody may be waiting. $1 name, $2 owner.
UPDATE {locks} l SET ends_at = NULL
WHERE l.name = $1 AND l.owner = $2 AND NOT l.waited AND {lazy}
RETURNING 1::bigint

-- part: head
-- The first waiter. One that leaves at this moment is skipped.
SELECT q.name, q.ticket, q.owner, q.client, q.number, q.label, q.mode, q.tokens, q.lease, c.sign FROM {live_waiters}

-- part: giving
owner = coalesce(h.owner, l.owner), label = coalesce(h.label, l.label),
token = CASE WHEN h.owner IS NULL THEN l.token ELSE {next_token} + h.tokens END,
acquired_at = CASE WHEN h.owner IS NULL THEN l.acquired_at ELSE clock_timestamp() END,
ends_at = clock_timestamp() + h.lease * interval '1 microsecond', mode = 0, members = 0

-- part: message
-- The notification for the first waiter: its number, and what was granted to it.
CASE WHEN NOT done.is_given THEN head.number::text
    ELSE concat_ws(':', head.number, done.token, (extract(epoch from done.ends_at) * 1000000)::bigint, head.lease, head.sign)
    END

-- part: notified
-- A waiter of this client is notified by the answer, that of another client by a note. If the waiter waits for a group, all
-- waiters that can join are notified.
head.mode <> 0, CASE WHEN head.mode <> 0 THEN NULL WHEN head.client = $3 THEN {message}
    WHEN head.client IS NOT NULL AND set_config('lockwell.notes', concat(current_setting('lockwell.notes', true),
        'lockwell_', replace(head.client::text, '-', ''), ' ', {message}, chr(10)), false) IS NULL
    THEN NULL END

-- part: choosing_holder
-- The waiter of `head` that gets the lock. Its place is deleted.
next_holder AS (
    SELECT h.* FROM head h JOIN mine m USING (name) WHERE {is_given}
), gone AS (
    DELETE FROM {waiters} q USING next_holder h WHERE q.name = h.name AND q.ticket = h.ticket
)

-- part: handing_over
head AS (
    {head} WHERE q.name = $1 AND q.owner <> $2 AND EXISTS (SELECT 1 FROM mine)
    ORDER BY q.ticket LIMIT 1 FOR UPDATE OF q SKIP LOCKED
), {choosing_holder}, done AS (
    UPDATE {locks} l SET {giving}, waited = NOT m.may_clear OR EXISTS (
        SELECT 1 FROM {live_waiters} WHERE q.name = $1 AND q.owner <> $2 AND q.owner IS DISTINCT FROM h.owner)
    FROM mine m LEFT JOIN next_holder h ON true WHERE l.name = m.name
    RETURNING CASE WHEN h.owner IS NULL THEN l.token ELSE {granted_token} END AS token, l.ends_at, l.waited, h.owner IS NOT NULL AS is_given
)
SELECT {notified}, done.waited AND head.owner IS NULL,
    CASE WHEN EXISTS (SELECT 1 FROM next_holder) THEN {granting} ELSE {lazy} END
FROM done LEFT JOIN head ON true

-- name: hand_over
-- Frees a lock, and grants it to the first waiter. A mark stays. The second last column says that it may have missed a
-- waiter, so `hand_on` must look again. $1 name, $2 owner, $3 client.
WITH mine AS (
    SELECT l.name, l.token, NOT l.waited AS may_clear FROM {locks} l WHERE l.name = $1 AND l.owner = $2 FOR NO KEY UPDATE OF l
), {handing_over}

-- name: hand_first
-- The usual case of `hand_over`: a marked lock whose first waiter can be granted it. The mark stays, so it is
-- all the same who else waits. The columns are those of `hand_over`; if the first is null, nothing was done.
-- `front` is carried out once. A subquery in its place might be carried out once for each row of the table,
-- and find the next waiter each time, since it passes over what the statement has deleted.
WITH mine AS (
    SELECT l.name, l.token FROM {locks} l WHERE l.name = $1 AND l.owner = $2 AND l.waited FOR NO KEY UPDATE OF l
), front AS (
    {head} WHERE q.name = $1 AND q.owner <> $2 AND EXISTS (SELECT 1 FROM mine)
    ORDER BY q.ticket LIMIT 1 FOR UPDATE OF q SKIP LOCKED
), head AS (
    DELETE FROM {waiters} d USING front h, mine m WHERE d.name = h.name AND d.ticket = h.ticket AND {is_given} AND {may_note}
    RETURNING h.owner, h.client, h.number, h.label, h.tokens, h.lease, h.sign
), given AS (
    UPDATE {locks} l SET owner = head.owner, label = head.label, token = {next_token} + head.tokens,
        acquired_at = clock_timestamp(), ends_at = clock_timestamp() + head.lease * interval '1 microsecond', mode = 0, members = 0
    FROM head WHERE l.name = $1
    RETURNING CASE WHEN head.client = $3 THEN {first_message} WHEN {first_noted} IS NULL THEN NULL END AS message,
        {first_granting} AS is_granted
)
SELECT CASE WHEN given.is_granted THEN false END, given.message, false, coalesce(given.is_granted, {lazy})
FROM (VALUES (1)) AS one LEFT JOIN given ON true

-- part: first_message
concat_ws(':', head.number, {granted_token}, (extract(epoch from l.ends_at) * 1000000)::bigint, head.lease, head.sign)

-- name: hand_on
-- Grants a free lock to its first waiter.
WITH mine AS (
    SELECT l.name, l.token, {was_free} AS may_clear FROM {locks} l WHERE l.name = $1 AND {is_free} AND l.waited
    FOR NO KEY UPDATE OF l
), {handing_over}

-- name: hand_over_many
-- As `hand_over`, for arrays. If a row was skipped although the claim holds the lock, a transaction has locked it.
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS w(name, owner, n)
), mine AS (
    SELECT l.name, l.token, w.owner, w.n, NOT l.waited AS may_clear FROM {locks} l JOIN want w ON w.name = l.name AND w.owner = l.owner
    ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), head AS (
    SELECT m.n, h.* FROM mine m CROSS JOIN LATERAL (
        {head} WHERE q.name = m.name AND q.owner <> m.owner ORDER BY q.ticket LIMIT 1 FOR UPDATE OF q SKIP LOCKED) h
), {choosing_holder}, done AS (
    UPDATE {locks} l SET {giving}, waited = NOT m.may_clear OR EXISTS (
        SELECT 1 FROM {live_waiters} WHERE q.name = m.name AND q.owner <> m.owner AND q.owner IS DISTINCT FROM h.owner)
    FROM mine m LEFT JOIN next_holder h USING (n) WHERE l.name = m.name
    RETURNING m.n, CASE WHEN h.owner IS NULL THEN l.token ELSE {granted_token} END AS token, l.ends_at, l.waited, h.owner IS NOT NULL AS is_given
)
SELECT done.n IS NOT NULL, coalesce(l.ends_at IS NOT NULL, false), {notified},
    coalesce(done.waited AND head.owner IS NULL, false),
    CASE WHEN EXISTS (SELECT 1 FROM next_holder) THEN {granting} ELSE {lazy} END
FROM want w LEFT JOIN done USING (n) LEFT JOIN head USING (n) LEFT JOIN {locks} l ON l.name = w.name AND l.owner = w.owner
ORDER BY w.n

-- name: send_notes
-- Sends the notifications that hand-overs of this session have left, and forgets them. A note that is sent twice does no harm.
SELECT count(pg_notify(split_part(n.note, ' ', 1), split_part(n.note, ' ', 2))::text), set_config('lockwell.notes', '', false)
FROM unnest(string_to_array(current_setting('lockwell.notes', true), chr(10))) AS n(note) WHERE n.note <> '' AND {lazy}

-- name: renew
-- Extends leases of holders, or of members, also those that have ended. The row of an earlier grant to the same claim, which a crash
-- may bring back, is another's. The last column says whether the server grants locks: who only renews would not find out. $1 names,
-- $2 owners, $3 ttls, $4 tokens.
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS w(name, owner, ttl, token, n)
    WHERE {granting}
), mine AS (
    SELECT w.n FROM {held} l JOIN want w ON w.name = l.name AND w.owner = l.owner AND w.token = l.token
    WHERE l.ends_at IS NOT NULL ORDER BY l.name, l.owner FOR NO KEY UPDATE OF l SKIP LOCKED
), done AS (
    UPDATE {held} l SET ends_at = clock_timestamp() + w.ttl * interval '1 microsecond'
    FROM want w JOIN mine USING (n) WHERE l.name = w.name AND l.owner = w.owner
    RETURNING w.n
)
SELECT done.n IS NOT NULL, l.ends_at IS NOT NULL, {may_give}
FROM want w LEFT JOIN done USING (n) LEFT JOIN {held} l ON l.name = w.name AND l.owner = w.owner AND l.token = w.token
ORDER BY w.n

-- name: leave
-- Leaves queues. $1 owners.
DELETE FROM {waiters} q WHERE q.owner = ANY($1) RETURNING q.owner, q.name

-- part: notify
WHEN q.client = {client} THEN q.number
WHEN pg_notify('lockwell_' || replace(q.client::text, '-', ''), q.number::text)::text IS NULL THEN NULL ELSE {elsewhere}

-- part: next
-- Notifies the first waiter. A waiter for a group may not be the only one whose turn it is; a waiter that wants the lock
-- exclusively need not be notified while a group holds it. The snapshot may still show one that has left, so the row is locked:
-- one that leaves later waits for this statement, and then notifies the next.
(SELECT CASE WHEN q.mode <> 0 THEN {several} WHEN l.mode <> 0 THEN {elsewhere} {notify} END FROM (
    SELECT q.mode, q.client, q.number FROM {live_waiters} WHERE q.name = l.name AND q.owner <> l.owner
    ORDER BY q.ticket LIMIT 1 FOR KEY SHARE OF q SKIP LOCKED) q)

-- name: notify_heads
-- Notifies the first waiters of locks that can be taken. $1 names, $2 client.
SELECT l.name, {next} FROM {locks} l WHERE l.name = ANY($1) AND ({is_free} OR l.mode <> 0) AND {lazy}

-- name: turns
-- The first waiters that belong to this client, for clients that receive no notifications. $1 names, $2 client.
SELECT l.name, CASE WHEN t.mode <> 0 THEN {several}
    WHEN l.mode = 0 AND t.client = $2 THEN t.number END
FROM {locks} l CROSS JOIN LATERAL (
    SELECT q.number, q.client, q.mode FROM {live_waiters} WHERE q.name = l.name AND q.owner <> l.owner
    ORDER BY q.ticket LIMIT 1) t
WHERE l.name = ANY($1) AND ({is_free} OR l.mode < 0 OR l.members < l.mode)

-- name: notify_client
SELECT pg_notify($1, $2) WHERE {lazy}

-- name: holders
SELECT token, label, mode,
    (extract(epoch from ends_at - clock_timestamp()) * 1000000)::bigint,
    (extract(epoch from clock_timestamp() - acquired_at) * 1000000)::bigint
FROM (SELECT token, label, mode, ends_at, acquired_at FROM {locks} WHERE name = $1 AND members = 0
    UNION ALL SELECT token, label, mode, ends_at, acquired_at FROM {members} WHERE name = $1) AS h
WHERE ends_at > clock_timestamp() ORDER BY token

-- name: first_waiters
-- The first $2 who wait, how long they have waited, and how many there are in all.
SELECT q.label, q.mode, (extract(epoch from clock_timestamp() - q.entered_at) * 1000000)::bigint, count(*) OVER ()
FROM {live_waiters} WHERE q.name = $1 ORDER BY q.ticket LIMIT $2

-- name: force
-- The owner changes, too: the old one must not take the release for its own. A row that is purged at once could be reclaimed by
-- the old one, so it counts as used now. $3 the highest token of those who may be freed: if an answer was lost, those who came
-- after them are not.
WITH held AS (
    SELECT l.name, l.mode, l.token FROM {locks} l WHERE l.name = $1 AND l.ends_at > clock_timestamp() AND (l.token <= $3
        OR l.members > 0 AND EXISTS (SELECT 1 FROM {members} m WHERE m.name = $1 AND m.token <= $3)) AND {durable}
    FOR NO KEY UPDATE OF l
)
UPDATE {locks} l SET ends_at = NULL, owner = $2, token = {forced_token}, acquired_at = clock_timestamp(), mode = 0, members = 0
FROM held WHERE l.name = held.name
RETURNING held.mode, held.token

-- name: force_members
-- A separate statement: it sees all members that joined before the lock's row was locked.
DELETE FROM {members} WHERE name = $1 RETURNING ends_at > clock_timestamp()

-- name: names
-- The names of the locks that are held. The row of a lock that a group holds has a lease without an end.
SELECT name FROM {locks} WHERE ends_at > clock_timestamp() ORDER BY name

-- name: about
-- Its clock, whether a crash can lose what was committed, how many replicas stream from it, which of them it waits for, and
-- for what; whether it takes no writes.
SELECT {clock}, current_setting('fsync'), current_setting('full_page_writes'),
    (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'),
    current_setting('synchronous_commit'), current_setting('transaction_read_only')

-- name: portion
-- The last name of a portion of the purge.
SELECT max(name) FROM (SELECT name FROM {locks} WHERE name > $1 ORDER BY name LIMIT $2) AS portion

-- name: purge
-- A row goes only when its token is lower than what a new row would start with. A row that is in use is skipped, and so are all
-- while a renewal may be lost. Whoever was freed by force cannot reclaim the lock when its lease has ended.
DELETE FROM {locks} l USING (SELECT i.name FROM {locks} i WHERE i.name > $2 AND i.name <= $3
    AND greatest(i.ends_at, i.acquired_at) < clock_timestamp()
        - greatest($1, (SELECT s.longest_ttl FROM {state} s)) * interval '1 microsecond' AND i.token <= {first_token}
    FOR UPDATE SKIP LOCKED) AS idle
WHERE l.name = idle.name AND {lazy} AND {may_give}

-- name: purge_waiters
-- Places whose clients are not known, after damage from outside.
DELETE FROM {waiters} q WHERE NOT EXISTS (SELECT 1 FROM {clients} c WHERE c.client = q.client) AND {lazy}

-- name: dead_client
-- How many clients there are, and one that has been dead for $1.
SELECT count(*), (array_agg(client) FILTER (WHERE alive_until < clock_timestamp() - $1 * interval '1 microsecond'))[1]
FROM {clients}

-- name: forget_places
-- Deletes some places of a client. $1 client, $2 how many.
DELETE FROM {waiters} WHERE {lazy} AND ctid = ANY(ARRAY(
    SELECT q.ctid FROM {waiters} q WHERE q.client = $1 LIMIT $2 FOR UPDATE SKIP LOCKED))

-- name: places_of
-- $1 client.
SELECT owner, number FROM {waiters} WHERE client = $1

-- name: forget_stale
-- Deletes places by their owners $1 and numbers $2.
DELETE FROM {waiters} WHERE {lazy} AND ctid = ANY(ARRAY(
    SELECT q.ctid FROM {waiters} q JOIN unnest($1::uuid[], $2::bigint[]) AS w(owner, number) USING (owner, number)
    FOR UPDATE OF q SKIP LOCKED))

-- name: forget_client
-- Deletes a client that is still dead, and has no places. $1 client, $2 for how long it has been dead.
DELETE FROM {clients} c WHERE c.client = $1 AND c.alive_until < clock_timestamp() - $2 * interval '1 microsecond'
    AND NOT EXISTS (SELECT 1 FROM {waiters} q WHERE q.client = c.client) AND {lazy}

-- name: verify
-- It runs in the user's session, whose search path may contain other operators. A takeover updates the lock's row or deletes the
-- member's, so it waits for the end of the transaction. Not `FOR KEY SHARE`: that lets the former pass.
-- The parts are in this order: a row that is missing says nothing either, where a record may be lost.
SELECT h.one FROM (SELECT {may_verify} AS may) g CROSS JOIN LATERAL (SELECT 1 AS one FROM {held}
    WHERE name OPERATOR(pg_catalog.=) $1 AND owner OPERATOR(pg_catalog.=) $2
        AND token OPERATOR(pg_catalog.=) $3 AND ends_at IS NOT NULL AND g.may FOR SHARE) h

-- name: write_record
-- Writes a record for the present holder, whose lease may have ended. Whoever takes the lock waits for this statement, or this one
-- for the grant, which it then sees. As in `verify`, a row that is missing says nothing where it may be lost. A late copy changes
-- nothing. The answer is the last write. $1 name, $2 owner, $3 kind, $4 hold, $5 number, $6 token, $7 value, $8 the token in the
-- lock's row: a late copy of the acquire may have got the lock for the same owner again, after a forced release.
WITH mine AS (
    SELECT h.name FROM (SELECT {may_verify} AS may) g CROSS JOIN LATERAL (SELECT l.name FROM {locks} l
        WHERE l.name = $1 AND l.owner = $2 AND l.token = $8 AND l.ends_at IS NOT NULL AND l.mode = 0 AND l.members = 0
            AND g.may AND {durable}
        FOR SHARE OF l) h
)
INSERT INTO {records} AS r (name, kind, hold, number, token, value) SELECT m.name, $3, $4, $5, $6, $7 FROM mine m
ON CONFLICT (name, kind) DO UPDATE SET hold = excluded.hold, token = excluded.token,
    number = CASE WHEN r.hold = excluded.hold THEN greatest(r.number, excluded.number) ELSE excluded.number END,
    value = CASE WHEN r.hold = excluded.hold AND r.number >= excluded.number THEN r.value ELSE excluded.value END
RETURNING r.hold, r.number

-- name: read_record
-- $1 name, $2 kind.
SELECT value, token, hold FROM {records} WHERE name = $1 AND kind = $2

-- name: read_record_under
-- The lock of the row is refused by a standby, which may lack the last write; a pooler sends it to the primary. A row that is
-- missing says nothing where it may be lost. $3 owner.
WITH mine AS (
    SELECT l.name FROM {held} l WHERE l.name = $1 AND l.owner = $3 AND l.ends_at IS NOT NULL FOR SHARE OF l
)
SELECT r.value, r.token, r.hold FROM (VALUES (1)) AS one LEFT JOIN mine ON true
    LEFT JOIN {records} r ON r.name = mine.name AND r.kind = $2
WHERE CASE WHEN mine.name IS NULL THEN NOT {may_verify} ELSE true END

-- name: recorded
SELECT name FROM {records} WHERE kind = $1 AND value <> '' ORDER BY name

-- name: purge_records
-- A late copy of a write is refused when its hold has ended.
DELETE FROM {records} r WHERE r.value = '' AND NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.name = r.name AND l.ends_at IS NOT NULL)
    AND {lazy}
