//! The record of a lock's jobs: JSON with a version.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{AttemptEnd, KeyState};
use crate::{Error, ErrorKind, FencingToken, Record, Result};

const VERSION: u32 = 1;

/// How many keys a record has at most.
const MOST_KEYS: usize = 100;

/// The longest key, in bytes.
const LONGEST_KEY: usize = 100;

/// All that is known of the jobs that ran under a lock: its last keys, the newest last.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    version: u32,
    /// Who began the newest one: a label, and the token.
    by: String,
    token: u64,
    keys: VecDeque<KeyEntry>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyEntry {
    pub(crate) key: String,
    #[serde(rename = "n")]
    pub(crate) attempts: u32,
    pub(crate) end: AttemptEnd,
    /// When the last attempt began: milliseconds since 1970, by the clock of its host.
    #[serde(rename = "at")]
    began_ms: u64,
    /// How long it took, once it has ended.
    #[serde(rename = "took", default, skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Refuses what is not a key.
pub(crate) fn check_key(key: &str) -> Result<()> {
    let bad = match key.len() {
        0 => "is empty",
        bytes if bytes > LONGEST_KEY => "has more than 100 bytes",
        _ if key.chars().any(char::is_control) => "has control characters",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("the key of a job {bad}")))
}

impl JobRecord {
    /// What a server has stored. A record that is not understood says nothing about any key.
    pub(crate) fn parse(stored: Option<&Record>) -> Result<Self> {
        let Some(stored) = stored else { return Ok(Self { version: VERSION, ..Self::default() }) };
        let read = || match serde_json::from_slice::<Versioned>(&stored.value)?.version {
            VERSION => serde_json::from_slice(&stored.value).map(Some),
            _ => Ok(None),
        };
        let text = match read() {
            Ok(Some(record)) => return Ok(record),
            Ok(None) => "the record of its jobs was written by a later version of lockwell".to_owned(),
            Err(error) => format!("the record of its jobs is not one of lockwell: {error}"),
        };
        Err(Error::new(ErrorKind::Misconfigured, text))
    }

    /// The bytes to store; empty without any key. The oldest keys go if it becomes too long.
    pub(crate) fn text(&mut self) -> Result<Vec<u8>> {
        while !self.keys.is_empty() {
            let text = serde_json::to_vec(self)
                .map_err(|error| Error::new(ErrorKind::Internal, format!("the record of jobs: {error}")))?;
            if self.keys.len() <= MOST_KEYS && text.len() <= Record::MAX_BYTES {
                return Ok(text);
            }
            self.keys.pop_front();
        }
        Ok(Vec::new())
    }

    /// What it says about a key. Keys are compared for equality: their order says nothing.
    pub(crate) fn key(&self, key: &str) -> Option<&KeyEntry> {
        self.keys.iter().find(|entry| entry.key == key)
    }

    /// All keys, the newest first, each with who began it, if that is known.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&KeyEntry, Option<(&str, FencingToken)>)> {
        let by = (&*self.by, FencingToken::new(self.token));
        self.keys.iter().rev().enumerate().map(move |(at, entry)| (entry, (at == 0).then_some(by)))
    }

    /// When one of its keys was last done, by the clock of its host.
    pub(crate) fn last_done(&self) -> Option<SystemTime> {
        let done = self.keys.iter().filter(|entry| entry.end == AttemptEnd::Done);
        done.map(|entry| entry.began() + entry.took().unwrap_or_default()).max()
    }

    /// Who began the newest attempt, if it is of this key.
    pub(crate) fn token_of(&self, key: &str) -> Option<FencingToken> {
        self.keys.back().filter(|newest| newest.key == key).map(|_| FencingToken::new(self.token))
    }

    /// An attempt begins: its key is the newest.
    pub(crate) fn begin(&mut self, key: &str, attempts: u32, label: &str, token: FencingToken) {
        self.forget(key);
        label.clone_into(&mut self.by);
        self.token = token.get();
        let (key, end, began_ms) = (key.to_owned(), AttemptEnd::Begun, now_ms());
        self.keys.push_back(KeyEntry { key, attempts, end, began_ms, took_ms: None });
    }

    /// An attempt ends, which began here.
    pub(crate) fn end(&mut self, key: &str, end: AttemptEnd) {
        if let Some(entry) = self.keys.iter_mut().find(|entry| entry.key == key) {
            entry.end = end;
            entry.took_ms = Some(now_ms().saturating_sub(entry.began_ms));
        }
    }

    /// Whether it was there.
    pub(crate) fn forget(&mut self, key: &str) -> bool {
        let before = self.keys.len();
        // Nobody is known to have begun the one that is the newest then.
        if self.keys.back().is_some_and(|newest| newest.key == key) {
            (self.by, self.token) = (String::new(), 0);
        }
        self.keys.retain(|entry| entry.key != key);
        self.keys.len() < before
    }
}

