//! The names of the keys in Redis.

use lockwell_core::backend::Constant;
use lockwell_core::{Error, ErrorKind, LockName, RecordKind, Result};

/// Separates the parts of our own keys. Lock names have no control characters, so no lock can have such a
/// key.
pub(crate) const SEPARATOR: &str = "\u{1f}";

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16384;

/// The number of token counters of Redlock, among which lock names are distributed.
const BUCKETS: u16 = 256;

/// For how long a token counter that nobody uses is kept in a cluster, where there is one for each slot.
const TOKEN_LIFE: &str = "86400";

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    namespace: String,
    cluster: bool,
    token: String,
}

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct LockKeys {
    /// The lock itself: the plain string that other clients know, too.
    pub(crate) lock: String,
    /// A sorted set of the owners who wait, by arrival.
    pub(crate) queue: String,
    /// A hash from owner to whom to notify, for which mode, and how long the place is kept.
    pub(crate) waiters: String,
    /// The token counter.
    pub(crate) token: String,
    /// The cluster's slot that all of them are in; 0 where there is no cluster.
    pub(crate) slot: u16,
}

impl Keys {
    pub(crate) fn new(namespace: &str, cluster: bool) -> Self {
        Self { namespace: namespace.to_owned(), cluster, token: format!("{namespace}{SEPARATOR}token") }
    }

    pub(crate) fn of(&self, name: &LockName) -> LockKeys {
        let lock = self.lock(name);
        let slot = if self.cluster { slot(&lock) } else { 0 };
        let (queue, waiters) = (self.beside(slot, "queue", name), self.waiters(slot, name));
        LockKeys { lock, queue, waiters, token: self.token(slot), slot }
    }

    /// Those who wait for a lock of this slot.
    pub(crate) fn waiters(&self, slot: u16, name: &LockName) -> String {
        self.beside(slot, "waiters", name)
    }

    /// The token counter of this slot.
    pub(crate) fn token(&self, slot: u16) -> String {
        match self.tag(slot) {
            None => self.token.clone(),
            Some(tag) => [self.namespace.as_str(), SEPARATOR, "{", tag, "}token"].concat(),
        }
    }

    /// The note of which server may grant locks, in this slot.
    pub(crate) fn mark(&self, slot: u16) -> String {
        match self.tag(slot) {
            None => [self.namespace.as_str(), SEPARATOR, "mark"].concat(),
            Some(tag) => [self.namespace.as_str(), SEPARATOR, "{", tag, "}mark"].concat(),
        }
    }

    /// The slot that all locks of the namespace are in, if it has a hash tag: see [`check_for_cluster`].
    pub(crate) fn only_slot(&self) -> Option<u16> {
        (self.cluster && self.namespace.contains('{')).then(|| slot(&self.namespace))
    }

    /// The note that a lock was freed by force: see `reclaim.lua`.
    pub(crate) fn freed(&self, slot: u16, name: &LockName) -> String {
        self.beside(slot, "freed", name)
    }

    /// What is kept of a group that holds a lock: a sorted set of its members by the end of their leases, and
    /// a hash of their details.
    pub(crate) fn group(&self, name: &LockName) -> [String; 2] {
        let slot = self.slot(name);
        [self.beside(slot, "members", name), self.beside(slot, "details", name)]
    }

    /// The record of a lock.
    pub(crate) fn record(&self, slot: u16, kind: RecordKind, name: &LockName) -> String {
        self.beside(slot, kind.word(), name)
    }

    /// The lock whose record of this kind has this key.
    pub(crate) fn recorded<'a>(&self, kind: RecordKind, key: &'a str) -> Option<&'a str> {
        let rest = key.strip_prefix(self.namespace())?.strip_prefix(SEPARATOR)?;
        let rest = if self.cluster { rest.split_once('}')?.1 } else { rest };
        rest.strip_prefix(kind.word())?.strip_prefix(SEPARATOR)
    }

    /// A key of ours for a lock.
    fn beside(&self, slot: u16, what: &str, name: &LockName) -> String {
        let (namespace, name) = (self.namespace.as_str(), name.as_str());
        match self.tag(slot) {
            None => [namespace, SEPARATOR, what, SEPARATOR, name].concat(),
            Some(tag) => [namespace, SEPARATOR, "{", tag, "}", what, SEPARATOR, name].concat(),
        }
    }

    /// In a cluster, the tag that puts a key into this slot. The lock's own key is left as it is, for other
    /// clients; the others follow it by a tag in front. The name itself cannot serve as the tag, since it may
    /// hold braces.
    fn tag(&self, slot: u16) -> Option<&str> {
        self.cluster.then(|| TAGS[usize::from(slot)].as_str())
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A pattern for all keys of the namespace, for the check of rights.
    pub(crate) fn probe(&self) -> &str {
        &self.token
    }

    /// The cluster's slot that the keys of a lock are in; 0 where there is no cluster.
    pub(crate) fn slot(&self, name: &LockName) -> u16 {
        if self.cluster { slot(&self.lock(name)) } else { 0 }
    }

    /// The lock's own key.
    pub(crate) fn lock(&self, name: &LockName) -> String {
        [self.namespace.as_str(), name.as_str()].concat()
    }

    /// The token counter of one of the buckets that names fall into.
    pub(crate) fn token_of_bucket(&self, name: &LockName) -> String {
        // Names share counters, so that their number is bounded although none is ever deleted; not all names
        // share one, so that claims for different names seldom cross on their way to the nodes.
        self.bucket(crc16::State::<crc16::XMODEM>::calculate(name.as_str().as_bytes()) % BUCKETS)
    }

    /// The token counters of all buckets.
    pub(crate) fn all_token_buckets(&self) -> Vec<String> {
        (0..BUCKETS).map(|bucket| self.bucket(bucket)).collect()
    }

    fn bucket(&self, bucket: u16) -> String {
        format!("{}{SEPARATOR}{bucket}", self.token)
    }

    /// Where a Redlock node notes which run of the server has its counters.
    pub(crate) fn whole_note(&self) -> String {
        format!("{}{SEPARATOR}run", self.token)
    }

    /// Seconds until an unused token counter expires; empty means never.
    pub(crate) fn token_life(&self) -> &'static str {
        if self.cluster { TOKEN_LIFE } else { "" }
    }

    /// The channel for notifications to the waiters of a client.
    pub(crate) fn channel(&self, client: impl std::fmt::Display) -> String {
        format!("{}{SEPARATOR}wake{SEPARATOR}{client}", self.namespace)
    }
}

