-- What is sent to MySQL and MariaDB when a release finds a waiter: how it grants the lock, and how the waiter's client
-- learns that. The parts are those of statements.sql as well.

-- part: handing_over
-- Frees a lock, and grants it to the first waiter if that one wants an exclusive lock and can receive a grant. $3 client.
--
-- The queries always return a row, so that nothing remains of what an earlier release has put into the variables. The second
-- one reads the places and the heartbeat of the first waiter before it reads the clock, which only its outermost part does: so
-- the granted lease ends a full length after that sign was sent, or later. The next statement locks the waiter's row. If the
-- waiter has left meanwhile, it changes no row (the client reads that from its answer), nothing is granted, and the client must
-- look for the next waiter. The next release, which runs this part too since `waited` is still set, deletes the row with the
-- grant. If the waiter belongs to the releasing client, the answer tells it, and its row is deleted at once.
{begin};
SELECT MAX(l.name), MAX(l.token) INTO @lw_name, @lw_token
    FROM (SELECT name FROM {locks} WHERE name = $1 AND owner = $2 LIMIT 1) AS f
    STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = f.name WHERE l.owner = $2 FOR UPDATE;
SELECT h.owner, h.client, h.number, h.mode, h.lease, h.label, h.last_sign,
        IF(h.mode = 0 AND h.lease IS NOT NULL, GREATEST(@lw_token, {now} - 1) + h.tokens, NULL),
        IF(h.mode = 0, {now} + h.lease, NULL)
    INTO @lw_head, @lw_client, @lw_seat, @lw_mode, @lw_lease, @lw_label, @lw_sign, @lw_granted, @lw_until
    FROM (SELECT 1 AS one) AS o LEFT JOIN (SELECT q.owner, q.client, q.number, q.mode, q.lease, q.label, q.tokens, c.last_sign
        FROM {live_waiters} WHERE q.name = @lw_name AND q.owner <> $2 ORDER BY q.ticket LIMIT 1) AS h ON o.one = 1;
UPDATE {waiters} FORCE INDEX (PRIMARY) SET granted = @lw_granted, granted_until = @lw_until,
    granted_sign = IF(@lw_until IS NULL, NULL, @lw_sign) WHERE owner = @lw_head AND granted IS NULL;
UPDATE {locks} FORCE INDEX (PRIMARY) SET owner = IF(@lw_until IS NULL OR ROW_COUNT() = 0, owner, @lw_head),
    label = IF(@lw_until IS NULL OR ROW_COUNT() = 0, label, @lw_label),
    acquired_at = IF(@lw_until IS NULL OR ROW_COUNT() = 0, acquired_at, {now}),
    token = IF(@lw_until IS NULL OR ROW_COUNT() = 0, token, @lw_granted),
    expires_at = IF(ROW_COUNT() = 0, NULL, @lw_until), waited = IF(@lw_head IS NULL, 0, 1) WHERE name = @lw_name;
DELETE q FROM {waiters} AS q FORCE INDEX (PRIMARY)
    WHERE q.owner IN ($2, IF(@lw_until IS NOT NULL AND @lw_client = $3, @lw_head, $2));
{commit};
SELECT CAST(@lw_name IS NOT NULL AS SIGNED), CAST(@lw_head IS NOT NULL AS SIGNED),
    CAST(@lw_mode AS SIGNED), LOWER(HEX(@lw_client)), CONVERT(IF(@lw_until IS NULL, @lw_seat,
        CONCAT_WS(':', @lw_seat, @lw_granted, @lw_until, @lw_lease, @lw_sign)) USING utf8mb4)

-- name: hand_over
{handing_over}

-- name: hand_over_and_wake
-- The same, and wakes the client of the waiter that was found (see push.rs). The KILL fails if there is none to be woken.
{handing_over};
KILL QUERY IF(@lw_mode <=> 0 AND @lw_client <> $3, COALESCE(IS_USED_LOCK(CONCAT('lockwell_', LOWER(HEX(@lw_client)))), 0), 0)

