-- How grants and renewals commit for a client with durability=disk.

-- part: its_granting
{durable}

-- part: granting
{durable}

-- part: verified_server
-- As in a grant. The right to read the number of the server would be needed on tables without lazy grants, too.
true
