//! The names and the data of the nodes in a lock's queue: nodes of lockwell, Curator, kazoo and other
//! programs.

use std::time::Duration;

use lockwell_core::{Claim, Mode, OwnerId};
use uuid::Uuid;

/// The server writes a sequence number with at least this number of digits.
const DIGITS: usize = 10;

/// The bytes of the longest name of a claim's node.
pub(crate) const LONGEST: usize =
    "_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-permit-4294967295-".len() + 1 + DIGITS;

/// The mode that a node asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    Shared,
    /// A permit of a semaphore with this limit.
    Permit(u32),
}

impl Kind {
    pub(crate) fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Exclusive => Some(Self::Exclusive),
            Mode::Shared => Some(Self::Shared),
            Mode::Permit { limit } => Some(Self::Permit(limit.get())),
            _ => None,
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Shared => Mode::Shared,
            // A limit of zero is not parsed.
            Self::Permit(limit) => {
                std::num::NonZeroU32::new(limit).map_or(Mode::Exclusive, |limit| Mode::Permit { limit })
            }
        }
    }
}

/// The form of the node of an exclusive claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The form of Curator's `InterProcessMutex`.
    Mutex,
    /// The form of the writer of Curator's `InterProcessReadWriteLock`. Curator's mutex ignores such nodes.
    Writer,
}

/// A node in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) sequence: i64,
    /// The owner id, if the name begins like Curator's protected nodes.
    pub(crate) owner: Option<OwnerId>,
}

/// The name of a new node without its sequence number, in Curator's form.
pub(crate) fn prefix(owner: OwnerId, kind: Kind, form: Form) -> String {
    let owner = Uuid::from_u128(owner.as_u128()).hyphenated();
    match (kind, form) {
        (Kind::Exclusive, Form::Mutex) => format!("_c_{owner}-lock-"),
        (Kind::Exclusive, Form::Writer) => format!("_c_{owner}-__WRIT__"),
        (Kind::Shared, _) => format!("_c_{owner}-__READ__"),
        // Only lockwell has this form. The names of Curator's semaphore have no limit, so a clash could not
        // be detected.
        (Kind::Permit(limit), _) => format!("_c_{owner}-permit-{limit}-"),
    }
}

impl Child {
    /// Parses a name; `None` if the node does not belong to a queue.
    pub(crate) fn parse(name: String) -> Option<Self> {
        let (head, sequence) = split_sequence(&name)?;
        let kind = kind_of(head)?;
        let owner = head.strip_prefix("_c_").and_then(|rest| rest.get(..36)?.parse::<Uuid>().ok());
        let owner = owner.map(|owner| OwnerId::from_u128(owner.as_u128()));
        Some(Self { name, kind, sequence, owner })
    }

    /// All nodes of the queue, in its order.
    pub(crate) fn queue(names: Vec<String>) -> Vec<Self> {
        let mut queue: Vec<Self> = names.into_iter().filter_map(Self::parse).collect();
        queue.sort_unstable_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
        queue
    }
}

fn split_sequence(name: &str) -> Option<(&str, i64)> {
    let at = name.len().checked_sub(DIGITS)?;
    let (mut head, digits) = (name.get(..at)?, &name[at..]);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut sequence: i64 = digits.parse().ok()?;
    // After an overflow the server writes a minus sign. Every form ends in `-` or `_`, so a `-` before the
    // digits is a minus sign only if there are two.
    if let Some(shorter) = head.strip_suffix('-').filter(|shorter| shorter.ends_with(['-', '_'])) {
        (head, sequence) = (shorter, -sequence);
    }
    Some((head, sequence))
}

fn kind_of(head: &str) -> Option<Kind> {
    if head.ends_with("__READ__") || head.ends_with("__rlock__") {
        return Some(Kind::Shared);
    }
    if ["lock-", "__lock__", "__WRIT__"].iter().any(|form| head.ends_with(form)) {
        return Some(Kind::Exclusive);
    }
    let (_, limit) = head.strip_suffix('-')?.rsplit_once("-permit-")?;
    limit.parse().ok().filter(|&limit| limit > 0).map(Kind::Permit)
}

