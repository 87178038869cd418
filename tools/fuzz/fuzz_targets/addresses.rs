//! Addresses, as every backend reads them, and configurations.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../../lockcore/tests/hostile_input/properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|text: &str| {
    properties::address(text);
    lockwell_etcd::fuzzing::address(text);
    lockwell_redis::fuzzing::address(text);
    lockwell_zk::fuzzing::address(text);
});
