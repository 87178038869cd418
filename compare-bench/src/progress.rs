//! The progress bar, on the terminal's error stream; lines of text where that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over work that is to take this long.
    pub(crate) fn new(total: Duration) -> Self {
        let bar = ProgressBar::new(millis(total));
        let style =
            ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed} of about {duration}  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !bar.is_hidden() {
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

    /// Work of this planned length is done, or will not be.
    pub(crate) fn spent(&self, time: Duration) {
        self.bar.inc(millis(time));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
