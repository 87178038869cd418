//! What is sent to MySQL and MariaDB for locks that several hold together.
//!
//! Each transaction locks the locks' rows first, in the order of their names, and decides by what it reads from a row that
//! it has locked. So the members are counted in the lock's row. Indexes are forced: a scan of a small table would lock
//! the rows of others.

use super::statements::fill;
use crate::table::{Sql, Table};

/// The owner of a lock that a group holds: nobody's id.
const GROUP: &str = "x'00000000000000000000000000000000'";
/// The end of the lease of a lock that a group holds. The leases that count are those of its members.
const NEVER: &str = "253402300799000000";

/// Lets a claim in, or makes it the first of a group. The token comes back as the "last insert id". What is found without
/// a lock is looked at again once the row is locked.
const JOIN: &str = "UPDATE {locks} SET token = LAST_INSERT_ID(GREATEST(token, {now} - 1) + ?),
    owner = {group}, expires_at = {never}, acquired_at = {now}, label = '', mode = ?, members = members + 1
WHERE name = (SELECT f.found FROM {found}) AND {may}";

/// A lock that was released, or is held by a group. Its row is never locked for long, so it is waited for.
const OPEN: &str = "(SELECT name AS found FROM {locks}
    WHERE name = ? AND (expires_at IS NULL OR owner = {group}) LIMIT 1) AS f";

/// One whose lease has ended, too. A transaction that has verified it keeps the row: that is an error at once.
const OVERDUE: &str = "(SELECT name AS found FROM {locks}
    WHERE name = ? AND (expires_at IS NULL OR owner = {group} OR expires_at <= {now}) LIMIT 1 FOR UPDATE NOWAIT) AS f";

/// The same without a lock, for locks that were refused of late.
const MAY_JOIN: &str = "SELECT 1 FROM {locks} WHERE {may}";

/// Readers pass over readers who wait, since those can come in as well. Everyone who stands ahead of a permit is given
/// one before. A claim that is a member already, and asks again after a lost answer, is not let in twice.
const MAY: &str = "name = ? AND (expires_at IS NULL OR expires_at <= {now} OR (mode = ? AND owner = {group}))
    AND NOT EXISTS (SELECT 1 FROM {members} AS m WHERE m.name = ? AND m.owner = ?)
    AND IF(? < 0, NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE {ahead} AND q.mode >= 0),
        members + (SELECT COUNT(*) FROM {queue} AS q WHERE {ahead}) < ?)";

const AHEAD: &str = "q.name = ? AND q.ticket < ? AND q.alive_until > {now} AND q.owner <> {locks}.owner";

const INSERT_MEMBERS: &str =
    "INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
SELECT UNHEX(w.name), UNHEX(w.owner), w.token, {now} + w.ttl, {now}, w.label, w.mode FROM {want}";

/// A row for a lock that was never used. One that is there is not touched, and so not waited for.
const MAKE: &str = "INSERT IGNORE INTO {locks} (name, owner, token, acquired_at, label)
SELECT ?, {group}, 0, {now}, '' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = ?)";

/// The rows of locks that these are members of. A claim that was refused gives up as well, and must not wait for a
/// transaction that has verified another's hold.
const LOCK: &str = "SELECT l.name FROM (SELECT DISTINCT m.name FROM {want} STRAIGHT_JOIN {members} AS m FORCE INDEX (PRIMARY)
    ON m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner) ORDER BY m.name LIMIT 1000000) AS f
    STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = f.name FOR UPDATE";

/// Which claims are members.
const MEMBERS: &str = "SELECT m.name, m.owner FROM {want} STRAIGHT_JOIN {members} AS m FORCE INDEX (PRIMARY)
    ON m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner)";

/// Which members of these locks are dead.
const DEAD: &str = "SELECT m.name, m.owner FROM {want} STRAIGHT_JOIN {members} AS m FORCE INDEX (PRIMARY)
    ON m.name = UNHEX(w.name) WHERE m.expires_at <= {now}";

const DELETE_MEMBERS: &str = "DELETE m FROM {want} STRAIGHT_JOIN {members} AS m FORCE INDEX (PRIMARY)
    ON m.name = UNHEX(w.name) AND m.owner = UNHEX(w.owner)";

