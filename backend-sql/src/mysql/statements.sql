-- What is sent to MySQL and MariaDB.
--
-- "part" is a piece that others use by its name in braces; "name" is a statement, or several that are sent in one message.
-- {locks}, {members}, {waiters} and {clients} are the tables. $1, $2 and so on are the arguments.
--
-- Times are microseconds since 1970 by the server's clock ({now}). `UTC_TIMESTAMP` and `NOW` are both fixed when a statement
-- starts, and waiting for a row would age a lease; `SYSDATE` goes on. It is in the session's time zone, so only the time
-- that has passed since `NOW` is taken from it, and the start itself from `UTC_TIMESTAMP`. So the result does not depend on the
-- zone, in which an hour comes twice each year, nor on a `SET timestamp`.
--
-- Many claims travel as one JSON parameter ({want}), sorted by name: the text of a statement does not depend on their number,
-- and two batches lock their rows in the same order. Indexes are forced where rows are locked: a scan of a small table would
-- lock the rows of others.
--
-- Who waits, and who is next. A place is committed before its claim looks at the lock's row, with a lock that is shared
-- (`enter`); a release locks the row first, and looks for places in a later statement (`hand_over`). So either the release
-- sees the place, or the claim waits for the release and sees that the lock is free. `waited` in the row says that somebody
-- may be waiting: a lock without that is taken and freed by one statement on one row. It is set together with a place, and
-- cleared only by a release that has locked the row and then found nobody. A claim that finds it not set, since somebody had
-- the row locked, asks again soon.
--
-- `UPDATE` waits for a row that a transaction has locked before it looks at it, and the shortest wait that MySQL knows is a
-- second, which all other requests on the connection would wait as well. So an update that may meet such a row finds its rows
-- by a derived table with a LIMIT, which is read before, without a lock, and not merged into the update. (An update of several
-- tables would lock what it reads for sharing, and deadlock when two want to change it; so would a subquery in SET or DO.)
-- Where even a row that nobody holds may be locked, it is read with `NOWAIT` or `SKIP LOCKED`.

-- part: now
(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
    + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)))

-- part: writable
-- Zero, and an error where the server is set to be read only (see dialect/error.rs). A user who may write there all the same, as an
-- administrator may, would not notice that another server has become the primary. It stands in whatever writes.
((9223372036854775807 + @@read_only) * 0)

-- part: begin
-- Begins a transaction. All of it is one message, as far as possible. After an error, and in a forced release, there is another
-- one: if that does not come, since this process was stopped or cut off, the server ends the session and the transaction.
SET SESSION wait_timeout = 5 + {writable};
START TRANSACTION

-- part: commit
COMMIT;
SET SESSION wait_timeout = DEFAULT

-- name: begin
{begin}

-- name: commit
{commit}

-- part: want
-- The JSON parameter $1 as rows. They are a derived table because MySQL refuses `FOR UPDATE` in a statement that names
-- `JSON_TABLE` itself: its rows cannot be locked (error 3569).
(SELECT * FROM JSON_TABLE($1, '$[*]' COLUMNS (n FOR ORDINALITY,
    name VARCHAR(1024) CHARACTER SET utf8mb4 PATH '$[0]', owner CHAR(32) CHARACTER SET utf8mb4 PATH '$[1]',
    ttl BIGINT PATH '$[2]', number BIGINT PATH '$[3]', label VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]',
    tokens BIGINT PATH '$[5]', mode BIGINT PATH '$[6]', lease BIGINT PATH '$[7]',
    turn BIGINT PATH '$[8]')) AS j) AS w

-- part: is_free
(l.expires_at IS NULL OR l.expires_at <= {now})

-- part: live_waiters
-- Those who wait and are there: one heartbeat of a client stands for all its places.
{waiters} AS q STRAIGHT_JOIN {clients} AS c FORCE INDEX (PRIMARY)
    ON c.client = q.client AND q.granted IS NULL AND c.alive_until > {now}

