//! The progress bar, on the terminal's error stream; lines of text where that is not a terminal.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// None, only lines of text.
    pub(crate) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// A bar over work that takes at most this long. What ends sooner makes it jump ahead.
    pub(crate) fn new(total: Duration) -> Self {
        let bar = ProgressBar::new(millis(total));
        let style = ProgressStyle::with_template("{bar:20} {percent:>3} %, at most {left} more  {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("left", |state: &ProgressState, out: &mut dyn Write| {
            // What cannot be written to the terminal is missing there, and that is all.
            out.write_str(&left(state.len(), state.pos())).unwrap_or_default();
        }));
        if bar.is_hidden() {
            eprintln!("compare-bench: at most {}", left(Some(millis(total)), 0));
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

    /// Work of this planned length is done, or will not be.
    pub(crate) fn spent(&self, time: Duration) {
        self.bar.inc(millis(time));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// What is left of the planned time.
fn left(all: Option<u64>, spent: u64) -> String {
    let seconds = all.unwrap_or(0).saturating_sub(spent).div_ceil(1000);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_that_of_the_plan() {
        assert_eq!(left(Some(61_200), 0), "1m 2s");
        assert_eq!(left(Some(61_200), 60_000), "2s");
        assert_eq!(left(Some(1_000), 5_000), "0s");
    }
}
