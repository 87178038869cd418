-- Tokens that rise, and leases that are known, although grants are not synced: see bounds.rs.

-- part: first_token
-- The first token of a grant, as far as it does not follow from the lock's row.
max({now}, s.token_floor + 1)

-- part: may_grant
-- Whether the state `s` allows the claim ?2 on the lock ?1 a lease of ?3 and ?4 tokens, in the boot ?5 of the host.
s.one = 1 AND s.boot = ?5 AND s.longest_ttl >= ?3
    AND s.token_bound >= max({first_token}, coalesce((SELECT token FROM {locks} WHERE name = ?1), 0) + 1) + ?4 - 1

-- name: raise
-- Makes the state allow that for all claims of ?1, each with a name, a lease and a number of tokens, in the boot ?2. The bound
-- rises by an hour of the clock, or by a second if tokens are ahead of the clock, so that it is raised rarely. After a crash the
-- floor is the bound, which no token of a grant has exceeded.
INSERT INTO {state} AS s (one, boot, token_floor, token_bound, longest_ttl)
SELECT 1, ?2, 0, max({now} + 3600000000 + max(w.value ->> 2), max(coalesce(l.token, 0) + (w.value ->> 2))),
    max(max(w.value ->> 1), 30000000)
FROM json_each(?1) AS w LEFT JOIN {locks} AS l ON l.name = w.value ->> 0
WHERE true
ON CONFLICT (one) DO UPDATE SET
    token_floor = CASE WHEN s.boot = excluded.boot THEN s.token_floor ELSE max(s.token_floor, s.token_bound) END,
    token_bound = max(excluded.token_bound,
        s.token_bound + 1000000 + (SELECT max(value ->> 2) FROM json_each(?1))),
    longest_ttl = max(s.longest_ttl, excluded.longest_ttl),
    boot = excluded.boot

-- name: longest_ttl
SELECT coalesce(max(longest_ttl), 30000000) FROM {state}
