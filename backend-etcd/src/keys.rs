//! What is kept in etcd, and what it means.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockwell_core::backend::{escape, unescape};
use lockwell_core::{Claim, FencingToken, Holder, LockName, Mode, RecordKind, WaitingClaim};

use crate::messages::KeyValue;

/// `PREFIX/NAME/`: all claims to a lock. No name is the beginning of another here, since a slash in a name is
/// escaped.
pub(crate) fn folder(prefix: &str, name: &LockName) -> String {
    format!("{prefix}/{}/", escape(name.as_str(), |_, c| c != '/'))
}

/// The lock that a key belongs to; `None` for a key that is not ours.
pub(crate) fn name(prefix: &str, key: &[u8]) -> Option<LockName> {
    let (name, _) =
        std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.strip_prefix('/')?.split_once('/')?;
    LockName::new(unescape(name)?).ok()
}

/// `PREFIX/%record/` or `PREFIX/%job/`: the records of locks. No lock has such a folder, since what follows
/// the percent sign is not hexadecimal.
pub(crate) fn records(prefix: &str, kind: RecordKind) -> String {
    format!("{prefix}/%{}/", kind.word())
}

/// The record of a lock.
pub(crate) fn record(prefix: &str, kind: RecordKind, name: &LockName) -> String {
    records(prefix, kind) + &escape(name.as_str(), |_, c| c != '/')
}

/// The lock whose record of this kind a key is.
pub(crate) fn recorded(prefix: &str, kind: RecordKind, key: &[u8]) -> Option<LockName> {
    let name = std::str::from_utf8(key).ok()?.strip_prefix(&records(prefix, kind))?;
    LockName::new(unescape(name)?).ok()
}

/// The key of the floor of all tokens. No lock has it, since it ends without a slash.
pub(crate) fn floor(prefix: &str) -> String {
    format!("{prefix}/.floor")
}

/// How a claim uses its lock, as its key says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Writer,
    Reader,
    /// A writer that has become a reader. It holds the lock, although its key is younger than others.
    Downgraded,
    /// One of so many permits.
    Permit(u32),
}

impl Kind {
    pub(crate) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::Reader,
            Mode::Permit { limit } => Self::Permit(limit.get()),
            _ => Self::Writer,
        }
    }

    /// The part of the key between the folder and the owner. In the order of the keys `d` comes first, then
    /// `p`, `r` and `w`.
    pub(crate) fn part(self) -> String {
        match self {
            Self::Writer => "w/".to_owned(),
            Self::Reader => "r/".to_owned(),
            Self::Downgraded => "d/".to_owned(),
            Self::Permit(limit) => format!("p{limit}/"),
        }
    }

    fn read(part: &str) -> Option<Self> {
        match part {
            "w" => Some(Self::Writer),
            "r" => Some(Self::Reader),
            "d" => Some(Self::Downgraded),
            permit => permit.strip_prefix('p')?.parse().ok().filter(|limit| *limit > 0).map(Self::Permit),
        }
    }

    /// The kind of a key in this folder; `None` for a key that is not ours.
    pub(crate) fn of_key(key: &[u8], folder: &str) -> Option<Self> {
        Self::read(std::str::from_utf8(key).ok()?.strip_prefix(folder)?.split_once('/')?.0)
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Writer => Mode::Exclusive,
            Self::Reader | Self::Downgraded => Mode::Shared,
            Self::Permit(limit) => Mode::from_code(i64::from(limit)).unwrap_or(Mode::Exclusive),
        }
    }
}

/// `PREFIX/NAME/KIND/OWNER`.
pub(crate) fn key(prefix: &str, claim: &Claim, kind: Kind) -> String {
    let owner = claim.owner().as_u128();
    format!("{}{}{owner:032x}", folder(prefix, claim.name()), kind.part())
}

/// The id of the claim's lease: 63 bits of its random owner.
pub(crate) fn lease(claim: &Claim) -> i64 {
    let bits = claim.owner().as_u128() >> 65;
    i64::try_from(bits).unwrap_or_default().max(1)
}

/// The time for a lease in whole seconds, which etcd counts in: never shorter than the claim's.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// How the token of a claim follows from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// It is the create revision, plus this.
    Floor(i64),
    /// It is this, since the key has replaced an older one.
    Fixed(u64),
}

