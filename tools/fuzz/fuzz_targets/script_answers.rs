//! What scripts and servers of Redis answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lockwell_redis::fuzzing::answer(data);
    if let Ok(text) = std::str::from_utf8(data) {
        lockwell_redis::fuzzing::text(text);
    }
});