-- name: pass_on
-- The same for a lock for which somebody usually waits, and with half as much work for the server: one change, which is a
-- transaction by itself. It does nothing unless it grants the lock, and then the client sends `hand_over`.
--
-- The first waiter is looked up without a lock and before the lock's row is locked, so a place may be overlooked that is entered
-- meanwhile. That does no harm: the lock is not freed here, and the next release will see the place. The change locks the rows
-- of the lock, of the waiter and of the old grant, in this order and by their keys, and looks at them again: a waiter that has
-- left is not granted the lock, and a lock that is not ours any more is not passed on. The values that an earlier message has
-- left in the variables carry another owner. After a lost answer the lock is no longer ours, and `hand_over` says so.
--
-- The KILL fails if there is none to be woken. One for a waiter that was not granted the lock does no harm.
--
-- The row of the old grant is neither a place nor a grant any more once `granted` is 0. To delete it would be another
-- transaction, or a longer one. The same holds for the waiter's row if the answer itself brings the grant to its client.
SELECT $2, q.owner, q.client, q.number, q.lease, c.last_sign, GREATEST(l.token, {now} - 1) + q.tokens, {now} + q.lease + {writable}
    INTO @lw_of, @lw_head, @lw_client, @lw_seat, @lw_lease, @lw_sign, @lw_granted, @lw_until
    FROM {locks} AS l FORCE INDEX (PRIMARY) STRAIGHT_JOIN {waiters} AS q FORCE INDEX (by_line)
    STRAIGHT_JOIN {clients} AS c FORCE INDEX (PRIMARY)
    WHERE l.name = $1 AND l.owner = $2 AND q.name = $1 AND q.granted IS NULL AND q.owner <> $2
    AND c.client = q.client AND c.alive_until > {now} ORDER BY q.ticket LIMIT 1;
UPDATE {locks} AS l FORCE INDEX (PRIMARY) STRAIGHT_JOIN {waiters} AS q FORCE INDEX (PRIMARY)
    LEFT JOIN {waiters} AS o FORCE INDEX (PRIMARY) ON o.owner = $2
    SET l.owner = q.owner, l.label = q.label, l.acquired_at = {now}, l.token = @lw_granted, l.expires_at = @lw_until,
    l.waited = 1, q.granted = IF(q.client = $3, 0, @lw_granted), q.granted_until = @lw_until, q.granted_sign = @lw_sign,
    o.granted = 0
    WHERE l.name = IF(@lw_of = $2, $1, NULL) AND l.owner = $2
    AND q.owner = @lw_head AND q.granted IS NULL AND q.mode = 0 AND q.lease IS NOT NULL;
SELECT LOWER(HEX(@lw_client)),
    CONVERT(CONCAT_WS(':', @lw_seat, @lw_granted, @lw_until, @lw_lease, @lw_sign) USING utf8mb4);
KILL QUERY IF(@lw_of = $2 AND @lw_client <> $3, COALESCE(IS_USED_LOCK(CONCAT('lockwell_', LOWER(HEX(@lw_client)))), 0), 0)

-- part: turns_of_client
-- Of locks that are not held alone. $2 client, $3 who need not be told.
(SELECT q.number, q.name, q.client, q.mode, ROW_NUMBER() OVER (PARTITION BY q.name ORDER BY q.ticket) AS place,
        MIN(q.mode) OVER (PARTITION BY q.name ORDER BY q.ticket)
            <> MAX(q.mode) OVER (PARTITION BY q.name ORDER BY q.ticket) AS behind_others
    FROM {live_waiters} LEFT JOIN {locks} AS h ON h.name = q.name
    WHERE q.name IN (SELECT o.name FROM {waiters} AS o LEFT JOIN {locks} AS l ON l.name = o.name
        WHERE o.client = $2 AND o.granted IS NULL AND (l.name IS NULL OR {is_free} OR l.mode <> 0))
    AND NOT (q.owner <=> h.owner)
) AS q LEFT JOIN {locks} AS l ON l.name = q.name
WHERE q.client = $2 AND {turn} AND NOT FIND_IN_SET(q.number, $3)

