//! Times in nanoseconds, as histories have them.

use std::time::Duration;

use lockwell::backend::Moment;

/// The boot clock now. It is the clock that lockwell's own validity is measured with.
pub(crate) fn nanos() -> u64 {
    let zero = Moment::NEVER.before(Duration::MAX);
    nanos_of(Moment::now().since(zero))
}

pub(crate) fn nanos_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