-- part: ticket
-- The place of $2; one without a place stands behind everybody.
COALESCE((SELECT o.ticket FROM {waiters} AS o WHERE o.owner = $2), 9223372036854775807)

-- part: ticket_of_row
COALESCE((SELECT o.ticket FROM {waiters} AS o WHERE o.owner = UNHEX(w.owner)), 9223372036854775807)

-- part: taking
-- Grants the lock to the claim $2, if its row exists and is free, and no waiter stands before $2. The token is returned as
-- the "last insert id": one round trip, also on servers without RETURNING. A claim that holds the lock already, and asks
-- again after a lost answer, keeps its token: its lease begins anew, and so does its validity. The token is assigned before
-- the owner and depends on the old one, so it makes no difference whether assignments see what earlier ones left or, with
-- `SIMULTANEOUS_ASSIGNMENT`, the old row.
UPDATE {locks} SET token = LAST_INSERT_ID(IF(owner = $2, token, GREATEST(token, {now} - 1) + $5)),
    acquired_at = IF(owner = $2, acquired_at, {now}), owner = $2, expires_at = {now} + $3 + {writable}, label = $4, mode = 0, members = 0

-- part: may_take
(owner = $2 OR ((expires_at IS NULL OR expires_at <= {now})
    AND (waited = 0 OR NOT EXISTS (SELECT 1 FROM {live_waiters} WHERE q.name = $1 AND q.ticket < {ticket} AND q.owner <> $2
        AND q.owner <> {locks}.owner))))

-- part: found_free
(SELECT f.found FROM (SELECT name AS found FROM {locks}
    WHERE name = $1 AND (owner = $2 OR expires_at IS NULL) LIMIT 1) AS f)

-- part: found_overdue
SELECT name AS found FROM {locks}
    WHERE name = $1 AND (owner = $2 OR expires_at IS NULL OR expires_at <= {now}) LIMIT 1 FOR UPDATE

-- name: take_free
-- The usual case: the last holder has released it. $1 name, $2 owner, $3 ttl, $4 label, $5 how many tokens.
{taking}
WHERE name = $1 AND name = {found_free} AND {may_take}

-- name: take_overdue
-- The lease of the last holder has ended. A transaction that has verified it keeps the row: that is an error at once.
{taking}
WHERE name = $1 AND name = (SELECT f.found FROM ({found_overdue} NOWAIT) AS f) AND {may_take}

-- name: take_new
-- The first use of a lock. Two who come at the same time are told so by an error, and ask again.
INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT $1, $2, LAST_INSERT_ID({now} + $5 - 1), {now} + $3 + {writable}, {now}, $4 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = $1)

-- name: take_many
-- Both kinds of free locks, where nobody may be waiting. Rows that somebody has locked are passed over.
UPDATE (SELECT l.name AS found, UNHEX(w.owner) AS owner, w.ttl, w.label, w.tokens
    FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(w.name)
    WHERE l.owner = UNHEX(w.owner) OR ({is_free} AND l.waited = 0)
    LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f
    STRAIGHT_JOIN {locks} FORCE INDEX (PRIMARY) ON {locks}.name = f.found SET
    {locks}.token = IF({locks}.owner = f.owner, {locks}.token, GREATEST({locks}.token, {now} - 1) + f.tokens),
    {locks}.acquired_at = IF({locks}.owner = f.owner, {locks}.acquired_at, {now}),
    {locks}.owner = f.owner, {locks}.expires_at = {now} + f.ttl + {writable}, {locks}.label = f.label,
    {locks}.mode = 0, {locks}.members = 0
WHERE {locks}.owner = f.owner
    OR (({locks}.expires_at IS NULL OR {locks}.expires_at <= {now}) AND {locks}.waited = 0)

-- name: take_new_many
INSERT INTO {locks} (name, owner, token, expires_at, acquired_at, label)
SELECT UNHEX(w.name), UNHEX(w.owner), {now} + w.tokens - 1, {now} + w.ttl + {writable}, {now}, w.label FROM {want}
WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = UNHEX(w.name))
ORDER BY w.name

