//! Untrusted input from servers and other programs: nothing panics, and nothing that is no grant is taken for
//! one.

use std::collections::HashSet;
use std::time::Duration;

use lockwell_core::{Claim, LockName, Mode, ServerUrl, Wait};
use prost::Message;

use crate::client::Answer;
use crate::floor::{Floor, Stored};
use crate::keys;
use crate::messages::{Alarms, LeaseReply, Members, Status, TxnReply, WatchReply};
use crate::options::EtcdOptions;
use crate::queue::{Entered, Peeked, Place, Requests, TurnAnswer};

const PREFIX: &str = "lockwell";

/// An address, with its options: what is understood names somebody to connect to.
pub fn address(text: &str) {
    let Ok(url) = text.parse::<ServerUrl>() else { return };
    if let Ok(options) = EtcdOptions::read(&url) {
        assert!(!options.endpoints.is_empty() && !options.prefix.ends_with('/'), "{text:?}");
        drop(format!("{options:?}"));
    }
}

/// Lock names as keys, one per line: the keys of two locks are apart, and are found by the name again.
pub fn names(text: &str) {
    let names: HashSet<_> = text.split('\n').filter_map(|name| LockName::new(name).ok()).collect();
    let folders: HashSet<_> = names.iter().map(|name| keys::folder(PREFIX, name)).collect();
    assert_eq!(folders.len(), names.len());
    for name in &names {
        let folder = keys::folder(PREFIX, name);
        assert!(folders.iter().all(|other| *other == folder || !other.starts_with(&folder)), "{folder:?}");
        assert_eq!(keys::name(PREFIX, format!("{folder}w/1").as_bytes()).as_ref(), Some(name));
    }
    // A key of somebody else.
    drop(keys::name(PREFIX, text.as_bytes()));
}

/// What a server answers, in the bytes of its protocol.
pub fn answer(bytes: &[u8]) {
    drop((
        WatchReply::decode(bytes),
        LeaseReply::decode(bytes),
        Members::decode(bytes),
        Alarms::decode(bytes),
    ));
    if let Ok(status) = Status::decode(bytes) {
        drop(crate::examine::version(&status.version, false));
    }
    let Ok(reply) = TxnReply::decode(bytes) else { return };
    let modes = [Some(Mode::Exclusive), Some(Mode::Shared), Mode::from_code(2)];
    for mode in modes.into_iter().flatten() {
        for wait in [Wait::No, Wait::Forever] {
            read_as(mode, wait, &reply);
        }
    }
    let answer = Answer::of(reply);
    for found in &answer.found {
        let (entries, holding) = keys::queue(found, "lockwell/a/");
        assert!(holding <= entries.len() && entries.len() <= found.len());
        assert!(entries.is_empty() || holding > 0, "a queue has a holder");
        drop(entries.iter().map(|entry| entry.holder(Duration::from_secs(1))).collect::<Vec<_>>());
    }
    let floor = Floor::default();
    floor.note(floor.mark(), answer.revision);
    let stored = Stored::read(answer.first(0)).unwrap_or_default().number();
    let needed = Floor::needed(floor.highest(), stored, answer.revision);
    assert!(needed.is_none_or(|needed| needed >= stored), "{stored}");
}

