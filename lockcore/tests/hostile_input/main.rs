//! Addresses, configurations and lock names from anywhere: nothing panics, and no password is shown. `fuzz/`
//! drives the same properties.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC{0,60}") {
        properties::address(&text);
        properties::name(&text);
    }

    #[test]
    fn texts_like_addresses(
        text in "(redis|zk|sqlite|a\\+b)?(://)?([a-z%:@/\\[\\],.0-9]{0,20})(/[a-z%@/.0-9]{0,8})?(\\?([a-z_]{0,8}(=[a-z0-9%,/]{0,6})?&?){0,3})?"
    ) {
        properties::address(&text);
    }

    #[test]
    fn texts_like_configurations(text in "(url = \"memory://\"\n)?((ttl|wait|require|label|hand_off|x) ?= ?[\"\\[\\]a-z0-9,/]{0,12}\n){0,3}") {
        properties::address(&text);
    }

    #[test]
    fn passwords(before in "[ -<>-~]{0,6}", after in "[ -<>-~]{0,6}", host in "[a-z]{1,4}(:[0-9x]{1,5})?") {
        properties::password(&before, &after, &host);
    }

    #[test]
    fn long_names(name in "[a-zé\u{1}]{0,3}", times in 0..300_usize) {
        properties::name(&name.repeat(times));
    }
}
