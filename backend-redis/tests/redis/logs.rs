//! What this process logs.

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};

use tracing_subscriber::EnvFilter;

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Tap;

impl Write for Tap {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        LOGGED.lock().unwrap_or_else(PoisonError::into_inner).write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on, by all threads and all tests.
pub(crate) fn keep() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("off,lockwell_core=trace,lockwell_redis=trace,redis=trace"))
            .with_ansi(false)
            // Tests look for ports in lines, and a time may contain the same digits.
            .without_time()
            .with_writer(|| Tap)
            .init();
    });
}

/// What has been kept, by lines.
pub(crate) fn lines() -> Vec<String> {
    let logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&logged).lines().map(str::to_owned).collect()
}

/// Whether such a line has been logged: of this level, with all of these parts.
pub(crate) fn has(level: &str, parts: &[&str]) -> bool {
    lines().iter().any(|line| line.contains(level) && parts.iter().all(|part| line.contains(part)))
}
