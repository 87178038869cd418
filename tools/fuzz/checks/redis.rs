//! Answers of scripts and servers, from anywhere: nothing panics, and nothing that is no answer is taken for
//! a grant.

use lockwell_core::ServerUrl;
use lockwell_core::backend::Notification;
use redis::Value;

use crate::wire::slots;
use crate::words::address::{Address, Topology};
use crate::words::answers::{self, AcquireAnswer, ClaimAnswer};
use crate::words::info::Info;
use crate::words::options::RedisOptions;

/// An address of servers, sentinels, a cluster or independent nodes: what is understood names somebody to
/// connect to.
pub fn address(text: &str) {
    let Ok(url) = text.parse::<ServerUrl>() else { return };
    let mut read: Vec<_> = Address::read(&url).into_iter().collect();
    read.extend(Address::read_nodes(&url).into_iter().flatten());
    for address in &read {
        match &address.topology {
            Topology::Node(node) => drop(address.info(node)),
            Topology::Sentinel { sentinels: nodes, .. } | Topology::Cluster(nodes) => {
                assert!(!nodes.is_empty(), "{text:?}");
            }
        }
        drop(format!("{address:?}"));
    }
    drop(RedisOptions::read(&url, &[]));
}

/// An answer, in the protocol of the server.
pub fn answer(bytes: &[u8]) {
    if let Ok(value) = redis::parse_redis_value(bytes) {
        value_of_script(&value);
    }
}

/// A message over a channel, or what `INFO` says.
pub fn text(text: &str) {
    if let Some(notification) = Notification::parse(text) {
        assert_eq!(notification.granted.is_some(), text.contains(':'), "{text:?}");
    }
    assert!(Info::parse(text).get("role").len() <= text.len());
}

fn value_of_script(value: &Value) {
    let has_token =
        |value: Option<&Value>| matches!(value, Some(Value::BulkString(_) | Value::SimpleString(_)));
    if let Ok(AcquireAnswer::Granted(_)) = answers::acquired(value) {
        assert!(has_token(Some(value)), "{value:?}");
    }
    if let Ok((ClaimAnswer::Granted(_), _)) = answers::claimed(value) {
        let Value::Array(parts) = value else { panic!("{value:?}") };
        assert!(parts[0] == Value::Int(1) && has_token(parts.get(1)), "{value:?}");
    }
    drop((answers::released(value), answers::extended(value)));
    drop((answers::claim_released(value, 1), answers::freed_all(value, 1)));
    if let Ok(view) = answers::lock_view(value) {
        let name = "a".parse().expect("a name");
        drop(answers::majority_status(&name, vec![view], 1));
    }
    drop(slots::view(value, "asked"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// One part of an answer, often one that means something.
    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            (-3..6_i64).prop_map(|number| format!(":{number}\r\n")),
            any::<i64>().prop_map(|number| format!(":{number}\r\n")),
            "[0-9a-f]{0,33}:[0-9]{0,20}:[0-9]{0,20}:[0-9]:[a-z]{0,4}"
                .prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
            "[0-9]{1,20}(:[0-9]{0,20}){0,5}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
            Just("$-1\r\n".to_owned()),
            Just("+OK\r\n".to_owned()),
        ]
    }

    fn array(parts: &[String]) -> String {
        format!("*{}\r\n{}", parts.len(), parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn answers(parts in prop::collection::vec(part(), 0..7)) {
            super::answer(array(&parts).as_bytes());
            super::answer(array(&[array(&parts), array(&parts)]).as_bytes());
        }

        #[test]
        fn single_values(part in part(), bytes in any::<Vec<u8>>()) {
            super::answer(part.as_bytes());
            super::answer(&bytes);
        }

        #[test]
        fn addresses(
            text in "(redis|rediss)(\\+sentinel|\\+cluster|\\+unix)?://([a-z%:@/\\[\\],.0-9]{0,20})(/[a-z%@/.0-9-]{0,8})?(\\?(db|sentinel_user|timeout|namespace|x)=[a-z0-9%,/-]{0,20})?",
            nodes in "redlocks?://([a-z%:@,.0-9]{0,20})(/[0-9-]{0,20})?(\\?(db|longest_ttl)=[a-z0-9-]{0,20})?",
        ) {
            super::address(&text);
            super::address(&nodes);
        }

        #[test]
        fn messages(text in "[0-9]{0,21}(:[0-9a-z]{0,21}){0,6}", any_text in "\\PC{0,40}") {
            super::text(&text);
            super::text(&any_text);
        }
    }
}
