-- The tables on MySQL and MariaDB. Times are microseconds since 1970.

-- name: locks
CREATE TABLE IF NOT EXISTS {locks} (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    owner BINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    expires_at BIGINT NULL,
    acquired_at BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    mode BIGINT NOT NULL DEFAULT 0,
    members BIGINT NOT NULL DEFAULT 0,
    waited BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB

-- name: members
CREATE TABLE IF NOT EXISTS {members} (
    name VARBINARY(512) NOT NULL,
    owner BINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    acquired_at BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    mode BIGINT NOT NULL,
    PRIMARY KEY (name, owner)
) ENGINE = InnoDB

-- name: waiters
-- The client's own number of a place is `number`; `lease` is that of a grant by a release, and null where a release only wakes.
-- `granted` is the token that a release has granted: the row is no place any more then, but the message to the waiter.
CREATE TABLE IF NOT EXISTS {waiters} (
    owner BINARY(16) NOT NULL PRIMARY KEY,
    ticket BIGINT NOT NULL AUTO_INCREMENT,
    name VARBINARY(512) NOT NULL,
    client BINARY(16) NOT NULL,
    number BIGINT NOT NULL,
    label VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    mode BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    lease BIGINT NULL,
    entered_at BIGINT NOT NULL,
    granted BIGINT NULL,
    granted_until BIGINT NULL,
    granted_sign BIGINT NULL,
    KEY by_ticket (ticket),
    KEY by_line (name, granted, ticket),
    KEY by_client (client, granted)
) ENGINE = InnoDB

-- name: clients
CREATE TABLE IF NOT EXISTS {clients} (
    client BINARY(16) NOT NULL PRIMARY KEY,
    alive_until BIGINT NOT NULL,
    last_sign BIGINT NOT NULL
) ENGINE = InnoDB

-- name: records
CREATE TABLE IF NOT EXISTS {records} (
    name VARBINARY(512) NOT NULL,
    kind VARBINARY(8) NOT NULL,
    hold BINARY(16) NOT NULL,
    number BIGINT NOT NULL,
    token BIGINT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, kind)
) ENGINE = InnoDB

-- part: log_format
SHOW VARIABLES WHERE Variable_name = 'binlog_format' AND @@log_bin

-- name: log_format
{log_format}

-- name: check
-- Returns the format of the binary log, where there is one, and fails where a table or a column is missing. MySQL may give the
-- variable up, since it has been deprecated; then no row is returned. The last one may fail: then there can be no records.
{log_format};
SELECT name, owner, token, expires_at, acquired_at, label, mode, members, waited FROM {locks} LIMIT 0;
SELECT name, owner, token, expires_at, acquired_at, label, mode FROM {members} LIMIT 0;
SELECT ticket, name, owner, client, number, label, mode, tokens, lease, entered_at, granted, granted_until, granted_sign
    FROM {waiters} LIMIT 0;
SELECT client, alive_until, last_sign FROM {clients} LIMIT 0;
SELECT name, kind, hold, number, token, value FROM {records} LIMIT 0
