-- The queue of a lock in its own row.
--
-- Claims that want a lock exclusively, and to which a release may grant it, wait in the row itself, {room} at most. So to take such
-- a lock, to enter its queue, to release it and to hand it over is each one statement that reads and writes one row: it decides by
-- what it finds when it has locked the row, and has no older snapshot of other rows.
--
-- Places in a row are before those of the lock in {waiters}. All other claims take places in the table, and set `waited`: then nobody
-- enters the row. A statement that decides by the table does nothing to a row with a queue in it, and says so: the request is sent
-- to the row then or, if that has been tried, `spill` moves the places into the table. `refill` moves the first places back.
--
-- * A lost answer: a claim that asks again has its place already, or holds the lock, and is told so. A release that is sent again
--   finds another owner.
-- * Who was granted the lock has left the queue in the same change of the row.
-- * A dead client: a place counts as long as a heartbeat lasts, since entering is one, and then as long as its client gives
--   heartbeats. A release drops all places before the first that counts. If its client lives on, a poll says that it is gone.
-- * A claim that was cancelled leaves the row first, and then the table: a place moves only from the one to the other.
-- * The row outlives a crash, and may have lost its last changes. See {survived}.
--
-- `queue_numbers` has for each place: its number, the number of the heartbeat, when it entered in microseconds, how many tokens,
-- and the provisional lease.

-- part: counts
-- Whether the place `i` counts.
(l.queue_numbers[i * 5 - 2] > {clock} - {place_ttl} OR {survived} AND EXISTS (
    SELECT 1 FROM {clients} c WHERE c.client = l.queue_clients[i] AND c.alive_until > clock_timestamp()))

-- part: last_sign
-- The last heartbeat of the client of `at`. The one by which it entered is good for a second.
CASE WHEN l.queue_numbers[h.at * 5 - 2] > {clock} - 1000000 THEN l.queue_numbers[h.at * 5 - 3]
    ELSE greatest(l.queue_numbers[h.at * 5 - 3], (SELECT c.sign FROM {clients} c WHERE c.client = l.queue_clients[h.at])) END

-- part: no_queue
queue_owners = NULL, queue_clients = NULL, queue_labels = NULL, queue_numbers = NULL

-- part: enters_row
l.name = {c_name} AND NOT l.waited AND l.mode = 0 AND l.members = 0
    AND (l.owner = {c_owner} OR l.queue_owners IS NULL OR l.queue_owners[1] = {c_owner}
        OR NOT {is_free} AND (cardinality(l.queue_owners) < {room} OR {c_owner} = ANY(l.queue_owners)))

-- part: entering_row
(owner, token, {ends}, acquired_at, label, queue_owners, queue_clients, queue_labels, queue_numbers) = (
    SELECT CASE WHEN s.takes THEN {c_owner} ELSE l.owner END,
        CASE WHEN s.takes AND l.owner <> {c_owner} THEN {next_token} + {c_tokens} ELSE l.token END,
        CASE WHEN s.takes THEN s.now + {c_ttl} * interval '1 microsecond' ELSE l.{ends} END,
        CASE WHEN s.takes AND l.owner <> {c_owner} THEN s.now ELSE l.acquired_at END,
        CASE WHEN s.takes THEN {c_label} ELSE l.label END,
        CASE WHEN s.takes AND s.place IS NULL THEN l.queue_owners
            WHEN s.takes THEN nullif(l.queue_owners[2:], ARRAY[]::uuid[])
            ELSE l.queue_owners[:s.before] || {c_owner}::uuid || l.queue_owners[s.before + 2:] END,
        CASE WHEN s.takes AND s.place IS NULL THEN l.queue_clients
            WHEN s.takes THEN nullif(l.queue_clients[2:], ARRAY[]::uuid[])
            ELSE l.queue_clients[:s.before] || $6::uuid || l.queue_clients[s.before + 2:] END,
        CASE WHEN s.takes AND s.place IS NULL THEN l.queue_labels
            WHEN s.takes THEN nullif(l.queue_labels[2:], ARRAY[]::text[])
            ELSE l.queue_labels[:s.before] || {c_label}::text || l.queue_labels[s.before + 2:] END,
        CASE WHEN s.takes AND s.place IS NULL THEN l.queue_numbers
            WHEN s.takes THEN nullif(l.queue_numbers[6:], ARRAY[]::bigint[])
            ELSE l.queue_numbers[:s.before * 5] || ARRAY[{c_number}, $8, (extract(epoch from s.now) * 1000000)::bigint,
                {c_tokens}, {c_lease}] || l.queue_numbers[s.before * 5 + 6:] END
    FROM (SELECT f.now, f.place, coalesce(f.place - 1, cardinality(l.queue_owners), 0) AS before,
            l.owner = {c_owner} OR f.is_free AND coalesce(f.place = 1, l.queue_owners IS NULL) AS takes
        FROM (SELECT clock_timestamp() AS now, {is_free} AS is_free, array_position(l.queue_owners, {c_owner}) AS place OFFSET 0) f
        OFFSET 0) s)

