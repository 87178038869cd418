//! Looks for owner ids in all that is logged, at every level: a reader of the log could release locks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockwell::backend::OwnerId;
use lockwell::conformance::canary::shows_an_owner;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default, with_default};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_log::{LogTracer, NormalizeEvent};

/// Those who know nothing of locks, and log much.
const DEAF: [&str; 5] = ["tokio", "mio", "polling", "async_io", "rustls"];

/// Those whose lowest level is a dozen texts for each frame, none of which has a frame's content: half of what a
/// client of etcd computes in a test.
const CHATTY: [&str; 3] = ["h2", "hyper", "tower"];

/// Crates that log owners below INFO, which cannot be switched off: the client of `ZooKeeper` logs the paths
/// of nodes. Anybody who can reach the server can list these names, so they are reported but are no failure.
const BLABS: [&str; 1] = ["zookeeper_client"];

/// Takes part in all logging, and keeps what shows an owner: one text for each place in the code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Canary(Arc<Mutex<Found>>);

/// A text for each place in the code.
#[derive(Debug, Default)]
struct Found {
    failures: BTreeMap<String, String>,
    known: BTreeMap<String, String>,
}

impl Canary {
    /// Listens from now on, on all threads.
    pub(crate) fn install() -> Self {
        let canary = Self::default();
        set_global_default(canary.clone()).expect("nobody else listens");
        // Some clients log through the crate `log`.
        let bridge = DEAF.iter().fold(LogTracer::builder(), |bridge, deaf| bridge.ignore_crate(*deaf));
        bridge.init().expect("nobody else listens");
        canary
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been found so far and must not be.
    pub(crate) fn found(&self) -> Vec<String> {
        listed(&self.lock().failures)
    }

    /// What has been found so far and cannot be helped.
    pub(crate) fn known(&self) -> Vec<String> {
        listed(&self.lock().known)
    }

    fn look(&self, place: Option<&Metadata<'_>>, write: impl FnOnce(&mut dyn Visit)) {
        thread_local! {
            static TEXT: RefCell<Text> = RefCell::default();
        }
        TEXT.with(|text| {
            // A `Debug` that logs comes here while its text is written. It gets a text of its own.
            let (mut mine, mut own) = (text.try_borrow_mut().ok(), Text::default());
            let text = mine.as_deref_mut().unwrap_or(&mut own);
            text.0.clear();
            write(text);
            if shows_an_owner(&text.0) {
                let mut found = self.lock();
                let is_known =
                    place.is_some_and(|place| is_one_of(place, &BLABS) && *place.level() > Level::INFO);
                let list = if is_known { &mut found.known } else { &mut found.failures };
                let place = place.map_or_else(|| "a field of a span, recorded later".to_owned(), shown);
                list.entry(place).or_insert_with(|| text.0.clone());
            }
        });
    }
}

fn shown(place: &Metadata<'_>) -> String {
    let (file, line) = (place.file().unwrap_or_default(), place.line().unwrap_or_default());
    format!("{} {} at {file}:{line}", place.level(), place.target())
}

fn listed(found: &BTreeMap<String, String>) -> Vec<String> {
    found.iter().map(|(place, text)| format!("{place}: {text}")).collect()
}

fn is_one_of(metadata: &Metadata<'_>, crates: &[&str]) -> bool {
    crates.contains(&metadata.target().split("::").next().unwrap_or_default())
}

fn is_heard(metadata: &Metadata<'_>) -> bool {
    !is_one_of(metadata, &DEAF) && (*metadata.level() < Level::TRACE || !is_one_of(metadata, &CHATTY))
}

impl Subscriber for Canary {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_heard(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_heard(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.look(Some(span.metadata()), |text| span.record(text));
        // The id of the span does not matter.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.look(None, |text| values.record(text));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let of_log = event.normalized_metadata();
        self.look(Some(of_log.as_ref().unwrap_or(event.metadata())), |text| event.record(text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// All fields, one behind the other.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, "{}={value} ", field.name()).expect("a string");
    }
}

/// It can fail: an owner that is logged is found.
pub(crate) fn bites() -> Result<(), String> {
    let canary = Canary::default();
    let owner = OwnerId::random();
    with_default(canary.clone(), || {
        tracing::trace!(?owner, "hidden by Debug");
        let _span = tracing::trace_span!("harmless", name = "x").entered();
    });
    if !canary.found().is_empty() {
        return Err(format!("found where none is: {:?}", canary.found()));
    }
    with_default(canary.clone(), || {
        for _ in 0..2 {
            tracing::trace!("in the text: {:032x}", owner.as_u128());
        }
        tracing::debug!(bytes = ?owner.as_u128().to_be_bytes(), "in a field");
        let _span = tracing::info_span!("in a span", owner = format!("{:032x}", owner.as_u128())).entered();
    });
    let found = canary.found();
    if found.len() == 3 { Ok(()) } else { Err(format!("3 places show an owner; found: {found:?}")) }
}