-- part: grants_of_client
-- Grants of releases to waiters of the client $2 that have not been passed on, and whose leases have not ended.
{waiters} AS q FORCE INDEX (by_client) WHERE q.client = $2 AND q.granted > 0 AND q.granted_until > {now}

-- part: has_grants
-- Whether there are some that the client does not know yet. $4 the waiters whose grants it knows, and the tokens of these: a
-- waiter whose grant has lapsed may have another one.
EXISTS (SELECT 1 FROM {grants_of_client} AND NOT (FIND_IN_SET(q.number, $4) AND FIND_IN_SET(q.granted, $4)))

-- part: wait
-- For the name $6 (see hold.rs) if there is one, as $7 says.
IF($7, GET_LOCK($6, $5 / 1000), SLEEP($5 / 1000))

-- name: park
-- The message of a parked connection: the first statement looks for grants and turns of the client, the second waits if
-- there are none, the third returns what there is by then (for kills see push.rs). The first query is not a part of the
-- `DO`, which would lock its rows during the wait. $1 the name of this connection, $5 the wait in milliseconds, $6 and $7
-- for what. The answer: whether this connection has its name; how long it was parked (null: there was
-- something to return); whether it has got the name $6; the waiters whose turn it is; the grants, known or not: what the
-- client lists in the next message is as short as this.
SELECT {has_grants} OR EXISTS (SELECT 1 FROM {turns_of_client}), {now}
    INTO @lw_due, @lw_parked;
DO IF(IS_USED_LOCK($1) <=> CONNECTION_ID() AND NOT @lw_due, {wait}, 0);
SELECT CAST(IS_USED_LOCK($1) <=> CONNECTION_ID() AS SIGNED), CAST(IF(@lw_due, NULL, {now} - @lw_parked) AS SIGNED),
    CAST(IS_USED_LOCK($6) <=> CONNECTION_ID() AS SIGNED),
    (SELECT GROUP_CONCAT(q.number) FROM {turns_of_client}),
    (SELECT GROUP_CONCAT(CONCAT_WS(':', q.number, q.granted, q.granted_until, q.lease, q.granted_sign))
        FROM {grants_of_client})

-- part: free_lock_of_client
-- A lock that a waiter of the client may be able to take, as nobody holds it alone.
{waiters} AS q FORCE INDEX (by_client) LEFT JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = q.name
    WHERE q.client = $2 AND q.granted IS NULL AND (l.name IS NULL OR {is_free} OR l.mode <> 0)

-- name: park_for_grants
-- The same where the client's locks go from holder to holder by grants. Whose turn it is else takes the server three times as
-- long to find out, so it only looks whether that question arises. If it does, the message does not wait and returns nothing,
-- and the client sends the one above. $3 is not used.
SELECT {has_grants} OR EXISTS (SELECT 1 FROM {free_lock_of_client}), {now}
    INTO @lw_due, @lw_parked;
DO IF(IS_USED_LOCK($1) <=> CONNECTION_ID() AND NOT @lw_due, {wait}, 0);
SELECT CAST(IS_USED_LOCK($1) <=> CONNECTION_ID() AS SIGNED), CAST(IF(@lw_due, NULL, {now} - @lw_parked) AS SIGNED),
    CAST(IS_USED_LOCK($6) <=> CONNECTION_ID() AS SIGNED), NULL,
    (SELECT GROUP_CONCAT(CONCAT_WS(':', q.number, q.granted, q.granted_until, q.lease, q.granted_sign))
        FROM {grants_of_client})
