//! What is sent to SQLite for locks that several hold together. All of it runs in transactions that write from their
//! start, so nothing changes between one statement and the next.

use super::statements::fill;
use crate::table::{Sql, Table};

/// The owner of a lock that a group holds: nobody's id.
const GROUP: &str = "zeroblob(16)";
/// The end of the lease of a lock that a group holds. The leases that count are those of its members.
const NEVER: &str = "253402300799000000";

/// Lets a claim in, or makes it the first of a group. Readers pass over readers who wait, since those can come in as
/// well. Everyone who stands ahead of a permit is given one before.
const JOIN: &str =
    "INSERT INTO {locks} AS l (name, owner, token, expires_at, acquired_at, label, mode, members)
SELECT ?1, {group}, {now} + ?5 - 1, {never}, {now}, '', ?3, 1
WHERE NOT EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = ?1 AND m.owner = ?2)
    AND CASE WHEN ?3 < 0 THEN NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE {ahead} AND q.mode >= 0)
        ELSE coalesce((SELECT members FROM {locks} WHERE name = ?1), 0)
            + (SELECT count(*) FROM {queue} AS q WHERE {ahead}) < ?3 END
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = max(l.token + ?5, excluded.token),
    expires_at = excluded.expires_at, acquired_at = excluded.acquired_at, label = excluded.label,
    mode = excluded.mode, members = l.members + 1
WHERE l.expires_at IS NULL OR l.expires_at <= {now} OR (l.mode = excluded.mode AND l.owner = excluded.owner)
RETURNING token";

const AHEAD: &str = "q.name = ?1 AND q.ticket < ?4 AND q.alive_until > {now}
    AND q.owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)";

const INSERT_MEMBER: &str = "INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
VALUES (?1, ?2, ?3, {now} + ?4, {now}, ?5, ?6)";

/// The token of a claim that is a member already, and asks again after a lost answer.
const MEMBER: &str = "SELECT token FROM {members} WHERE name = ?1 AND owner = ?2";

const DELETE_MEMBER: &str = "DELETE FROM {members} WHERE name = ?1 AND owner = ?2";

const REAP: &str = "DELETE FROM {members} WHERE name = ?1 AND expires_at <= {now}";

/// So many have left. The last one leaves the lock free, unless an earlier version of lockwell, which knows nothing of
/// groups, has been told to free it and has given it to somebody else.
const SHRINK: &str = "UPDATE {locks} SET members = members - ?2,
    mode = CASE WHEN members > ?2 THEN mode ELSE 0 END,
    expires_at = CASE WHEN members > ?2 OR owner <> {group} THEN expires_at END
WHERE name = ?1";

const STALE_GROUPS: &str = "SELECT DISTINCT name FROM {members} WHERE expires_at < {now} - ?1";

const DOWNGRADE: &str = "INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
SELECT name, owner, token, expires_at, acquired_at, label, ?3 FROM {locks}
WHERE name = ?1 AND owner = ?2 AND expires_at > {now}";

const DOWNGRADED: &str = "UPDATE {locks} SET owner = {group}, expires_at = {never}, mode = ?2, members = 1
WHERE name = ?1";

/// All who wait in this process and whose turn it is: the head of the queue, all readers at its head, or as many as
/// there are permits.
const DUE_WAITERS: &str = "SELECT q.ticket FROM (SELECT ticket, client, mode, row_number() OVER line AS place,
        max(mode >= 0) OVER line AS behind_others FROM {queue}
    WHERE name = ?1 AND alive_until > {now} AND owner IS NOT (SELECT owner FROM {locks} WHERE name = ?1)
    WINDOW line AS (ORDER BY ticket)) AS q LEFT JOIN {locks} AS l ON l.name = ?1
WHERE q.client = ?2 AND CASE WHEN coalesce(l.expires_at > {now} AND (l.mode = 0 OR l.mode <> q.mode), 0) THEN 0
    WHEN q.mode < 0 THEN NOT q.behind_others
    WHEN q.mode > 0 THEN coalesce(l.members, 0) + q.place <= q.mode
    ELSE q.place = 1 END";

pub(super) struct GroupStatements {
    pub(super) join: Sql,
    pub(super) insert_member: Sql,
    pub(super) member: Sql,
    pub(super) delete_member: Sql,
    pub(super) reap: Sql,
    pub(super) shrink: Sql,
    pub(super) stale_groups: Sql,
    pub(super) downgrade: Sql,
    pub(super) downgraded: Sql,
    pub(super) due_waiters: Sql,
}

impl GroupStatements {
    pub(super) fn new(table: &Table) -> Self {
        let sql = |text: &str| {
            let text = text.replace("{ahead}", AHEAD).replace("{group}", GROUP).replace("{never}", NEVER);
            Sql::new(table, &fill(&text))
        };
        Self {
            join: sql(JOIN),
            insert_member: sql(INSERT_MEMBER),
            member: sql(MEMBER),
            delete_member: sql(DELETE_MEMBER),
            reap: sql(REAP),
            shrink: sql(SHRINK),
            stale_groups: sql(STALE_GROUPS),
            downgrade: sql(DOWNGRADE),
            downgraded: sql(DOWNGRADED),
            due_waiters: sql(DUE_WAITERS),
        }
    }
}