-- part: stands
-- How each lock stands, as one claim sees it: the token if the claim holds it; how it is held or, if it is not, how the first
-- one ahead asks for it; when the first lease of its holders ends (now, if a group holds it whose members have no rows); whether there is a row; whether its last lease has
-- ended without a release; whether somebody may be waiting; and the server's clock.
SELECT
    IF(w.mode <> 0, (SELECT m.token FROM {members} AS m WHERE m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner)),
        IF(l.owner = UNHEX(w.owner) AND l.expires_at IS NOT NULL, l.token, NULL)),
    IF(l.expires_at > {now}, l.mode, (SELECT q.mode FROM {live_waiters} WHERE q.name = UNHEX(w.name)
        AND q.owner <> UNHEX(w.owner) AND NOT (q.owner <=> l.owner) AND q.ticket < {ticket_of_row}
        ORDER BY q.ticket LIMIT 1)),
    IF(l.members > 0, COALESCE((SELECT MIN(m.expires_at) FROM {members} AS m WHERE m.name = l.name), {now}),
        IF(l.expires_at > {now}, l.expires_at, NULL)) - {now},
    CAST(l.name IS NOT NULL AS SIGNED),
    CAST(COALESCE(l.expires_at <= {now}, 0) AS SIGNED),
    COALESCE(l.waited, 0),
    CAST({now} AS SIGNED)
FROM {want} LEFT JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(w.name) ORDER BY w.n

-- name: lock_state
{stands}

-- part: entering
-- Takes places. One that has a place keeps it, and what was granted to it and has lapsed is a place again. One that is a
-- member already, and asks again after a lost answer, gets none: nothing would delete it. Places are numbered in the order in
-- which the claims came. $1 claims, $2 client.
INSERT INTO {waiters} (name, owner, client, number, label, mode, tokens, lease, entered_at)
    SELECT UNHEX(w.name), UNHEX(w.owner), $2, w.number, w.label, w.mode, w.tokens, NULLIF(w.lease, 0), {now} + {writable}
    FROM {want} WHERE NOT EXISTS
        (SELECT 1 FROM {members} AS m WHERE m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner)) ORDER BY w.turn
    ON DUPLICATE KEY UPDATE client = VALUES(client), number = VALUES(number), lease = VALUES(lease),
        granted = NULL, granted_until = NULL

-- name: enter
-- Takes places, and is the heartbeat that they need; then looks at the locks. Rows are locked to be marked only where that is
-- needed; one that others have locked is not marked, and the answer says so. $3 how long a sign of life lasts, $4 its number.
{forget_passed};
{begin};
{entering};
{sign};
SELECT COUNT(*) INTO @lw_unmarked FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) WHERE l.waited = 0;
UPDATE (SELECT l.name AS found FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(w.name)
    WHERE @lw_unmarked > 0 AND l.waited = 0 LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f
    STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = f.found SET l.waited = 1;
{commit};
{stands} LOCK IN SHARE MODE

-- name: enter_marked
-- The same for locks that are probably marked already, by a client that has given a heartbeat a moment ago: it gives none. A
-- place is committed before its lock is looked at here, too. If the answer says that a lock is not marked, nobody may look for
-- the place there, and the client sends `enter`.
{entering};
{stands} LOCK IN SHARE MODE

-- name: enter_one
-- The same for one claim that wants the lock alone. Without JSON and the questions about groups it costs the server a quarter.
-- The look finds the usual case: another holds the lock alone, and its row is marked. It returns no row in all other cases, and
-- then the client sends `enter_marked`. $1 name, $2 owner, $3 client, $4 number, $5 label, $6 how many tokens, $7 lease.
INSERT INTO {waiters} (name, owner, client, number, label, mode, tokens, lease, entered_at)
    VALUES ($1, $2, $3, $4, $5, 0, $6, $7, {now} + {writable})
    ON DUPLICATE KEY UPDATE client = VALUES(client), number = VALUES(number), lease = VALUES(lease),
        granted = NULL, granted_until = NULL;
SELECT CAST(expires_at - {now} AS SIGNED) FROM {locks} WHERE name = $1 AND owner <> $2 AND mode = 0 AND members = 0
    AND waited = 1 AND expires_at > {now} LOCK IN SHARE MODE

-- part: sign
INSERT INTO {clients} (client, alive_until, last_sign) VALUES ($2, {now} + $3 + {writable}, $4)
    ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until), last_sign = GREATEST(last_sign, VALUES(last_sign))

