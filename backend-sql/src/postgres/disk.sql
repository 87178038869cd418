-- What grants wait for, on tables that no crash of the server changes: the disk.

-- part: first_token
-- The token before the first one of a lock that has no row.
({clock} - 1)

-- part: granting
{durable}

-- part: granted_token
l.token

-- part: member_token
m.token

-- part: may_verify
true

-- part: may_give
-- Whether a release may grant the lock.
true