/// Refuses a namespace that would keep the keys of a lock from being in one slot of a cluster.
///
/// The first opening brace of a key, with the next closing one, says in which slot it is. One that the
/// namespace opens must be closed there, around something: otherwise the name of the lock decides where the
/// tag ends, and the tags of the keys beside the lock do not work.
pub(crate) fn check_for_cluster(namespace: &str) -> Result<()> {
    let Some((_, rest)) = namespace.split_once('{') else { return Ok(()) };
    if rest.split_once('}').is_some_and(|(tag, _)| !tag.is_empty()) {
        return Ok(());
    }
    let text = "in a cluster a namespace with a brace { must close it, with something in between, as in {app}: \
                (that text then decides in which slot all locks of the namespace are)";
    Err(Error::new(ErrorKind::InvalidInput, text))
}

/// The slot of a key in a cluster: that of the text between the first brace and the next closing one, if
/// there is any.
pub(crate) fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// For every slot a tag that leads to it.
static TAGS: Constant<Vec<String>> = Constant::new(|| {
    let mut tags = vec![String::new(); usize::from(SLOTS)];
    let mut missing = usize::from(SLOTS);
    for number in 0_u32.. {
        let text = format!("{number:x}");
        let place = &mut tags[usize::from(slot(&text))];
        if place.is_empty() {
            *place = text;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(slot("foo{}{bar}"), crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
    }

    fn all_in_one_slot(namespace: &str) -> bool {
        let keys = Keys::new(namespace, true);
        ["a", "a}b", "{", "}{", "{}", "{x}", "a{b}c{d}", "orders/42", "ü{ö}"].into_iter().all(|name| {
            let name = LockName::new(name).unwrap();
            let [members, details] = keys.group(&name);
            let record = keys.record(keys.slot(&name), RecordKind::Job, &name);
            let keys = keys.of(&name);
            [&keys.lock, &keys.queue, &keys.waiters, &keys.token, &members, &details, &record]
                .into_iter()
                .all(|key| slot(key) == keys.slot)
        })
    }

    #[test]
    fn in_a_cluster_all_keys_of_a_lock_are_in_one_slot() {
        for namespace in ["lockwell:", "", "{x}:", "a}b:", "}{x}{:", "x{y{z}"] {
            check_for_cluster(namespace).unwrap();
            assert!(all_in_one_slot(namespace), "{namespace}");
        }
        for namespace in ["{x:", "{}:", "{", "a}b{c", "{}{x}:"] {
            assert_eq!(
                check_for_cluster(namespace).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{namespace}"
            );
            assert!(!all_in_one_slot(namespace), "{namespace}");
        }
    }

    #[test]
    fn the_mark_of_a_slot_is_in_it() {
        for namespace in ["lockwell:", "", "a}b:"] {
            let keys = Keys::new(namespace, true);
            assert_eq!((keys.only_slot(), slot(&keys.mark(7))), (None, 7), "{namespace}");
        }
        for namespace in ["{x}:", "}{x}{:", "x{y{z}"] {
            let keys = Keys::new(namespace, true);
            let only = keys.only_slot().unwrap();
            assert_eq!(slot(&keys.mark(only)), only, "{namespace}");
            assert_eq!(keys.of(&LockName::new("a{b}").unwrap()).slot, only, "{namespace}");
        }
        assert_eq!(Keys::new("{x}:", false).only_slot(), None);
    }

    #[test]
    fn the_key_of_a_record_names_its_lock() {
        for (namespace, cluster) in
            [("lockwell:", false), ("", false), ("", true), ("a}b:", true), ("{x}:", true)]
        {
            let keys = Keys::new(namespace, cluster);
            for name in ["a", "}", "{a}b", "record"] {
                let name = LockName::new(name).unwrap();
                let key = keys.record(keys.slot(&name), RecordKind::Value, &name);
                assert_eq!(keys.recorded(RecordKind::Value, &key), Some(name.as_str()));
                assert_eq!(keys.recorded(RecordKind::Job, &key), None);
                assert_eq!(keys.recorded(RecordKind::Value, &keys.lock(&name)), None);
            }
        }
    }

    #[test]
    fn no_lock_has_the_key_of_another_or_one_of_ours() {
        let keys = Keys::new("", false);
        let one = keys.of(&LockName::new("queue").unwrap());
        assert!(LockName::new(one.queue.clone()).is_err());
        assert!(LockName::new(one.token).is_err());
        assert_eq!(one.lock, "queue");
    }
}
