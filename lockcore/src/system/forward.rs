//! Log events of threads that must not wait for a subscriber.
//!
//! Such a thread has a subscriber of its own, which copies each event and sends it [aside](super::aside): the
//! thread `lockwell-events` calls the application's subscriber.

use std::fmt::Debug;
use std::sync::LazyLock;

use tracing::field::{DisplayValue, Field, Value, Visit, display};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

use super::aside::Aside;

static EVENTS: Aside = Aside::new("lockwell-events");

/// The subscriber of all such threads. `tracing` enters each in a list behind a lock, which a thread of the
/// parent may have had at a fork: a child, which starts its threads anew, must not enter another one.
static FORWARD: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Forward));

/// Makes the subscriber, before there are other threads.
pub(super) fn make_ready() {
    LazyLock::force(&FORWARD);
}

/// From now on, and until the returned guard is dropped, the events of this thread are sent to another.
pub(super) fn from_this_thread() -> DefaultGuard {
    dispatcher::set_default(&FORWARD)
}

/// Runs this, which emits an event, on the thread `lockwell-events`.
#[cfg(feature = "metrics")]
pub(crate) fn log_aside(emit: impl FnOnce() + Send + 'static) {
    EVENTS.run(emit);
}

/// A copy of an event: its metadata and its fields.
struct EventCopy {
    metadata: &'static Metadata<'static>,
    fields: Vec<(Field, String)>,
}

/// The most fields of an event that are forwarded.
const FIELDS: usize = 16;

fn emit(copy: &EventCopy) {
    dispatcher::get_default(|subscriber| {
        if subscriber.enabled(copy.metadata) {
            copy.emit(|event| subscriber.event(event));
        }
    });
    let dropped = EVENTS.take_dropped();
    if dropped > 0 {
        tracing::warn!(
            lockwell.dropped = dropped,
            "events of background threads were dropped: the subscriber is too slow"
        );
    }
}

impl EventCopy {
    /// Emits the event again, with its metadata, so that filters by target work.
    fn emit(&self, subscriber: impl Fn(&Event<'_>)) {
        let values: Vec<(&Field, DisplayValue<&String>)> =
            self.fields.iter().map(|(field, text)| (field, display(text))).collect();
        let Some((first, _)) = values.first() else { return };
        // The length must be fixed. A field without a value is not forwarded.
        let mut fixed: [(&Field, Option<&dyn Value>); FIELDS] = [(first, None); FIELDS];
        for (entry, (field, value)) in fixed.iter_mut().zip(&values) {
            *entry = (field, Some(value));
        }
        subscriber(&Event::new(self.metadata, &self.metadata.fields().value_set(&fixed)));
    }
}

struct Forward;

impl Subscriber for Forward {
    /// An event that no other subscriber wants stays switched off everywhere. For the others this one is
    /// asked each time.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::never()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The hint of this subscriber is OFF, so the current level is that of the others.
        metadata.is_event() && *metadata.level() <= LevelFilter::current()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        let copy = EventCopy { metadata: event.metadata(), fields: fields.0 };
        EVENTS.run(move || emit(&copy));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event, as text.
struct Fields(Vec<(Field, String)>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.clone(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.clone(), format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands each event to a function.
    struct Check<F>(F);
    impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Subscriber for Check<F> {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            (self.0)(event);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_is_emitted_as_it_was() {
        let fields = |event: &Event<'_>| {
            let mut fields = Fields(Vec::new());
            event.record(&mut fields);
            fields.0.into_iter().map(|(field, text)| format!("{field}={text}")).collect::<Vec<_>>()
        };
        let check = Check(move |event: &Event<'_>| {
            let said = fields(event);
            assert_eq!(said, ["message=lock lost", "lock=a", "number=7", "text=plain"]);
            let mut written = Fields(Vec::new());
            event.record(&mut written);
            let copy = EventCopy { metadata: event.metadata(), fields: written.0 };
            copy.emit(|again| {
                assert_eq!(fields(again), said);
                assert_eq!(again.metadata().target(), "elsewhere");
            });
        });
        tracing::subscriber::with_default(check, || {
            tracing::warn!(target: "elsewhere", lock = %"a", number = 7, text = "plain", "lock lost");
        });
    }
}