-- name: take_with_place
-- For one with a place, which it leaves by that. The arguments are those of `take_free`.
{begin};
{taking}
    WHERE name = $1 AND name = (SELECT f.found FROM ({found_overdue} SKIP LOCKED) AS f) AND {may_take};
SET @lw_took = ROW_COUNT();
DELETE q FROM {waiters} AS q FORCE INDEX (PRIMARY) WHERE q.owner = $2 AND @lw_took > 0;
{commit}

-- name: poll_waiters
-- Records a heartbeat. Returns the client's waiters that should ask: those that must take a place, as they have none (the
-- notification of a grant was lost) or the lock's row does not say that somebody waits; and those whose lock is free or held by a
-- group that they may join. Last the time until the next lease ends, which is not hidden by a lease that has ended and stays.
-- $1 places, $2 to $4 as for `enter`.
{forget_passed};
{sign};
SELECT CAST({now} AS SIGNED), GROUP_CONCAT(IF(x.state = 0, x.number, NULL)), GROUP_CONCAT(IF(x.state = 1, x.number, NULL)),
    CAST(COALESCE(MIN(IF(x.ends > {now}, x.ends, NULL)), MIN(x.ends)) - {now} AS SIGNED)
FROM (SELECT w.number, IF(l.members > 0, COALESCE((SELECT MIN(m.expires_at) FROM {members} AS m WHERE m.name = l.name), {now}),
        IF(l.expires_at > {now}, l.expires_at, NULL)) AS ends,
    IF(own.owner IS NULL OR l.waited = 0, 0, IF(CASE
        WHEN l.name IS NULL THEN 1
        WHEN own.mode <> 0 THEN l.mode <> 0 OR {is_free}
        WHEN l.members > 0 THEN COALESCE((SELECT MIN(m.expires_at) FROM {members} AS m WHERE m.name = l.name), 0) <= {now}
        ELSE {is_free} AND NOT EXISTS (SELECT 1 FROM {live_waiters} WHERE q.name = own.name AND q.ticket < own.ticket)
        END, 1, 2)) AS state
    FROM {want} LEFT JOIN {waiters} AS own ON own.owner = UNHEX(w.owner) AND own.client = $2 AND own.granted IS NULL
    LEFT JOIN {locks} AS l ON l.name = own.name) AS x

-- name: release
-- Frees a lock that nobody may be waiting for. Only a row that is ours is locked: a claim that was refused is released as well,
-- and must not wait for a transaction that has verified another's hold. $1 name, $2 owner.
UPDATE {locks} SET expires_at = NULLIF({writable}, 0)
WHERE name = $1 AND owner = $2 AND waited = 0 AND name = (SELECT f.found
    FROM (SELECT name AS found FROM {locks} WHERE name = $1 AND owner = $2 AND waited = 0 LIMIT 1) AS f)

-- name: owned
-- Which of the locks are those of their claims, and whether somebody may be waiting for them.
SELECT l.owner, l.waited FROM {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)

-- name: release_many
UPDATE {want} STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
SET l.expires_at = NULLIF({writable}, 0) WHERE l.waited = 0

