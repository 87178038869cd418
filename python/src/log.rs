//! The log events of the library, for `logging` of Python.
//!
//! They are put into a queue, from which a thread of Python takes them. So the threads that emit them never
//! wait for Python.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use lockwell::backend::{PerProcess, lock};
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::mailbox::{Inbox, Mailbox};

/// The most events that wait for Python. Later ones are only counted.
const MOST: usize = 4096;

/// What is recorded, as a number: 0 is nothing, 5 everything.
static LEVEL: AtomicU8 = AtomicU8::new(0);

static QUEUE: PerProcess<Arc<Mutex<Queue>>> = PerProcess::new();

fn with<R>(act: impl FnOnce(&mut Queue) -> R) -> R {
    act(&mut lock(&QUEUE.get_or_init(Arc::default)))
}

#[derive(Default)]
struct Queue {
    events: VecDeque<LogEvent>,
    dropped: u64,
    inbox: Option<Arc<Inbox>>,
}

/// Seconds since 1970, level of `logging`, target, message, fields.
type LogEvent = (f64, u8, &'static str, String, String);

/// Records events up to this level of `logging`, and posts to the mailbox when there are some. A level above
/// 50 is none.
#[pyfunction]
pub(crate) fn set_log_level(level: u32, mailbox: Option<&Mailbox>) {
    with(|queue| queue.inbox = mailbox.map(|mailbox| Arc::clone(&mailbox.inbox)));
    let most = match level {
        0..10 => 5,
        10..20 => 4,
        20..30 => 3,
        30..40 => 2,
        40..=50 => 1,
        _ => 0,
    };
    if LEVEL.swap(most, Ordering::Relaxed) != most {
        tracing::callsite::rebuild_interest_cache();
    }
}

/// The events since the last call, and the number of those that were dropped.
#[pyfunction]
pub(crate) fn take_log() -> (Vec<LogEvent>, u64) {
    with(|queue| (queue.events.drain(..).collect(), std::mem::take(&mut queue.dropped)))
}

/// From now on events are recorded. Another subscriber is never there: the module has a copy of `tracing` of
/// its own.
pub(crate) fn install() {
    drop(set_global_default(Recorder));
}

struct Recorder;

fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// Only the library's own events: what its dependencies say of their requests could contain secrets.
fn is_ours(target: &str) -> bool {
    target.starts_with("lockwell")
}

impl Subscriber for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
            && is_ours(metadata.target())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Relaxed) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        // Of `logging`: error 40, warning 30, info 20, debug 10, trace 5.
        let level = match number(*event.metadata().level()) {
            5 => 5,
            number => 50 - 10 * number,
        };
        let inbox = with(|queue| {
            if queue.events.len() == MOST {
                queue.dropped += 1;
                return None;
            }
            queue.events.push_back((now, level, event.metadata().target(), text.message, text.fields));
            // One number is enough for all events that are taken together.
            if queue.events.len() == 1 { queue.inbox.clone() } else { None }
        });
        if let Some(inbox) = inbox {
            inbox.post(0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message.extend([format!("{value:?}")]);
        } else {
            self.fields.extend([format!(" {}={value:?}", field.name())]);
        }
    }
}
