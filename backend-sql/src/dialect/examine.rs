//! Questions of an administrator: which locks are held, and whether the database is set up well for locks.

use std::time::{Duration, SystemTime};

use lockwell_core::Finding;

/// The time in microseconds since 1970.
pub(crate) fn time(micros: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A finding about a server on which nothing can be locked.
pub(crate) fn takes_no_writes(remedy: &str) -> Finding {
    let text = "the server takes no writes: it is a replica, or was set to be read only; no lock can be taken or renewed";
    Finding::bad("read_only", text, remedy)
}

/// A finding about whether grants survive a crash of the server or of its host.
pub(crate) fn persistence(settings: &[(&str, &str, &[&str])]) -> Finding {
    let wrong: Vec<_> = settings.iter().filter(|(_, value, good)| !good.contains(value)).collect();
    if wrong.is_empty() {
        return Finding::good("persistence", "grants are on the disk before they are answered");
    }
    let is: Vec<_> = wrong.iter().map(|(name, value, _)| format!("{name} is {value}")).collect();
    let should: Vec<_> = wrong.iter().map(|(name, _, good)| format!("{name} to {}", good[0])).collect();
    Finding::bad(
        "persistence",
        format!("{}: a crash can lose grants, and grant a lock twice", is.join(", ")),
        format!("set {}", should.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use lockwell_core::Severity;

    use super::*;

    #[test]
    fn every_setting_that_can_lose_grants_is_named() {
        let of = |fsync, pages| {
            persistence(&[("fsync", fsync, &["on"]), ("full_page_writes", pages, &["on", "always"])])
        };
        for (fsync, pages) in [("on", "on"), ("on", "always")] {
            assert_eq!(of(fsync, pages).severity, Severity::Good);
        }
        let one = of("off", "on");
        assert_eq!((one.severity, one.remedy.as_str()), (Severity::Bad, "set fsync to on"));
        assert!(one.message.starts_with("fsync is off: "), "{one:?}");
        let both = of("off", "off");
        assert!(both.message.starts_with("fsync is off, full_page_writes is off: "), "{both:?}");
        assert_eq!(both.remedy, "set fsync to on, full_page_writes to on");
    }
}