-- part: renewing
-- Extends leases of holders, or of members. Rows that a transaction has verified are passed over, and must not hold up the
-- others. How many were found tells whether there are such rows.
UPDATE (SELECT l.name, l.owner, w.ttl FROM {want}
    STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
    WHERE l.expires_at IS NOT NULL LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f
    STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY) ON l.name = f.name AND l.owner = f.owner
SET l.expires_at = {now} + f.ttl + {writable}

-- name: renew
{renewing}

-- name: renew_some
-- The same where some are lost or locked. Returns the owners of the others, which are extended.
{begin};
SELECT l.owner FROM {want} STRAIGHT_JOIN {held} AS l FORCE INDEX (PRIMARY)
    ON l.name = UNHEX(w.name) AND l.owner = UNHEX(w.owner)
WHERE l.expires_at IS NOT NULL FOR UPDATE SKIP LOCKED;
{renewing};
{commit}

-- name: leave
-- Gives places up, and says which there were.
SELECT HEX(q.owner), q.name FROM {want} STRAIGHT_JOIN {waiters} AS q FORCE INDEX (PRIMARY) ON q.owner = UNHEX(w.owner)
    WHERE q.granted IS NULL;
{forget}

-- part: forget
DELETE q FROM {want} STRAIGHT_JOIN {waiters} AS q FORCE INDEX (PRIMARY) ON q.owner = UNHEX(w.owner)
    WHERE {writable} = 0

-- name: forget_all
{forget}

-- part: forget_passed
-- Rows of grants that their holders have passed on (`pass_on`), which need not be deleted one by one. A heartbeat does it.
DELETE FROM {waiters} WHERE client = $2 AND granted = {writable} LIMIT 1000

-- part: head
-- What of the first in a line is to be said: its number, if it waits in this process, and else its client, if that can be
-- woken. One that does not want the lock alone may not be the only one whose turn it is, and one that does need not be told
-- while a group holds the lock. $2 client.
IF(q.mode <> 0, {several}, IF(COALESCE(l.mode, 0) = 0 AND q.client = $2, q.number, NULL)),
IF(q.mode = 0 AND COALESCE(l.mode, 0) = 0 AND q.client <> $2 AND {parked} IS NOT NULL, q.client, NULL)

-- part: parked
-- The parked connection of a waiter's client, see push.rs.
IS_USED_LOCK(CONCAT('lockwell_', LOWER(HEX(q.client))))

-- name: next
-- The first in the line. $1 name.
SELECT {head} FROM {live_waiters} LEFT JOIN {locks} AS l ON l.name = q.name
WHERE q.name = $1 AND NOT (q.owner <=> l.owner) ORDER BY q.ticket LIMIT 1

-- name: turns
-- The first in the lines of locks that are free, or held by a group that is not full. $1 names.
SELECT CAST(w.n AS SIGNED), {head}
FROM {want} LEFT JOIN {locks} AS l ON l.name = UNHEX(w.name)
JOIN {waiters} AS q ON q.owner = (SELECT h.owner FROM {waiters} AS h STRAIGHT_JOIN {clients} AS c
    ON c.client = h.client AND c.alive_until > {now} WHERE h.name = UNHEX(w.name) AND h.granted IS NULL
    AND NOT (h.owner <=> l.owner) ORDER BY h.ticket LIMIT 1)
WHERE l.name IS NULL OR {is_free} OR l.mode < 0 OR l.members < l.mode

-- part: turn
-- Whether it is the turn of a waiter: the first, a reader, or one for whom there is a permit. No other mode is ahead of it.
CASE WHEN q.behind_others OR l.expires_at > {now} AND (l.mode = 0 OR l.mode <> q.mode) THEN 0
    WHEN q.mode < 0 THEN 1
    WHEN q.mode > 0 THEN IF(l.expires_at > {now}, l.members, 0) + q.place <= q.mode
    ELSE q.place = 1 END

