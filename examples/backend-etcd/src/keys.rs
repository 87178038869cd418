//! What is kept in etcd, and what it means.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::KeyValue;
use lockwell::backend::{Claim, FencingToken, Holder, LockName, Mode, escape, unescape};

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

/// `PREFIX/NAME/w/OWNER` for writers, `r` for readers.
pub(crate) fn key(prefix: &str, claim: &Claim) -> String {
    let kind = if claim.mode() == Mode::Shared { 'r' } else { 'w' };
    format!("{}{kind}/{:032x}", folder(prefix, claim.name()), claim.owner().as_u128())
}

/// The keys that a claim may have to wait for.
pub(crate) fn rivals(prefix: &str, claim: &Claim) -> String {
    let all = folder(prefix, claim.name());
    if claim.mode() == Mode::Shared { all + "w/" } else { all }
}

/// The id of the claim's lease: 63 bits of its random owner.
pub(crate) fn lease(claim: &Claim) -> i64 {
    let bits = claim.owner().as_u128() >> 65;
    i64::try_from(bits).expect("63 bits").max(1)
}

/// The time for a lease in whole seconds, which etcd counts in: never shorter than the claim's.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// What a key holds: since when, by the wall clock, and the label. Both are for people only.
pub(crate) fn value(claim: &Claim) -> String {
    format!("{} {}", wall_clock().as_millis(), claim.label())
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A claim that holds its lock or waits for it, as it was read.
pub(crate) struct Entry {
    pub(crate) lease: i64,
    token: i64,
    mode: Mode,
    since: Duration,
    label: String,
}

impl Entry {
    fn read(key: &KeyValue, folder: &str) -> Self {
        let value = String::from_utf8_lossy(key.value());
        let (since, label) = value.split_once(' ').unwrap_or(("", &value));
        let is_reader = key.key()[folder.len()..].starts_with(b"r/");
        Self {
            lease: key.lease(),
            token: key.create_revision(),
            mode: if is_reader { Mode::Shared } else { Mode::Exclusive },
            since: Duration::from_millis(since.parse().unwrap_or_default()),
            label: label.to_owned(),
        }
    }

    pub(crate) fn holder(&self, left: Duration) -> Holder {
        Holder::new(token(self.token), self.label.as_str(), self.mode, left)
            .held_for(wall_clock().saturating_sub(self.since))
    }
}

/// The claims to a lock, holders before waiters, and the number of holders.
pub(crate) fn queue(keys: &[KeyValue], folder: &str) -> (Vec<Entry>, usize) {
    let mut entries: Vec<_> = keys.iter().map(|key| Entry::read(key, folder)).collect();
    entries.sort_by_key(|entry| entry.token);
    let readers = entries.iter().take_while(|entry| entry.mode == Mode::Shared).count();
    let holders = if readers == 0 { entries.len().min(1) } else { readers };
    // A reader behind a writer that waits for other readers waits, too: only the readers in front hold the
    // lock.
    (entries, holders)
}

pub(crate) fn token(revision: i64) -> FencingToken {
    FencingToken::new(u64::try_from(revision).unwrap_or_default())
}
