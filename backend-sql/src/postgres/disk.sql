-- What grants wait for, on tables that no crash of the server changes: the disk.

-- part: ends
-- The column of the end of a lease. Its name is another on tables whose grants a crash may lose: a client that takes such tables
-- for these, since they were made anew after it had connected, must not grant anything there. All statements about holders name it.
expires_at

-- part: first_token
-- The token before the first one of a lock that has no row.
({clock} - 1)

-- part: is_current
true

-- part: is_current_member
true

-- part: granting
{durable}

-- part: granted_token
l.token

-- part: member_token
m.token

-- part: may_verify
true

-- part: forced_token
l.token

-- part: first_noted
-- See hand_over.rs: the notification is a second transaction.
set_config('lockwell.notes', concat(current_setting('lockwell.notes', true), 'lockwell_', replace(head.client::text, '-', ''),
    ' ', {first_message}, chr(10)), false)

-- part: may_give
-- Whether a release may grant the lock.
true