impl Base {
    pub(crate) fn token(self, create_revision: i64) -> FencingToken {
        FencingToken::new(match self {
            Self::Floor(floor) => u64::try_from(create_revision.saturating_add(floor)).unwrap_or_default(),
            Self::Fixed(token) => token,
        })
    }
}

/// What a key holds: how the token is counted, since when the claim holds or waits, by the wall clock, and
/// the label. The last two are for people only.
pub(crate) fn value(claim: &Claim, base: Base, since: Duration) -> String {
    let (since, label) = (since.as_millis(), claim.label());
    match base {
        Base::Floor(floor) => format!("+{floor} {since} {label}"),
        Base::Fixed(token) => format!("={token} {since} {label}"),
    }
}

pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A claim that holds its lock or waits for it, as it was read, or a key that no claim has. Such a key holds
/// the lock where it lies.
pub(crate) struct ClaimKey {
    /// It has the owner in it, so it is not printed.
    pub(crate) key: Vec<u8>,
    pub(crate) lease: i64,
    /// `None` where the key is not one of a claim.
    pub(crate) kind: Option<Kind>,
    /// Whether key and value are those of a claim.
    pub(crate) is_ours: bool,
    pub(crate) base: Base,
    pub(crate) create_revision: i64,
    since: Duration,
    label: String,
}

/// Why a claim does not wait for a key that no claim has.
pub(crate) fn held_by_others(key: &[u8], folder: &str) -> String {
    let key = name_of_others(key, folder);
    format!(
        "the lock is held by {key}: another prefix may lie in it; `lockwell release --force` deletes that key"
    )
}

/// A key that no claim has, in words. What comes after its first part may be an owner of another application.
pub(crate) fn name_of_others(key: &[u8], folder: &str) -> String {
    let key = String::from_utf8_lossy(key);
    let rest = key.strip_prefix(folder).unwrap_or_default();
    match rest.split_once('/') {
        Some((first, _)) => format!("a key below {folder}{first}/ (not written by lockwell)"),
        None => format!("the key {folder}{rest} (not written by lockwell)"),
    }
}

impl ClaimKey {
    pub(crate) fn read(kv: &KeyValue, folder: &str) -> Self {
        let kind = Kind::of_key(&kv.key, folder);
        let value = kind.and_then(|_| Self::value(&kv.value));
        let is_ours = value.is_some();
        let (base, since, label) =
            value.unwrap_or_else(|| (Base::Floor(0), wall_clock(), name_of_others(&kv.key, folder)));
        let (key, lease, create_revision) = (kv.key.clone(), kv.lease, kv.create_revision);
        Self { key, lease, kind, is_ours, base, create_revision, since, label }
    }

    fn value(value: &[u8]) -> Option<(Base, Duration, String)> {
        let value = String::from_utf8_lossy(value);
        let mut words = value.splitn(3, ' ');
        let (base, since, label) = (words.next()?, words.next()?, words.next()?);
        let base = match base.strip_prefix('=') {
            Some(token) => Base::Fixed(token.parse().ok()?),
            None => Base::Floor(base.strip_prefix('+')?.parse().ok()?),
        };
        Some((base, Duration::from_millis(since.parse().ok()?), label.to_owned()))
    }

    fn mode(&self) -> Mode {
        self.kind.map_or(Mode::Exclusive, Kind::mode)
    }

    fn age(&self) -> Duration {
        wall_clock().saturating_sub(self.since)
    }

    pub(crate) fn holder(&self, left: Duration) -> Holder {
        let token = self.base.token(self.create_revision);
        Holder::new(token, self.label.as_str(), self.mode(), left).held_for(self.age())
    }

    pub(crate) fn waits(&self) -> WaitingClaim {
        WaitingClaim::new(self.label.as_str(), self.mode(), Some(self.age()))
    }
}

/// The claims to a lock, and other keys in its folder, holders before waiters, and the number of holders.
pub(crate) fn queue(keys: &[KeyValue], folder: &str) -> (Vec<ClaimKey>, usize) {
    let mut entries: Vec<_> = keys.iter().map(|key| ClaimKey::read(key, folder)).collect();
    // A downgraded claim holds the lock, whatever has come since.
    let order = |entry: &ClaimKey| {
        (entry.kind.is_some(), entry.kind != Some(Kind::Downgraded), entry.create_revision)
    };
    entries.sort_by_key(order);
    let others = entries.iter().take_while(|entry| entry.kind.is_none()).count();
    let claims = &entries[others..];
    let holders = match claims.first().and_then(|first| first.kind) {
        None => 0,
        Some(Kind::Writer) => 1,
        // A reader behind a writer waits: only the readers in front hold the lock.
        Some(Kind::Reader | Kind::Downgraded) => {
            claims.iter().take_while(|entry| entry.mode() == Mode::Shared).count()
        }
        Some(kind @ Kind::Permit(limit)) => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            claims.iter().take_while(|entry| entry.kind == Some(kind)).take(limit).count()
        }
    };
    let holders = others + holders;
    (entries, holders)
}