-- part: entered_row
CASE WHEN l.owner = {c_owner} THEN {granted_token} END AS token,
    (extract(epoch from l.{ends} - clock_timestamp()) * 1000000)::bigint AS left, l.owner <> {c_owner} AND {is_free} AS again

-- name: claim_row
-- Takes a lock that is free, or takes a place in its row. No answer: the lock has no row, or its queue is not for this claim. The
-- third column says that it must ask again. $1 name, $2 owner, $3 ttl, $4 label, $5 how many tokens, $6 client, $7 number,
-- $8 number of the heartbeat, $9 provisional lease.
UPDATE {locks} l SET {entering_row} WHERE {enters_row}
RETURNING {entered_row}, {clock}, CASE WHEN l.owner = {c_owner} THEN {granting} ELSE {lazy} END, true

-- name: claim_row_many
-- The same for several locks, as arrays. The last column is false where there is no answer.
WITH w AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $7::bigint[], $9::bigint[])
        WITH ORDINALITY AS w(name, owner, ttl, label, tokens, number, lease, n)
), open AS (
    SELECT w.n FROM {locks} l JOIN w ON {enters_row} ORDER BY l.name FOR NO KEY UPDATE OF l
), done AS (
    UPDATE {locks} l SET {entering_row} FROM w JOIN open USING (n) WHERE {enters_row} RETURNING w.n, {entered_row}
)
SELECT done.token, done.left, coalesce(done.again, false), {clock},
    CASE WHEN EXISTS (SELECT 1 FROM done d WHERE d.token IS NOT NULL) THEN {granting} ELSE {lazy} END, done.n IS NOT NULL
FROM w LEFT JOIN done USING (n) ORDER BY w.n

-- part: row_message
-- The notification for the new holder, as `message`.
concat_ws(':', l.handed[1], {granted_token}, (extract(epoch from l.{ends}) * 1000000)::bigint,
    (extract(epoch from l.{ends} - l.acquired_at) * 1000000)::bigint, l.handed[2])

-- part: is_in_row
l.name = {c_name} AND l.owner = {c_owner} AND l.mode = 0 AND l.members = 0 AND (l.queue_owners IS NOT NULL OR NOT l.waited)
    AND {may_give}

