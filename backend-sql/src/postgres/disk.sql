-- How grants and renewals commit for a client with durability=disk.

-- part: its_granting
{durable}

-- part: granting
{durable}

-- part: verified_server
-- As in a grant. The right to read the number of the server would be needed on tables without lazy grants, too.
true

-- part: knows_server
true

-- part: may_lead
true

-- part: may_note
true

-- part: first_granting
{durable}

-- part: first_noted
-- See hand_over.rs: the notification is a second transaction.
set_config('lockwell.notes', concat(current_setting('lockwell.notes', true), 'lockwell_', replace(head.client::text, '-', ''),
    ' ', {first_message}, chr(10)), false)
