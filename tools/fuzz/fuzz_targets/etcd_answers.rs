//! What servers of etcd answer, and what its keys are called.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lockwell_etcd::fuzzing::answer(data);
    if let Ok(text) = std::str::from_utf8(data) {
        lockwell_etcd::fuzzing::names(text);
    }
});