/// The answer to each request of such a claim.
fn read_as(mode: Mode, wait: Wait, reply: &TxnReply) {
    let name = LockName::new("a").expect("a name");
    let claim = Claim::new(name, mode, Duration::from_secs(2), wait, "a label".into());
    let requests = Requests::new(PREFIX, &claim);
    let answer = || Answer::of(reply.clone());
    let place = Place {
        revision: answer().revision,
        floor: Stored::read(answer().first(0)).unwrap_or_default(),
        blocker: None,
    };
    let next = |place: &Place| {
        let takes = [false, true].map(|is_known| requests.take_turn(place, Duration::ZERO, is_known));
        drop((requests.look(place), requests.met(place), takes));
    };
    next(&place);
    match requests.entered(&answer(), &place.floor) {
        Ok(Entered::At(entered)) => {
            assert!(reply.succeeded);
            next(&entered);
        }
        Ok(Entered::Before(before)) => {
            assert!(!reply.succeeded);
            next(&before);
            return;
        }
        Ok(Entered::Downgraded) => return,
        _ => assert!(!reply.succeeded),
    }
    let is_free = matches!(requests.peeked(&answer()), Peeked::Free);
    let _: Option<Mode> = requests.held(&answer());
    assert!(is_free || answer().found.iter().any(|keys| !keys.is_empty()), "without keys it is free");
    assert!(!matches!(requests.looked(&answer(), &place), TurnAnswer::Granted), "a look takes nothing");
    let inner = answer().inner.is_some_and(|inner| inner.succeeded);
    if matches!(requests.took_turn(answer(), &place), TurnAnswer::Granted) {
        assert!(reply.succeeded || inner);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding;

    use super::*;
    use crate::messages::{Header, KeyValue, RangeReply};

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![0..9_i64, Just(i64::MAX), Just(i64::MIN), any::<i64>()]
    }

    /// Keys and values like those of claims.
    fn stored() -> impl Strategy<Value = KeyValue> {
        let key = "lockwell/(\\.floor|[ab]/(w|r|d|x|p[0-9]{0,11})/[0-9a-f]{0,4})";
        let value = "([+=]?-?[0-9]{0,20} [0-9]{0,21} [a-z ]{0,5}|-?[0-9]{0,20})";
        (key, value, number(), number()).prop_map(|(key, value, create_revision, lease)| KeyValue {
            key: key.into(),
            create_revision,
            value: value.into(),
            lease,
        })
    }

    /// The bytes of an answer to a transaction. `inner`: of the one in it.
    fn reply(header: Header, succeeded: bool, ranges: Vec<Vec<KeyValue>>, inner: Option<Vec<u8>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encoding::message::encode(1, &header, &mut bytes);
        encoding::bool::encode(2, &succeeded, &mut bytes);
        let ranges = ranges.into_iter().map(|kvs| (1, RangeReply { header: None, kvs }.encode_to_vec()));
        for (tag, part) in ranges.chain(inner.map(|inner| (4, inner))) {
            let mut operation = Vec::new();
            encoding::bytes::encode(tag, &part, &mut operation);
            encoding::bytes::encode(3, &operation, &mut bytes);
        }
        bytes
    }

    fn replies() -> impl Strategy<Value = Vec<u8>> {
        let ranges = || prop::collection::vec(prop::collection::vec(stored(), 0..5), 0..5);
        let header = (number(), 0..5_u64).prop_map(|(revision, term)| Header { member: 1, revision, term });
        let inner = prop::option::of((any::<bool>(), ranges()));
        (header, any::<bool>(), ranges(), inner).prop_map(|(header, succeeded, ranges, inner)| {
            let inner = inner.map(|(succeeded, ranges)| reply(header, succeeded, ranges, None));
            reply(header, succeeded, ranges, inner)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn any_input(text in "(\\PC{0,12}\n?){0,4}", bytes in any::<Vec<u8>>()) {
            names(&text);
            answer(&bytes);
            answer(text.as_bytes());
        }

        #[test]
        fn answers_like_those_of_servers(bytes in replies(), cut in any::<prop::sample::Index>()) {
            answer(&bytes);
            answer(&bytes[..cut.index(bytes.len() + 1)]);
        }

        #[test]
        fn names_like_keys(text in "(lockwell/)?[ab%/.0-9]{0,6}(/(w|r|d|p[0-9]{0,3})/[0-9a-f]{0,4})?\n[ab%/.2F]{0,6}") {
            names(&text);
        }

        #[test]
        fn addresses(
            text in "etcds?://([a-z%:@\\[\\],.0-9]{0,20})(/[a-z%@/.0-9-]{0,8})?(\\?((ca|cert|key|timeout|ttl)=[a-z0-9%,-]{0,20}&?){0,2})?"
        ) {
            address(&text);
        }
    }
}
