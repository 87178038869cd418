//! Lock names, and the keys that they become.
#![no_main]

#[allow(dead_code, reason = "each target uses a part of it")]
#[path = "../../../lockcore/tests/hostile_input/properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|text: &str| {
    properties::name(text);
    lockwell_zk::fuzzing::paths(text);
});
