//! Log events of threads that must not wait for a subscriber.
//!
//! A `tracing` subscriber is code of the application: it may write to a full pipe or take a lock, and so block. On the
//! keeper thread that would stop the renewals of all locks. So such a thread has a subscriber of its own, which copies
//! each event and sends it to the thread `lockwell-events`. That one calls the application's subscriber.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing::field::{DisplayValue, Field, Value, Visit, display};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber, dispatcher};

/// The most events that wait for the subscriber. Events beyond that are only counted, and the count is logged.
const WAITING: usize = 4096;

/// From now on, and until the returned guard is dropped, the events of this thread are sent to another.
pub(super) fn from_this_thread() -> DefaultGuard {
    set_default(Forward)
}

/// A copy of an event: its metadata and its fields.
struct EventCopy {
    metadata: &'static Metadata<'static>,
    fields: Vec<(Field, String)>,
}

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The channel to that thread; `None` if it cannot be started.
fn forwarder() -> Option<&'static SyncSender<EventCopy>> {
    static FORWARDER: OnceLock<Option<SyncSender<EventCopy>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("lockwell-events".into());
        thread.spawn(move || emit_all(&receiver)).ok().map(|_| sender)
    };
    FORWARDER.get_or_init(start).as_ref()
}

/// The most fields of an event that are forwarded.
const FIELDS: usize = 16;

fn emit_all(copies: &Receiver<EventCopy>) {
    while let Ok(copy) = copies.recv() {
        dispatcher::get_default(|subscriber| {
            if subscriber.enabled(copy.metadata) {
                copy.emit(|event| subscriber.event(event));
            }
        });
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "events of background threads were dropped: the subscriber is too slow");
        }
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
        if forwarder().is_none_or(|sender| sender.try_send(copy).is_err()) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
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
