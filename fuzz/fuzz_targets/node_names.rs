//! What nodes of ZooKeeper are called and contain, and what its servers say.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    backend_zk::fuzzing::node_data(data);
    if let Ok(text) = std::str::from_utf8(data) {
        backend_zk::fuzzing::node_names(text);
        backend_zk::fuzzing::four_letters(text);
    }
});
