//! What the library logs, to standard error.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::exit::Failure;
use crate::say::{self, Voice};

/// Warnings of the library and of backends from elsewhere, without what the command says itself and without
/// the client crates.
const USUAL: &str = "warn,lockwell_core::lease=off,lockwell_core::client=off,sqlx=off,redis=off,zookeeper_client=off,rustls=off,\
                     tonic=off,hyper=off,h2=off,tower=off";

/// Logs as `RUST_LOG` says. Without it, warnings are printed in one line each.
pub(crate) fn start(voice: Voice) -> Result<(), Failure> {
    let asked = std::env::var_os(EnvFilter::DEFAULT_ENV).is_some_and(|value| !value.is_empty());
    if asked {
        let filter = EnvFilter::try_from_default_env()
            .map_err(|error| Failure::usage(format!("{}: {error}", EnvFilter::DEFAULT_ENV)))?;
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| say::Stderr).init();
    } else if voice > Voice::Quiet {
        let filter = EnvFilter::try_new(USUAL).map_err(|error| Failure::usage(error.to_string()))?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| say::Stderr);
        lines.event_format(Lines).init();
    }
    Ok(())
}

/// `lockwell: warning: what is wrong (field: value)`, or the same in JSON.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        let mut text = line.message;
        if !line.rest.is_empty() {
            write!(text, " ({})", line.rest.join(", "))?;
        }
        writeln!(to, "{}", say::line("warning", &text, None))
    }
}

#[derive(Default)]
struct Line {
    message: String,
    rest: Vec<String>,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}").replace(['\n', '\r'], " ");
        match field.name() {
            "message" => self.message = text,
            name if name.starts_with("log.") => (),
            name => self.rest.push(format!("{name}: {text}")),
        }
    }
}