#[cfg(test)]
mod tests {
    use lockwell_core::Wait;

    use super::*;

    const FOLDER: &str = "lockwell/a/";

    fn claim(mode: Mode) -> Claim {
        let ttl = Duration::from_millis(2001);
        Claim::new(LockName::new("a").unwrap(), mode, ttl, Wait::No, "a label with spaces".into())
    }

    fn stored(mode: Mode, kind: Kind, create_revision: i64, base: Base) -> KeyValue {
        let claim = claim(mode);
        KeyValue {
            key: key("lockwell", &claim, kind).into(),
            create_revision,
            value: value(&claim, base, wall_clock()).into(),
            lease: lease(&claim),
        }
    }

    fn holders(kinds: &[(Kind, i64)]) -> usize {
        let keys: Vec<_> =
            kinds.iter().map(|(kind, at)| stored(kind.mode(), *kind, *at, Base::Floor(0))).collect();
        queue(&keys, FOLDER).1
    }

    #[test]
    fn what_is_written_is_read() {
        for (mode, base) in [
            (Mode::Exclusive, Base::Floor(0)),
            (Mode::Shared, Base::Floor(70)),
            (Mode::from_code(3).unwrap(), Base::Fixed(9)),
        ] {
            let kv = stored(mode, Kind::of(mode), 5, base);
            let entry = ClaimKey::read(&kv, FOLDER);
            assert_eq!((entry.mode(), entry.base, entry.lease), (mode, base, kv.lease));
            assert!(entry.is_ours);
            assert_eq!(entry.label, "a label with spaces");
        }
        assert_eq!(Base::Floor(70).token(5).get(), 75);
        assert_eq!(Base::Fixed(9).token(5).get(), 9);
    }

    #[test]
    fn who_holds_the_lock() {
        use Kind::{Downgraded, Permit, Reader, Writer};
        assert_eq!(holders(&[]), 0);
        assert_eq!(holders(&[(Writer, 1), (Writer, 2)]), 1);
        assert_eq!(holders(&[(Reader, 2), (Reader, 1), (Writer, 3), (Reader, 4)]), 2);
        assert_eq!(holders(&[(Writer, 1), (Reader, 2)]), 1);
        assert_eq!(holders(&[(Permit(2), 1), (Permit(2), 2), (Permit(2), 3)]), 2);
        assert_eq!(holders(&[(Permit(3), 1), (Permit(4), 2), (Permit(3), 3)]), 1);
        // It became a reader after the writer queued; the reader queued before the writer.
        assert_eq!(holders(&[(Reader, 2), (Writer, 3), (Downgraded, 4)]), 2);
    }

    #[test]
    fn names_are_kept_apart_and_seconds_rounded_up() {
        for text in ["a", "a/b", "100%", ".floor"] {
            let name_of = LockName::new(text).unwrap();
            let key = format!("{}w/x", folder("app/locks", &name_of));
            assert_eq!(name("app/locks", key.as_bytes()), Some(name_of), "{text}");
        }
        for text in ["a", "a/b", "%record", "/"] {
            let name_of = LockName::new(text).unwrap();
            let key = record("app/locks", RecordKind::Value, &name_of);
            assert_eq!(name("app/locks", key.as_bytes()), None, "{text}");
            assert_eq!(recorded("app/locks", RecordKind::Value, key.as_bytes()), Some(name_of));
            assert_eq!(recorded("app/locks", RecordKind::Job, key.as_bytes()), None);
        }
        assert_eq!(name("lockwell", floor("lockwell").as_bytes()), None);
        assert_eq!(name("lockwell", b"lockwellx/a/w/x"), None);
        assert_eq!(seconds(Duration::from_millis(2001)), 3);
        assert_eq!(seconds(Duration::from_secs(2)), 2);
    }
}
