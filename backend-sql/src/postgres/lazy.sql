-- How grants and renewals commit for a client with durability=grace: they wait for no disk, so a crash may lose them.

-- part: its_granting
-- The tables say so first, durably: without `lazy_since` nobody would wait after a crash. It is read each time, since a promoted
-- replica may lack it. For the first `longest_ttl` grants are durable, so that a replica that lags by less lacks no lazy grant if it
-- lacks `lazy_since`. A lease that would outlast a grace period is refused. No client asks for that, unless the tables were made
-- anew since it connected.
CASE WHEN s.lazy_since IS NULL THEN concat('lockwell: no grant ', clock_timestamp())::boolean
    WHEN {lease} > s.longest_ttl THEN concat('lockwell: too long ', clock_timestamp())::boolean
    WHEN s.lazy_since + s.longest_ttl <= {clock} THEN {lazy} ELSE {durable} END

-- part: granting
coalesce((SELECT {its_granting} FROM {state} s), concat('lockwell: no grant ', clock_timestamp())::boolean)

-- part: verified_server
-- The session of a user may lead to another server than those that look at the mark.
k.server OPERATOR(pg_catalog.=) (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c)

-- part: knows_server
has_function_privilege('pg_control_system()', 'EXECUTE')

-- part: may_lead
-- Whether a release can grant: what comes first is left to a claim.
(SELECT s.lazy_since IS NOT NULL FROM {state} s)

-- part: may_note
-- Whether `hand_first` can grant: it notifies, so it must not wait for the disk.
(SELECT s.lazy_since + s.longest_ttl <= {clock} FROM {state} s)

-- part: first_granting
{lazy}

-- part: first_noted
pg_notify('lockwell_' || replace(head.client::text, '-', ''), {first_message})::text