impl KeyEntry {
    pub(crate) fn state(&self) -> KeyState {
        KeyState { attempts: self.attempts, end: self.end }
    }

    pub(crate) fn began(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.began_ms)
    }

    pub(crate) fn took(&self) -> Option<Duration> {
        self.took_ms.map(Duration::from_millis)
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HoldId;

    fn stored(text: &[u8]) -> Record {
        Record {
            value: text.to_vec(),
            token: FencingToken::new(1),
            hold: "0000000000000000000000000000002a".parse::<HoldId>().unwrap(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut record = JobRecord::parse(None).unwrap();
        record.begin("a\"b", 2, "web-1", FencingToken::new(7));
        let read = JobRecord::parse(Some(&stored(&record.text().unwrap()))).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.key("a\"b").unwrap().state(), KeyState { attempts: 2, end: AttemptEnd::Begun });
        assert_eq!(read.token_of("a\"b"), Some(FencingToken::new(7)));
        assert_eq!(record.last_done(), None);
        record.end("a\"b", AttemptEnd::Done);
        assert!(record.key("a\"b").unwrap().took().is_some());
        record.begin("c", 1, "web-1", FencingToken::new(8));
        assert!(record.last_done().unwrap() >= record.key("a\"b").unwrap().began());
        assert!(record.forget("c"));
        assert!(record.forget("a\"b") && !record.forget("a\"b"));
        assert!(record.text().unwrap().is_empty());
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for bad in [&br#"{"version":2,"keys":[]}"#[..], b"{}", b"x", br#"{"version":1}"#] {
            let error = JobRecord::parse(Some(&stored(bad))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        }
    }

    #[test]
    fn the_last_keys_are_kept_as_far_as_they_fit() {
        let mut record = JobRecord::parse(None).unwrap();
        let long = "\\".repeat(95);
        for (count, begin) in [(150, ""), (300, long.as_str())] {
            for number in 0..count {
                record.begin(&format!("{begin}{number:05}"), 1, &long, FencingToken::new(7));
            }
            let text = record.text().unwrap();
            assert!(text.len() <= Record::MAX_BYTES, "{}", text.len());
            assert_eq!(record.entries().next().unwrap().0.key, format!("{begin}{:05}", count - 1));
        }
        let mut record = JobRecord::parse(None).unwrap();
        for number in 0..150 {
            record.begin(&number.to_string(), 1, "", FencingToken::new(7));
        }
        record.text().unwrap();
        assert!(record.key("50").is_some() && record.key("49").is_none());
    }

    #[test]
    fn keys() {
        for (key, good) in [
            ("", false),
            ("a", true),
            ("2026-11-29 ü", true),
            ("a\n", false),
            (&"x".repeat(100), true),
            (&"x".repeat(101), false),
        ] {
            assert_eq!(check_key(key).is_ok(), good, "{key:?}");
        }
    }
}