-- part: handing_row
-- `handed` keeps what the notification needs of the place that is gone.
(owner, label, token, acquired_at, {ends}, handed_client, handed, queue_owners, queue_clients, queue_labels, queue_numbers) = (
    SELECT coalesce(l.queue_owners[h.at], l.owner), coalesce(l.queue_labels[h.at], l.label),
        CASE WHEN h.at IS NULL THEN l.token ELSE {next_token} + l.queue_numbers[h.at * 5 - 1] END,
        CASE WHEN h.at IS NULL THEN l.acquired_at ELSE h.now END,
        h.now + l.queue_numbers[h.at * 5] * interval '1 microsecond',
        l.queue_clients[h.at], CASE WHEN h.at IS NOT NULL THEN ARRAY[l.queue_numbers[h.at * 5 - 4], {last_sign}] END,
        nullif(l.queue_owners[h.at + 1:], ARRAY[]::uuid[]), nullif(l.queue_clients[h.at + 1:], ARRAY[]::uuid[]),
        nullif(l.queue_labels[h.at + 1:], ARRAY[]::text[]), nullif(l.queue_numbers[h.at * 5 + 1:], ARRAY[]::bigint[])
    FROM (SELECT clock_timestamp() AS now,
        (SELECT i FROM generate_subscripts(l.queue_owners, 1) AS i WHERE {counts} LIMIT 1) AS at OFFSET 0) h)

-- part: handed_row
CASE WHEN l.{ends} IS NULL THEN NULL WHEN l.handed_client = $3 THEN {row_message} WHEN {noted} IS NULL THEN NULL END AS message,
    l.{ends} IS NULL AND l.waited AS again

-- name: hand_row
-- Frees a lock, and grants it to the first waiter in its row. No answer: the claim does not hold it, or the queue is not in the row.
-- The columns are as for `hand_over`. $1 name, $2 owner, $3 client.
UPDATE {locks} l SET {handing_row} WHERE {is_in_row}
RETURNING false, {handed_row}, CASE WHEN l.{ends} IS NULL THEN {lazy} ELSE {granting} END, false, false

-- name: hand_row_many
-- The same for arrays. It skips rows that a transaction has locked. The first column is false where there is no answer.
WITH w AS (
    SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS w(name, owner, n)
), open AS (
    SELECT w.n FROM {locks} l JOIN w ON {is_in_row} ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
), done AS (
    UPDATE {locks} l SET {handing_row} FROM w JOIN open USING (n) WHERE {is_in_row}
    RETURNING w.n, l.{ends} IS NOT NULL AS grants, {handed_row}
)
SELECT done.n IS NOT NULL, done.message, coalesce(done.again, false),
    CASE WHEN EXISTS (SELECT 1 FROM done d WHERE d.grants) THEN {granting} ELSE {lazy} END
FROM w LEFT JOIN done USING (n) ORDER BY w.n

-- name: spill
-- Moves the places of rows into the table, before those that are there: their tickets are lower. $1 names.
WITH open AS (
    SELECT l.* FROM {locks} l WHERE l.name = ANY($1) AND l.queue_owners IS NOT NULL AND {lazy}
    ORDER BY l.name FOR NO KEY UPDATE OF l
), emptied AS (
    UPDATE {locks} l SET waited = true, {no_queue} FROM open WHERE l.name = open.name
), places AS (
    SELECT l.name, i, l.queue_owners[i] AS owner, l.queue_clients[i] AS client, l.queue_labels[i] AS label,
        l.queue_numbers[i * 5 - 4:i * 5] AS n,
        coalesce((SELECT min(q.ticket) FROM {waiters} q WHERE q.name = l.name), 1) - cardinality(l.queue_owners) - 1 + i AS ticket
    FROM open l CROSS JOIN LATERAL generate_subscripts(l.queue_owners, 1) AS i WHERE {counts}
), moved AS (
    INSERT INTO {waiters} (ticket, name, owner, client, number, label, mode, tokens, lease, entered_at) OVERRIDING SYSTEM VALUE
    SELECT ticket, name, owner, client, n[1], label, 0, n[4], n[5], to_timestamp(n[3] / 1000000.0) FROM places
    ON CONFLICT (owner) DO NOTHING
)
INSERT INTO {clients} AS c (client, alive_until, sign)
SELECT client, max(to_timestamp((n[3] + {place_ttl}) / 1000000.0)), max(n[2]) FROM places GROUP BY client ORDER BY client
ON CONFLICT (client) DO UPDATE SET alive_until = greatest(c.alive_until, excluded.alive_until), sign = greatest(c.sign, excluded.sign)