-- name: holders
SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {locks}
WHERE name = $1 AND expires_at > {now} AND members = 0
UNION ALL SELECT token, label, mode, expires_at - {now}, {now} - acquired_at FROM {members}
WHERE name = $1 AND expires_at > {now} ORDER BY token

-- name: first_waiters
-- The first $2 who wait, how long they have waited, and how many there are in all.
SELECT q.label, q.mode, {now} - q.entered_at, COUNT(*) OVER () FROM {live_waiters} WHERE q.name = $1
    AND NOT (q.owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = $1))
ORDER BY q.ticket LIMIT $2

-- name: names
-- Of the locks that are held. The row of a lock that a group holds has a lease without an end.
SELECT name FROM {locks} WHERE expires_at > {now} ORDER BY name

-- name: about
-- Its clock, whether a crash can lose what was committed, how many replicas read from it, as far as this user may see, and
-- whether the binary log is on and after how many commits it is synced. Last how many rights this user has to write on a server
-- that is set to be read only, and whether it is.
SELECT CAST({now} AS SIGNED), CAST(@@innodb_flush_log_at_trx_commit AS CHAR),
    CAST(@@innodb_doublewrite AS CHAR),
    (SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'),
    CAST(@@log_bin AS SIGNED), CAST(@@sync_binlog AS SIGNED),
    (SELECT COUNT(*) FROM information_schema.user_privileges WHERE privilege_type IN
        ('SUPER', 'CONNECTION_ADMIN', 'READ_ONLY ADMIN', 'READ ONLY ADMIN') AND grantee = CONCAT('''',
        LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - LOCATE('@', REVERSE(CURRENT_USER()))), '''@''',
        SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')),
    CAST(@@read_only AS CHAR)

-- name: held
-- The row of a lock that is held, for a forced release. $2 the highest token of those who may be freed: if an answer was lost,
-- those who came after them are not.
SELECT l.mode, l.token FROM {locks} AS l WHERE l.name = $1 AND l.expires_at > {now} AND (l.token <= $2 OR l.members > 0
    AND EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = $1 AND m.token <= $2)) FOR UPDATE

-- name: force
-- The owner changes, too: the old one must not take the release for its own. $2 nobody's id.
UPDATE {locks} SET expires_at = NULL, owner = $2, mode = 0, members = 0 WHERE name = $1

-- name: alive
SELECT COUNT(*) FROM {members} WHERE name = $1 AND expires_at > {now}

-- name: force_members
DELETE FROM {members} WHERE name = $1

-- name: portion
-- The last name of a portion of the purge. $1 the last name before it, $2 how many.
SELECT MAX(p.name) FROM (SELECT name FROM {locks} WHERE name > $1 AND {writable} = 0 ORDER BY name LIMIT $2) AS p

-- name: purge
-- A row goes only when its token is lower than what a new row would start with. One that is in use is passed over. $1 and $2
-- between which names, $3 for how long idle.
DELETE l FROM (SELECT name FROM {locks} FORCE INDEX (PRIMARY) WHERE name > $1 AND name <= $2
    AND COALESCE(expires_at, acquired_at) < {now} - $3 AND acquired_at < {now} - $3 AND token < {now}
    LIMIT 1000000 FOR UPDATE SKIP LOCKED) AS f STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = f.name

-- name: purge_waiters
-- Grants that nobody has released, and places whose clients are not known, after damage from outside.
DELETE q FROM {waiters} AS q LEFT JOIN {clients} AS c ON c.client = q.client
WHERE q.granted_until < {now} + {writable} - 60000000 OR c.client IS NULL

-- name: dead_client
-- How many clients there are, and one that has been dead for $1.
SELECT COUNT(*), MIN(IF(alive_until < {now} + {writable} - $1, client, NULL)) FROM {clients}

-- name: forget_places
-- Deletes some places of a client. $1 client, $2 how many.
DELETE q FROM (SELECT owner FROM {waiters} FORCE INDEX (by_client) WHERE client = $1 LIMIT $2) AS f
    STRAIGHT_JOIN {waiters} AS q FORCE INDEX (PRIMARY) ON q.owner = f.owner WHERE q.client = $1

-- name: places_of
-- $1 client.
SELECT owner, number FROM {waiters} FORCE INDEX (by_client) WHERE client = $1 AND granted IS NULL AND {writable} = 0

-- name: forget_stale
-- Deletes a place. $1 owner, $2 number.
DELETE q FROM {waiters} AS q FORCE INDEX (PRIMARY) WHERE q.owner = $1 AND q.number = $2 AND q.granted IS NULL

-- name: forget_client
-- Deletes a client that is still dead. A place that it takes makes it alive again, in one transaction. $1 client, $2 for how long
-- it has been dead.
DELETE FROM {clients} WHERE client = $1 AND alive_until < {now} - $2

-- name: verify
-- In the user's session. A takeover updates the lock's row or deletes the member's, so it waits for the end of the transaction.
-- But for an XA transaction: at its `XA PREPARE` MariaDB gives up all locks but those of rows that it has written, and a server that
-- is started anew does. So those are refused. The second statement, which always fails, says in its error whether the
-- transaction is one.
SELECT 1 AS one FROM {held} WHERE name = $1 AND owner = $2 AND token = $3
    AND expires_at IS NOT NULL LOCK IN SHARE MODE;
XA PREPARE 'lockwell'

-- part: is_mine
name = $1 AND owner = $2 AND token = $8 AND expires_at IS NOT NULL AND mode = 0 AND members = 0

-- name: write_record
-- Writes a record for the present holder, whose lease may have ended. Whoever takes the lock waits for the row, which the first
-- statement locks: those that follow read it without a lock. Copies of a write follow each other: the second statement locks the
-- record as the third one does, or two of them would wait for each other. A late copy changes nothing. The answer is a row if
-- the claim is the holder, and the last write. $1 name, $2 owner, $3 kind, $4 hold, $5 number, $6 token, $7 value, $8 the token
-- in the lock's row: a late copy of the acquire may have got the lock for the same owner again, after a forced release.
{begin};
SELECT owner, token FROM {locks} WHERE {is_mine} LOCK IN SHARE MODE;
INSERT INTO {records} (name, kind, hold, number, token, value)
    SELECT $1, $3, $4, 0, 0, '' FROM {locks} WHERE {is_mine} ON DUPLICATE KEY UPDATE number = {records}.number;
UPDATE {records} SET value = $7, token = $6, number = $5, hold = $4
    WHERE name = $1 AND kind = $3 AND (hold <> $4 OR number < $5) AND EXISTS (SELECT 1 FROM {locks} WHERE {is_mine});
SELECT r.hold, r.number FROM {records} AS r WHERE r.name = $1 AND r.kind = $3 AND EXISTS (SELECT 1 FROM {locks} WHERE {is_mine});
{commit}

-- name: read_record
-- $1 name, $2 kind.
SELECT value, token, hold FROM {records} WHERE name = $1 AND kind = $2

-- name: read_record_under
-- A replica may lack the last write, and a proxy sends what locks a row to the primary. $3 owner.
SELECT r.value, r.token, r.hold FROM {held} AS l LEFT JOIN {records} AS r ON r.name = l.name AND r.kind = $2
WHERE l.name = $1 AND l.owner = $3 AND l.expires_at IS NOT NULL LOCK IN SHARE MODE

-- name: recorded
SELECT name FROM {records} WHERE kind = $1 AND value <> '' ORDER BY name

-- name: purge_records
-- A late copy of a write is refused when its hold has ended.
DELETE r FROM {records} AS r LEFT JOIN {locks} AS l ON l.name = r.name AND l.expires_at IS NOT NULL
WHERE r.value = '' AND l.name IS NULL