/// The data of a node: a human-readable label, and after a line break the lease and the state of the claim.
/// Labels have no line breaks. Other programs can write any data; its first line counts as a label.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) label: String,
    /// The lease; `None` if the node is of another program.
    pub(crate) ttl: Option<Duration>,
    /// The claim is a reader. If the name is a writer's, the claim was downgraded.
    pub(crate) reads: bool,
    /// The claim is a permit whose turn has come.
    pub(crate) holds: bool,
}

impl Data {
    pub(crate) fn read(data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(data);
        let mut lines = text.split('\n');
        let label = lines.next().unwrap_or_default().to_owned();
        let ours = lines.next().and_then(|line| line.strip_prefix("lockwell ttl=")).unwrap_or_default();
        let mut words = ours.split_ascii_whitespace();
        let ttl = words.next().and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        let last = words.next_back().filter(|_| ttl.is_some());
        Self { label, ttl, reads: last == Some("reader"), holds: last == Some("held") }
    }

    /// The data of a claim's node. `holds`: the claim is a permit whose turn has come.
    pub(crate) fn write(claim: &Claim, holds: bool) -> Vec<u8> {
        let reads = if claim.mode() == Mode::Shared { " reader" } else { "" };
        let holds = if holds { " held" } else { "" };
        format!("{}\nlockwell ttl={}{reads}{holds}", claim.label(), claim.ttl().as_millis()).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use lockwell_core::{LockName, Wait};

    use super::*;

    fn parse(name: &str) -> Option<(Kind, i64, bool)> {
        Child::parse(name.to_owned()).map(|child| (child.kind, child.sequence, child.owner.is_some()))
    }

    #[test]
    fn ours_are_read_back() {
        let owner = OwnerId::from_u128(7);
        for (kind, form) in [
            (Kind::Exclusive, Form::Mutex),
            (Kind::Exclusive, Form::Writer),
            (Kind::Shared, Form::Mutex),
            (Kind::Permit(3), Form::Mutex),
        ] {
            let child = Child::parse(prefix(owner, kind, form) + "0000000042").unwrap();
            assert_eq!((child.kind, child.sequence, child.owner), (kind, 42, Some(owner)));
        }
    }

    #[test]
    fn those_of_others_are_read() {
        let hex = "9f0b1d5c2f8e4b6ca1d2e3f405162738";
        assert_eq!(parse(&format!("{hex}__lock__0000000003")), Some((Kind::Exclusive, 3, false)));
        assert_eq!(parse(&format!("{hex}__rlock__0000000004")), Some((Kind::Shared, 4, false)));
        assert_eq!(parse("lock-0000000005"), Some((Kind::Exclusive, 5, false)));
        assert_eq!(parse("_c_x-lock-0000000006"), Some((Kind::Exclusive, 6, false)));
        assert_eq!(parse("_c_x-lock--2147483648"), Some((Kind::Exclusive, -2_147_483_648, false)));
        for strange in
            ["", "lock-", "lock-000000005", "leases", "x-0000000001", "é0000000001", "-permit-0-0000000001"]
        {
            assert_eq!(parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn the_queue_is_in_order() {
        let names = ["_c_a-lock-0000000010", "zlock-0000000002", "other", "a__lock__0000000009"];
        let queue = Child::queue(names.map(str::to_owned).to_vec());
        assert_eq!(queue.iter().map(|child| child.sequence).collect::<Vec<_>>(), [2, 9, 10]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ttl = Duration::from_millis(1500);
        let name = LockName::new("a").unwrap();
        let writer = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "a reader".into());
        for (claim, reads, holds) in
            [(&writer, false, false), (&writer, false, true), (&writer.downgraded(), true, false)]
        {
            let said = Data { label: "a reader".to_owned(), ttl: Some(ttl), reads, holds };
            assert_eq!(Data::read(&Data::write(claim, holds)), said);
        }
        for others in ["", "10.0.0.1", "__REVOKE__", "a reader", "lockwell ttl=1 reader", "\n reader"] {
            let said = Data::read(others.as_bytes());
            assert!(!said.reads && said.ttl.is_none() && others.starts_with(&said.label), "{said:?}");
        }
    }
}
