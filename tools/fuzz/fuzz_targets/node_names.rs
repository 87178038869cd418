//! What nodes of ZooKeeper are called and contain, and what its servers say.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lockwell_zk::fuzzing::node_data(data);
    if let Ok(text) = std::str::from_utf8(data) {
        lockwell_zk::fuzzing::node_names(text);
        lockwell_zk::fuzzing::four_letters(text);
    }
});
