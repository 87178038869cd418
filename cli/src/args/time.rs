//! Times on the command line.

use std::time::Duration;

/// `90s`, `1m 30s`, `250ms`; a plain number is in seconds, as `5` or `0.5`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 5s, 2m, or 5 for seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_means_seconds() {
        for (text, millis) in
            [("5", 5000), ("0", 0), ("0.5", 500), ("5s", 5000), ("250ms", 250), ("1m 30s", 90_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", ".", "5x", "-1", "1.2.3", "1e999", "99999999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
