//! A claim meets another kind of lock.

use super::{Claim, Wait};
use crate::{Mode, Result};

impl Claim {
    /// For backends: notes that the claim was refused a lock that is held in this mode; `None`: it is not known. A
    /// backend calls this with each refusal of which it knows the mode, of whatever kind. One with exclusive locks
    /// only need not.
    ///
    /// A claim that does not wait passes the mode of the holders, and that of the first waiter only if nobody
    /// holds the lock. So a try of the holders' own kind behind a waiter of another kind is refused, and no
    /// clash. A claim that waits may pass the mode of the claim ahead of it.
    ///
    /// A claim of another kind goes on waiting, and the log says so once: with a new limit that is as it
    /// should be, and otherwise a mistake in the program.
    ///
    /// # Errors
    /// [`Mode::clash`] if the kind is another one and the claim does not wait.
    pub fn note_in_use(&self, held: impl Into<Option<Mode>>) -> Result<()> {
        let Some(held) = held.into() else { return Ok(()) };
        let asked = self.mode();
        if held.is_same_kind(asked) {
            return Ok(());
        }
        if self.wait() == Wait::No {
            return Err(Mode::clash(held, asked));
        }
        if !std::mem::replace(&mut self.state().meets_another_kind, true) {
            let name = self.name();
            tracing::warn!(lockwell.name = %name, "{name} is in use as {held}, this claim asks for {asked}: it waits until that kind has left");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write};
    use std::num::NonZeroU32;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::system::lock;
    use crate::{ErrorKind, LockName};

    /// What is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Text<'a>(&'a mut String);

    impl Visit for Text<'_> {
        fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
            write!(self.0, "{value:?} ").expect("a string has room");
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event()
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut text = String::new();
            event.record(&mut Text(&mut text));
            lock(&self.0).push(text);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    fn permit(limit: u32) -> Mode {
        Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
    }

    fn claim(mode: Mode, wait: Wait) -> Claim {
        Claim::new(LockName::new("gpu").unwrap(), mode, Duration::from_secs(1), wait, "test".into())
    }

    #[test]
    fn only_a_claim_that_waits_meets_another_kind() {
        for (held, asked) in [(permit(5), permit(6)), (Mode::Exclusive, permit(1)), (permit(1), Mode::Shared)]
        {
            let error = claim(asked, Wait::No).note_in_use(held).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KindClash);
            assert!(error.is_retryable(), "it passes when that kind has left");
            let text = error.to_string();
            assert!(text.contains(&held.to_string()) && text.contains(&asked.to_string()), "{text}");
            assert!(claim(asked, Wait::Forever).note_in_use(held).is_ok());
        }
        for (held, asked) in [(permit(5), permit(5)), (Mode::Exclusive, Mode::Shared)] {
            assert!(claim(asked, Wait::No).note_in_use(held).is_ok());
        }
    }

    #[test]
    fn the_log_says_once_that_a_claim_waits_for_another_kind() {
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            let waiting = claim(permit(6), Wait::Forever);
            for held in [permit(6), permit(5), permit(5), Mode::Exclusive] {
                waiting.note_in_use(held).unwrap();
            }
        });
        let said = lock(&log.0);
        let text = "gpu is in use as permit (limit 5), this claim asks for permit (limit 6)";
        assert!(said.len() == 1 && said[0].contains(text), "{said:?}");
    }
}
