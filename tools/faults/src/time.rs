//! Times as numbers.

use std::time::Duration;

use lockwell::backend::Moment;

/// The boot clock now, in nanoseconds, as histories have it. It is the clock that lockwell's own validity is
/// measured with.
pub fn nanos() -> u64 {
    let zero = Moment::NEVER.before(Duration::MAX);
    nanos_of(Moment::now().since(zero))
}

pub(crate) fn nanos_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on() {
        let before = nanos();
        assert!(before > 0 && nanos() >= before);
    }
}
