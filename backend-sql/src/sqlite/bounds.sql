-- Tokens that rise, and leases that are known, although grants are not synced: see bounds.rs.

-- part: first_token
-- The first token of a grant, as far as it does not follow from the lock's row.
max({now}, s.token_floor + 1)

-- part: may_grant
-- Whether the state `s` allows the claim ?2 on the lock ?1 a lease of ?3 and ?4 tokens, in the boot ?5 of the host.
s.one = 1 AND s.boot = ?5 AND s.opens_at <= {now} AND s.longest_ttl >= ?3
    AND s.token_bound >= max({first_token}, coalesce((SELECT token FROM {locks} WHERE name = ?1), 0) + 1) + ?4 - 1

-- name: raise
-- Makes the state allow that for all claims of ?1, each with a name, a lease and a number of tokens, in the boot ?2. The bound
-- rises by an hour of the clock, or by a second if tokens are ahead of the clock, so that it is raised rarely. After a crash the
-- floor is the bound, which no token of a grant has exceeded.
--
-- The last boot may also be that of another host, which still runs, and had the volume of the file before: its id is not ?3, or
-- this host, which has run for ?4, has already run when the state was raised there. If grants are not synced (?5), those of the
-- other host may have been lost with its memory, so nothing is granted until they have ended. It may have renewed leases for ?6
-- before it has noticed that its disk is gone; and clocks are not exact.
--
-- An empty boot is no other host: a process without an id has raised the state, which is synced, as all of its grants are.
-- Otherwise it and the others on its host would close the file to each other in turn, for as long as both of them ask.
INSERT INTO {state} AS s (one, boot, host, raised_at, opens_at, token_floor, token_bound, longest_ttl)
SELECT 1, ?2, ?3, {now}, 0, 0, max({now} + 3600000000 + max(w.tokens), max(coalesce(l.token, 0) + w.tokens)),
    max(max(w.ttl), 30000000)
FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS ttl, json_extract(value, '$[2]') AS tokens
    FROM json_each(?1)) AS w LEFT JOIN {locks} AS l ON l.name = w.name
WHERE true
ON CONFLICT (one) DO UPDATE SET
    token_floor = CASE WHEN s.boot = excluded.boot THEN s.token_floor ELSE max(s.token_floor, s.token_bound) END,
    token_bound = max(excluded.token_bound,
        s.token_bound + 1000000 + (SELECT max(json_extract(value, '$[2]')) FROM json_each(?1))),
    opens_at = CASE WHEN ?5 AND s.boot <> '' AND s.boot <> excluded.boot
            AND ((s.host <> '' AND excluded.host <> '' AND s.host <> excluded.host) OR {now} - ?4 < s.raised_at)
        THEN max(s.opens_at, {now} + s.longest_ttl * 51 / 50 + ?6) ELSE s.opens_at END,
    longest_ttl = max(s.longest_ttl, excluded.longest_ttl),
    boot = excluded.boot, host = excluded.host, raised_at = excluded.raised_at;
SELECT token_bound FROM {state} WHERE one = 1

-- name: closed_for
SELECT opens_at - {now} FROM {state} WHERE one = 1 AND boot = ?1 AND opens_at > {now}

-- name: longest_ttl
SELECT coalesce(max(longest_ttl), 30000000) FROM {state}
