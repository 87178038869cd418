//! The progress bar, on the terminal's error stream; lines of text where that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// None, only lines of text.
    pub(crate) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// A bar over so many cases.
    pub(crate) fn new(cases: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(cases).unwrap_or(u64::MAX));
        let style = ProgressStyle::with_template("{bar:20} {pos} of {len} cases, some {eta} more  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if bar.is_hidden() {
            eprintln!("compare-bench: {cases} cases");
        } else {
            // Once a second: drawing should not be measured.
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Self { bar }
    }

    /// Says what is being done.
    pub(crate) fn stage(&self, text: &str) {
        if self.bar.is_hidden() {
            eprintln!("compare-bench: {text}");
        }
        self.bar.set_message(text.to_owned());
    }

    /// Says what is worth keeping on the screen.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("compare-bench: {text}"));
    }

    /// A case is done, or will not be.
    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