-- name: refill
-- Moves the first places of a lock that is held back into its row, as long as they are for it. $1 name.
WITH mine AS (
    SELECT l.name, l.owner, {is_same} AS same FROM {locks} l
    WHERE l.name = $1 AND l.waited AND l.queue_owners IS NULL AND l.mode = 0 AND l.members = 0 AND NOT {is_free} AND {lazy}
    FOR NO KEY UPDATE OF l
), line AS (
    SELECT q.ticket, q.owner, q.client, q.number, q.label, q.tokens, q.lease, q.entered_at, c.sign, q.mode
    FROM {live_waiters} WHERE q.name = $1 AND q.owner <> (SELECT m.owner FROM mine m)
    ORDER BY q.ticket LIMIT {room} FOR UPDATE OF q SKIP LOCKED
), first AS (
    SELECT * FROM line WHERE line.ticket < coalesce((SELECT min(o.ticket) FROM line o
        WHERE o.mode <> 0 OR o.lease IS NULL OR octet_length(o.label) > {short}), 9223372036854775807)
), gone AS (
    DELETE FROM {waiters} q USING first f WHERE q.name = $1 AND q.ticket = f.ticket
)
UPDATE {locks} l SET queue_owners = (SELECT array_agg(f.owner ORDER BY f.ticket) FROM first f),
    queue_clients = (SELECT array_agg(f.client ORDER BY f.ticket) FROM first f),
    queue_labels = (SELECT array_agg(f.label ORDER BY f.ticket) FROM first f),
    queue_numbers = (SELECT array_agg(n.n ORDER BY f.ticket, n.at) FROM first f CROSS JOIN LATERAL unnest(ARRAY[f.number, f.sign,
        (extract(epoch from f.entered_at) * 1000000)::bigint, f.tokens, f.lease]) WITH ORDINALITY AS n(n, at)),
    waited = NOT m.same OR EXISTS (SELECT 1 FROM {live_waiters} WHERE q.name = $1 AND q.owner <> l.owner
        AND NOT EXISTS (SELECT 1 FROM first f WHERE f.ticket = q.ticket))
FROM mine m WHERE l.name = m.name AND EXISTS (SELECT 1 FROM first)

-- name: leave_rows
-- Leaves the queues in rows. Says who had a place, of which lock, and whether others may take that now. $1 names, $2 owners.
WITH open AS (
    SELECT l.* FROM {locks} l WHERE l.name = ANY($1) AND l.queue_owners && $2 AND {lazy} ORDER BY l.name FOR NO KEY UPDATE OF l
), left_them AS (
    UPDATE {locks} l SET
        queue_owners = (SELECT array_agg(l.queue_owners[i] ORDER BY i) FROM generate_subscripts(l.queue_owners, 1) AS i
            WHERE l.queue_owners[i] <> ALL($2)),
        queue_clients = (SELECT array_agg(l.queue_clients[i] ORDER BY i) FROM generate_subscripts(l.queue_owners, 1) AS i
            WHERE l.queue_owners[i] <> ALL($2)),
        queue_labels = (SELECT array_agg(l.queue_labels[i] ORDER BY i) FROM generate_subscripts(l.queue_owners, 1) AS i
            WHERE l.queue_owners[i] <> ALL($2)),
        queue_numbers = (SELECT array_agg(l.queue_numbers[i] ORDER BY i) FROM generate_subscripts(l.queue_numbers, 1) AS i
            WHERE l.queue_owners[(i + 4) / 5] <> ALL($2))
    FROM open WHERE l.name = open.name
)
SELECT o.owner, l.name, {is_free} OR l.mode <> 0 FROM open l CROSS JOIN LATERAL unnest(l.queue_owners) AS o(owner)
WHERE o.owner = ANY($2)