/// So many have left. The last one leaves the lock free, unless an earlier version of lockwell, which knows nothing of
/// groups, has been told to free it and has given it to somebody else. Assignments are made from left to right: the count
/// comes last.
const SHRINK: &str = "UPDATE {locks} SET mode = IF(members > ?, mode, 0),
    expires_at = IF(members > ? OR owner <> {group}, expires_at, NULL), members = members - ? WHERE name = ?";

const LEAVE: &str =
    "DELETE q FROM {want} STRAIGHT_JOIN {queue} AS q FORCE INDEX (owner) ON q.owner = UNHEX(w.owner)";

const STALE_GROUPS: &str = "SELECT DISTINCT name FROM {members} WHERE expires_at < {now} - ?";

const MINE: &str = "SELECT token FROM {locks} WHERE name = ? AND owner = ? AND expires_at > {now} FOR UPDATE";

const DOWNGRADE: &str = "INSERT INTO {members} (name, owner, token, expires_at, acquired_at, label, mode)
SELECT name, owner, token, expires_at, acquired_at, label, ? FROM {locks} WHERE name = ?";

const DOWNGRADED: &str = "UPDATE {locks} SET owner = {group}, expires_at = {never}, mode = ?, members = 1
WHERE name = ?";

/// All whose turn it is, and their clients: the head of the queue, all readers at its head, or as many as there are
/// permits.
const DUE_WAITERS: &str = "SELECT q.ticket, q.client FROM (SELECT ticket, client, mode,
        ROW_NUMBER() OVER (ORDER BY ticket) AS place,
        MAX(mode >= 0) OVER (ORDER BY ticket) AS behind_others FROM {queue}
    WHERE name = ? AND alive_until > {now} AND NOT (owner <=> (SELECT h.owner FROM {locks} AS h WHERE h.name = ?))
    ) AS q LEFT JOIN {locks} AS l ON l.name = ?
WHERE (q.client = ? OR {parked} IS NOT NULL) AND {turn}";

pub(super) struct GroupStatements {
    pub(super) join: Sql,
    pub(super) join_overdue: Sql,
    pub(super) may_join: Sql,
    pub(super) insert_members: Sql,
    pub(super) make: Sql,
    pub(super) lock: Sql,
    pub(super) members: Sql,
    pub(super) dead: Sql,
    /// The members whose rows are found and locked at once, or it is an error.
    pub(super) lock_members: Sql,
    /// The dead whose rows nobody else has locked: a transaction that has, has verified a hold there.
    pub(super) lock_dead: Sql,
    pub(super) delete_members: Sql,
    pub(super) shrink: Sql,
    pub(super) leave: Sql,
    pub(super) stale_groups: Sql,
    pub(super) mine: Sql,
    pub(super) downgrade: Sql,
    pub(super) downgraded: Sql,
    pub(super) due_waiters: Sql,
}

impl GroupStatements {
    pub(super) fn new(table: &Table) -> Self {
        let sql = |text: &str| {
            let text = text.replace("{may}", MAY).replace("{ahead}", AHEAD);
            Sql::new(table, &fill(&text.replace("{group}", GROUP).replace("{never}", NEVER)))
        };
        Self {
            join: sql(&JOIN.replace("{found}", OPEN)),
            join_overdue: sql(&JOIN.replace("{found}", OVERDUE)),
            may_join: sql(MAY_JOIN),
            insert_members: sql(INSERT_MEMBERS),
            make: sql(MAKE),
            lock: sql(LOCK),
            members: sql(MEMBERS),
            dead: sql(DEAD),
            lock_members: sql(&format!("{MEMBERS} FOR UPDATE NOWAIT")),
            lock_dead: sql(&format!("{MEMBERS} WHERE m.expires_at <= {{now}} FOR UPDATE SKIP LOCKED")),
            delete_members: sql(DELETE_MEMBERS),
            shrink: sql(SHRINK),
            leave: sql(LEAVE),
            stale_groups: sql(STALE_GROUPS),
            mine: sql(MINE),
            downgrade: sql(DOWNGRADE),
            downgraded: sql(DOWNGRADED),
            due_waiters: sql(DUE_WAITERS),
        }
    }
}
