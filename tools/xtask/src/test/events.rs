//! What a test program reports while it runs: the JSON lines of libtest and of libtest-mimic.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Ignored,
    /// It has returned, and says that something was missing.
    NotRun,
    /// With what it wrote.
    Failed(String),
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) ended: Ended,
    pub(crate) took: Duration,
}

#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "type")]
    of: String,
    event: String,
    name: Option<String>,
    /// What the test wrote, and what the harness says about it.
    stdout: Option<String>,
    message: Option<String>,
}

/// Reads the lines of one program.
#[derive(Debug, Default)]
pub(crate) struct Events {
    running: HashMap<String, Instant>,
    pub(crate) tests: Vec<Test>,
    /// Lines that are no events.
    pub(crate) other: Vec<String>,
    /// Whether the program came to its end.
    pub(crate) complete: bool,
}

impl Events {
    pub(crate) fn read(&mut self, line: &str, now: Instant) {
        let parsed = serde_json::from_str::<Line>(line);
        let Ok(Line { of, event, name, stdout, message }) = parsed else {
            self.other.extend((!line.trim().is_empty()).then(|| line.to_owned()));
            return;
        };
        match (of.as_str(), name) {
            ("suite", _) => self.complete = event != "started",
            ("test", Some(name)) if event == "started" => {
                self.running.insert(name, now);
            }
            ("test", Some(name)) => {
                let ended = match event.as_str() {
                    "ok" => Ended::Passed,
                    "ignored" => Ended::Ignored,
                    // `timeout` only says that a test is slow.
                    "timeout" => return,
                    _ => {
                        Ended::Failed([message, stdout].into_iter().flatten().collect::<Vec<_>>().join("\n"))
                    }
                };
                let began = self.running.remove(&name).unwrap_or(now);
                self.tests.push(Test { name, ended, took: now.saturating_duration_since(began) });
            }
            _ => (),
        }
    }

    /// Takes the times of tests from lines with their seconds, how late the machine was, and their name.
    pub(crate) fn time(&mut self, lines: &str) {
        let parts = lines.lines().filter_map(|line| line.split_once(' '));
        let times = parts.filter_map(|(seconds, rest)| Some((rest.split_once(' ')?, seconds.parse().ok()?)));
        let times: HashMap<_, _> = times.map(|((late, name), seconds)| (name, (seconds, late))).collect();
        for test in &mut self.tests {
            let Some((seconds, late)) = times.get(test.name.as_str()) else { continue };
            test.took = Duration::from_secs_f64(*seconds);
            if let Ended::Failed(text) = &mut test.ended {
                text.push_str("\nmeanwhile the machine was late by up to ");
                text.push_str(late);
                text.push_str(" ms");
            }
        }
    }

    /// A test says that it was not run, or not all of it. It is none that has passed then. Whether there is
    /// such a test.
    pub(crate) fn note_not_run(&mut self, name: &str) -> bool {
        let Some(test) = self.tests.iter_mut().find(|test| test.name == name) else { return false };
        if test.ended == Ended::Passed {
            test.ended = Ended::NotRun;
        }
        true
    }

    /// The tests that have begun and not ended.
    pub(crate) fn running(&self) -> Vec<String> {
        let mut names: Vec<_> = self.running.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn count(&self, is: impl Fn(&Ended) -> bool) -> usize {
        self.tests.iter().filter(|test| is(&test.ended)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_with_their_times_and_their_output() {
        let mut events = Events::default();
        let begin = Instant::now();
        for (second, line) in [
            r#"{ "type": "suite", "event": "started", "test_count": 4 }"#,
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "event": "started", "name": "b::c" }"#,
            r#"{ "type": "test", "event": "timeout", "name": "a" }"#,
            "{ not an event",
            r#"{ "type": "test", "name": "b::c", "event": "failed", "exec_time": 1.0, "stdout": "one\ntwo" }"#,
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.1 }"#,
            r#"{ "type": "test", "name": "d", "event": "ignored" }"#,
        ]
        .iter()
        .enumerate()
        {
            events.read(line, begin + Duration::from_secs(second as u64));
        }
        let ended = |name: &str, ended, seconds| Test {
            name: name.to_owned(),
            ended,
            took: Duration::from_secs(seconds),
        };
        let expected = [
            ended("b::c", Ended::Failed("one\ntwo".into()), 3),
            ended("a", Ended::Passed, 5),
            ended("d", Ended::Ignored, 0),
        ];
        assert_eq!(events.tests, expected);
        assert_eq!(events.other, ["{ not an event"]);
        assert!(!events.complete && events.running().is_empty());
        events.time("1.5 2 a\n0.25 300 b::c\nunexpected\n");
        assert_eq!(events.tests[1].took, Duration::from_millis(1500));
        let Ended::Failed(text) = &events.tests[0].ended else { panic!("it has failed") };
        assert!(text.starts_with("one\ntwo\n") && text.ends_with("up to 300 ms"), "{text}");
        events.read(r#"{ "type": "suite", "event": "failed", "passed": 1 }"#, begin);
        assert!(events.complete);
        assert!(events.note_not_run("a") && events.note_not_run("b::c") && !events.note_not_run("main"));
        assert_eq!(events.tests[1].ended, Ended::NotRun);
        assert!(matches!(events.tests[0].ended, Ended::Failed(_)), "a failure is a failure");
    }
}
